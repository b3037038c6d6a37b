"""Why something failed, in one line: the innermost cause, with what helps, and without credentials.

A failure in a Ray worker comes back inside of several others, some of them as text only, and with advice on Ray's own
settings at its end. What a person needs is what happened in the worker.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
import traceback

from curation.sources.redact import redact_text

_HINTS = {
    errno.ENOSPC: "free some space, or give another place",
    errno.EDQUOT: "the quota of this user is used up: free some space, or give another place",
    errno.EFBIG: "the largest size of a file here is reached (ulimit -f, or the file system's own): raise it, or give "
    "another place",
    errno.EROFS: "the file system takes no writes: give another place, or mount it for writing",
    errno.EACCES: "allow this user to use it, or give another place",
    errno.EPERM: "allow this user to use it, or give another place",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.EIO: "the disk or the network behind it has a fault",
    errno.ESTALE: "the network file system has lost it: mount it again",
}  # fmt: skip
_LIMIT = 600
_OURS = ("curation", "pipeline", "training", "eval", "cluster")
_OUR_CLASSES = tuple(f"{name}." for name in _OURS)
_GENERAL = frozenset({"RuntimeError", "Exception"})
"""Names that say nothing."""
_ERRNO = re.compile(r"\[Errno (\d+)\] ")
_CLASS = re.compile(r"((?:[A-Za-z_]\w*\.)*)([A-Za-z_]\w*)(?:: |:?$)")
_CAUSE = "The above exception was the direct cause"
_CONTEXT = "During handling of the above exception"
_HEADER = re.compile(r"Traceback \(most recent call last\):|.*\(pid=\d+, ip=")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_DEAD_RAYLET = (
    "Ray's process on this machine (raylet) ended: it was killed, or memory or shared memory ran out; "
    "logs/ray_native.log has what it said"
)
_RAY_WORDS = {
    "LocalRayletDiedError": _DEAD_RAYLET,
    "OutOfMemoryError": "the machine ran out of memory, and Ray ended a worker: lower ray.max_workers or ray.num_cpus",
    "ObjectStoreFullError": "Ray's object store is full: raise ray.object_store_gb",
    "OutOfDiskError": "the disk that Ray keeps its own files on is full: free some space, or set RAY_TMPDIR to another",
}


def cause_line(error: BaseException) -> str:
    """What failed, in one line, as far inside as it is known."""
    line = " ".join(redact_text(_cause(error)).split())
    return line if len(line) <= _LIMIT else line[: _LIMIT - 3] + "..."


def write_traceback(error: BaseException, path: str | None = None) -> str | None:
    """Put the whole traceback into a file, of its own in the folder for temporary files unless one is given; returns
    where, None where nothing can be written."""
    text = redact_text("".join(traceback.format_exception(error)))
    try:
        if path is None:
            descriptor, path = tempfile.mkstemp(".log", "populace-")
        else:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:
        return None
    return path


def _cause(error: BaseException) -> str:
    for _ in range(50):
        if _package(error) in _OURS:
            break  # what stands behind one of our own errors is in its words
        if _package(error) == "ray":
            inner = getattr(error, "cause", None)  # of what was raised in a worker
            if not isinstance(inner, BaseException) or _package(inner) not in _OURS:
                text = getattr(error, "traceback_str", None) or str(error)
                found = innermost_of_text(text)
                if found is not None:
                    return found
                if not isinstance(inner, BaseException):
                    return _RAY_WORDS.get(type(error).__name__) or _first_line(error)
            error = inner
        elif error.__cause__ is not None:
            error = error.__cause__
        else:
            break
    return _words(error)


def _package(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in _COLOR.sub("", str(error)).splitlines() if line.strip()]
    return f"Ray: {lines[0]}" if lines else f"Ray: {type(error).__name__}"


def _words(error: BaseException) -> str:
    """Of an error that was raised here, or that came back whole."""
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
        return _hinted(f"{error.strerror}: {' -> '.join(names)}" if names else error.strerror, error.errno)
    name, text = type(error).__name__, str(error).strip()
    if text:
        return text if _package(error) in _OURS or name in _GENERAL else f"{name}: {text}"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{name} in {os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}" if frames else name


def innermost_of_text(text: str) -> str | None:
    """The exception at the bottom of a printed chain of causes, in our words where it is one of ours; None: there is
    no traceback in the text."""
    chain = _chain(_COLOR.sub("", text).splitlines())
    if not chain:
        return None
    position = len(chain) - 1
    while (
        position > 0 and chain[position][1] and not chain[position][0].startswith(tuple(f"{name}." for name in _OURS))
    ):
        position -= 1
    said = chain[position][0]
    match = _ERRNO.search(said)
    if match is not None:
        return _hinted(said[match.end() :].replace("'", ""), int(match[1]))
    match = _CLASS.match(said)
    if match is None:
        return said
    if said[match.end() :] and (match[2] in _GENERAL or match[1].startswith(_OUR_CLASSES)):
        return said[match.end() :]
    return said[match.start(2) :]


def _chain(lines: list[str]) -> list[tuple[str, bool]]:
    """(what an exception said, whether the one before is its cause) of each exception of a printed traceback."""
    chain: list[tuple[str, bool]] = []
    said: list[str] = []
    in_frames = caused = False
    for line in [*lines, ""]:
        if said:
            if line.strip() and not _HEADER.match(line):
                said.append(line.strip())
                continue
            chain.append((" ".join(said), caused))
            said, in_frames, caused = [], False, False
        if line.startswith(_CAUSE):
            caused = True
        elif line.startswith(_CONTEXT):
            caused = False
        elif _HEADER.match(line):
            in_frames = True  # Ray leaves out frames, of some tracebacks all
        elif in_frames and line and not line[0].isspace():
            said.append(line.strip())
    return chain


def _hinted(text: str, number: int) -> str:
    return f"{text} ({_HINTS[number]})" if number in _HINTS else text
