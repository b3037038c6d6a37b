"""Decoding in a process whose memory and time the kernel limits, for formats whose header bounds neither.

AVIF, JPEG 2000 and TIFF take sizes from inside their compressed data. A child process (`sandbox_child`) decodes them
under RLIMIT_AS and a limit of processor time; it also takes the crash of a decoder upon itself. Children are started
when first needed (a second or so), reused, and end with the process that started them, however it ends. Threads that
decode at the same time have one each. JPEG, PNG, WebP, GIF, BMP and PNM never come here.

A child that dies or runs out of memory after it has decoded other images is no evidence against this one: the
request is repeated once in a fresh child, whose verdict counts. So the outcome depends on the bytes alone.
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from curation.codecs.base import DecodeConfig, Header, Problem
from curation.reasons import Reason

if TYPE_CHECKING:
    from curation.records import Pixels  # which loads Arrow: the decoding child does without

SLACK_BYTES = 48 * 1024 * 1024
"""Address space beyond the estimate: what allocators reserve and never touch, and the answer's buffers."""
HEADER_BYTES = 64 * 1024 * 1024
"""What reading a header may take beside twice the encoded bytes."""

_lock = threading.Lock()
_idle: list[_Child] = []


class RefusedError(Exception):
    """The child's decoder refused the bytes; the message begins with the name of its exception."""


class _Child:
    def __init__(self) -> None:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self.fresh = True
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "curation.codecs.sandbox_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **threads, "PYTHONPATH": path, "MALLOC_ARENA_MAX": "1"},
            start_new_session=True,  # an interrupt is for the parent: it would look like a crash of the decoder
        )

    def ask(self, request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytearray] | None:
        """The answer and its bytes, or None when the child has died."""
        pipe_in, pipe_out = self.process.stdin, self.process.stdout
        assert pipe_in is not None
        assert pipe_out is not None
        try:
            pipe_in.write(json.dumps(request).encode() + b"\n")
            pipe_in.write(data)
            pipe_in.flush()
            line = pipe_out.readline()
            if not line.endswith(b"\n"):
                return None
            answer: dict[str, Any] = json.loads(line)
            body = bytearray(answer["bytes"])
            view, filled = memoryview(body), 0
            while filled < len(body):
                count = pipe_out.readinto(view[filled:])  # type: ignore[attr-defined]
                if not count:
                    return None
                filled += count
        except OSError:
            return None
        return answer, body

    def close(self) -> int:
        """End it, and say how it ended: an exit status, or minus the signal that ended it."""
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:
                pass  # what was not yet sent to a dead child
        try:
            return self.process.wait(1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def read_header(format: str, data: bytes, config: DecodeConfig) -> Header | Problem:
    """`raster.read_header` in a child. Raises `RefusedError` where that raises."""
    request = _request(format, data, config, HEADER_BYTES + 2 * len(data))
    answer = _ask(request, data)
    return answer if isinstance(answer, Problem) else Header(**answer[0]["header"])


def decode(
    data: bytes, header: Header, config: DecodeConfig, max_side: int | None, memory: int
) -> tuple[Pixels, bytes | None] | Problem:
    """`raster.decode` in a child that may take `memory` bytes. Raises `RefusedError` where that raises."""
    request = _request(header.format, data, config, memory + SLACK_BYTES)
    request |= {"header": dataclasses.asdict(header), "max_side": max_side}
    answer = _ask(request, data)
    if isinstance(answer, Problem):
        return answer
    shape, body = answer[0]["shape"], answer[1]
    pixels: Pixels = np.frombuffer(body, np.uint8, shape[0] * shape[1] * 3).reshape(shape)
    return pixels, bytes(body[pixels.nbytes :]) if answer[0]["profile"] else None


def _request(format: str, data: bytes, config: DecodeConfig, limit: int) -> dict[str, Any]:
    settings = {"icc": config.icc, "background": config.background}
    return {"format": format, "bytes": len(data), "limit": limit, "config": settings, "header": None}


def _ask(request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytearray] | Problem:
    while True:
        with _lock:
            child = _idle.pop() if _idle else None
        child = child or _Child()
        try:
            answer = child.ask(request, data)
        except BaseException:
            child.close()  # interrupted between request and answer: the next request must not read this answer
            raise
        fresh, child.fresh = child.fresh, False
        if answer is not None and "memory" not in answer[0]:
            with _lock:
                _idle.append(child)
            return _verdict(answer)
        status = child.close()
        if fresh:
            return _death(status, request["limit"]) if answer is None else _memory(request["limit"])


def _verdict(answer: tuple[dict[str, Any], bytearray]) -> tuple[dict[str, Any], bytearray] | Problem:
    said = answer[0]
    if "error" in said:
        raise RefusedError(said["error"])
    if "unreadable" in said:
        return Problem(Reason.UNREADABLE, said["unreadable"])
    return Problem(Reason(said["problem"][0]), said["problem"][1]) if "problem" in said else answer


def _memory(limit: int) -> Problem:
    return Problem(Reason.TOO_MANY_PIXELS, f"the decoder needs more memory than the header says: {limit} bytes")


def _death(status: int, limit: int) -> Problem:
    if status in (-signal.SIGPROF, -signal.SIGALRM):
        return Problem(Reason.TOO_MANY_PIXELS, "decoding takes longer than any image of its size")
    return Problem(Reason.CORRUPT, f"the decoder crashed ({f'signal {-status}' if status < 0 else f'status {status}'})")


def close() -> None:
    """End the children that are idle; more are started when they are needed."""
    with _lock:
        children, _idle[:] = _idle[:], []
    for child in children:
        child.close()


def _forget() -> None:
    """After a fork: the children belong to the parent, and so do their pipes."""
    global _lock
    _lock = threading.Lock()
    for child in _idle:
        child.process.returncode = 0
        for pipe in (child.process.stdin, child.process.stdout):
            if pipe is not None:
                os.close(pipe.fileno())
                pipe.detach()  # type: ignore[attr-defined]
    _idle.clear()


atexit.register(close)
os.register_at_fork(after_in_child=_forget)
