"""The process that decodes what no header bounds: `python -m curation.codecs.sandbox_child`, started by `sandbox`.

It answers one request at a time from standard input on standard output, until standard input ends: also when its
parent is killed, so that nobody has to look after it. Each request runs under its own limit of address space and
of processor time. A process that has met its memory limit says so and exits; one past its time is ended by the
kernel. Requests and answers are a line of JSON and raw bytes: nothing is unpickled.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import signal
import sys
from typing import IO, Any

from curation.codecs import raster
from curation.codecs.base import DecodeConfig, Header, Problem
from curation.codecs.readers import UnreadableError

CPU_SECONDS = 60.0
"""Longest decode: ten times what the slowest whole image within the default memory limit takes."""
WALL_SECONDS = 900


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _limit(extra: int | None, hard: int) -> None:
    try:
        soft = hard if extra is None else _address_space() + extra
        resource.setrlimit(resource.RLIMIT_AS, (soft if hard < 0 else min(soft, hard), hard))
    except (OSError, ValueError):
        pass  # not Linux: the estimate from the header stands alone


def _answer(request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    config = DecodeConfig(**request["config"])
    try:
        if request["header"] is None:
            found = raster.read_header(request["format"], data)
            if isinstance(found, Problem):
                return {"problem": [found.reason.value, found.detail]}, b""
            return {"header": dataclasses.asdict(found)}, b""
        pixels, profile = raster.decode(data, Header(**request["header"]), config, request["max_side"])
        return {"shape": list(pixels.shape), "profile": len(profile or b"")}, pixels.tobytes() + (profile or b"")
    except MemoryError:
        raise
    except UnreadableError as error:
        return {"unreadable": str(error)}, b""
    except Exception as error:  # noqa: BLE001 - hostile bytes make decoders raise anything
        return {"error": f"{type(error).__name__}: {error}"[:300]}, b""


def _warm() -> None:
    """Load every codec once, so that its code is no part of a request's memory."""
    import io

    import simplejpeg  # noqa: F401
    from PIL import AvifImagePlugin, Image

    AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # a thread's stack and arena would count as memory
    for format, options in (("AVIF", {"speed": 10}), ("JPEG2000", {}), ("TIFF", {"compression": "tiff_adobe_deflate"})):
        if raster.missing_codec(format):
            continue
        out = io.BytesIO()
        Image.new("RGB", (64, 64)).save(out, format, **options)
        header = raster.read_header(format, out.getvalue())
        if isinstance(header, Header):
            raster.decode(out.getvalue(), header, DecodeConfig(), 32)


def main() -> None:
    """Serve until standard input ends."""
    requests: IO[bytes] = sys.stdin.buffer
    answers: IO[bytes] = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not look like an answer
    _warm()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    base: int | None = None
    while line := requests.readline():
        request = json.loads(line)
        data = requests.read(request["bytes"])
        if len(data) != request["bytes"]:
            return
        if base is None:
            base = _address_space() - len(data)
        # What earlier requests left to the allocator is part of this one's room, not an addition to it.
        _limit(max(0, base + len(data) + request["limit"] - _address_space()), hard)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        signal.alarm(WALL_SECONDS)
        try:
            answer, body = _answer(request, data)
        except MemoryError:
            answer, body = {"memory": True}, b""
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        _limit(None, hard)
        del data
        answers.write(json.dumps({**answer, "bytes": len(body)}).encode() + b"\n" + body)
        answers.flush()
        if "memory" in answer:
            return


if __name__ == "__main__":
    main()
