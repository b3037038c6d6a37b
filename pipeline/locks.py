"""One holder of a folder at a time, on every file system, however the holder before ended.

With `flock`, the system lets go of the lock when its process ends. A folder can be renamed between opening its lock
file and locking it (`--new` sets runs aside), so that what was locked is compared with what the path leads to, and the
locking begins anew where they differ.

File systems without `flock` (some network and user-space ones) get claims: files `.lock-1`, `.lock-2`, ... made
exclusively, each with its host, process and start, and touched every `BEAT_S`. The highest counts. It is over when its
holder wrote so, when its process on this host is gone, or when it was not touched for `STALE_S`, by the file system's
own clock. The next holder makes the next number, which a file system lets only one do; so nobody ever removes a claim
that somebody else has just made. All of it works on the opened folder, whatever is renamed meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import socket
import sys
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

LOCK_FILE = ".lock"
NO_FLOCK = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS})
"""What `flock` says on file systems that have none."""

BEAT_S = 20.0
STALE_S = 300.0
TRIES = 50
_CLAIM = re.compile(r"\.lock-(\d{1,18})")
_told: set[str] = set()


class HeldError(RuntimeError):
    """Another process holds the folder. The message says which, as far as that is known."""


class FolderLock(Protocol):
    """A held folder."""

    def close(self) -> None:
        """Let go; nothing happens the second time."""


def lock_folder(path: str | Path) -> FolderLock:
    """Make a local folder, with its parents, and hold it until `close` or the end of the process.

    Raises:
        HeldError: another process holds it.
        OSError: nothing can be made or written there.
    """
    for attempt in range(TRIES):
        try:
            Path(path).mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            if os.path.lexists(path) and not os.path.isdir(path):
                raise
            continue  # there, and renamed before it was looked at
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # renamed since
        try:
            lock = _lock(folder, str(path))
            if lock is not None:
                if _leads_to(path, folder):
                    return lock
                lock.close()
        except HeldError:
            # Whoever holds what was renamed does not hold what is at the path now.
            if _leads_to(path, folder):
                raise
        except FileNotFoundError:
            if _leads_to(path, folder):
                raise
        finally:
            os.close(folder)
        time.sleep(min(0.001 * 2**attempt, 0.1))
    raise HeldError(f"other processes keep opening {path} anew; wait for them or stop them")


def _leads_to(path: str | Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lock(folder: int, shown: str) -> FolderLock | None:
    """None: it has to be tried again."""
    descriptor = os.open(LOCK_FILE, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644, dir_fd=folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The lock file may have been removed since, or another one be in its place.
        held = os.path.samestat(os.stat(LOCK_FILE, dir_fd=folder), os.fstat(descriptor))
    except BlockingIOError:
        os.close(descriptor)
        raise HeldError(f"another process is working in {shown}; wait for it or stop it") from None
    except FileNotFoundError:
        held = False
    except OSError as error:
        os.close(descriptor)
        if error.errno not in NO_FLOCK:
            raise
        if shown not in _told:
            _told.add(shown)
            print(
                f"note: the file system of {shown} has no locks ({error.strerror}); a file in it, {LOCK_FILE}-N, keeps "
                "other processes out instead",
                file=sys.stderr,
            )
        return _claim(folder, shown)
    if held:
        return _Flock(descriptor)
    os.close(descriptor)
    return None


@dataclass
class _Flock:
    descriptor: int | None

    def close(self) -> None:
        """Let go."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def _claim(folder: int, shown: str) -> FolderLock | None:
    """The next claim, when the highest one is over; None when somebody else was quicker."""
    before = max(_numbers(folder), default=0)
    if before:
        holder = _read(folder, before)
        if holder is None:
            return None
        if not _is_over(holder, folder, before):
            raise HeldError(
                f"another process is working in {shown} (process {holder.get('pid', '?')} on "
                f"{holder.get('host', 'an unknown host')}); wait for it or stop it. A process that died on another "
                f"host is passed over {STALE_S / 60:g} minutes after its last sign of life."
            )
    number, mine = before + 1, _myself()
    try:
        descriptor = os.open(_name(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=folder)
    except FileExistsError:
        return None
    with os.fdopen(descriptor, "w") as file:
        json.dump(mine, file)
    # A number that was removed as outdated can be made again: then there are higher ones.
    if max(_numbers(folder), default=0) > number:
        with suppress(FileNotFoundError):
            os.unlink(_name(number), dir_fd=folder)
        return None
    for old in _numbers(folder):
        # The one before stays: a listing that runs meanwhile sees it or ours.
        if old < number - 1:
            with suppress(FileNotFoundError):
                os.unlink(_name(old), dir_fd=folder)
    return _Claim(os.dup(folder), number, mine, shown)


class _Claim:
    """A held claim, touched by a thread."""

    def __init__(self, folder: int, number: int, record: dict[str, Any], shown: str) -> None:
        self._folder: int | None = folder
        self._number, self._record, self._shown = number, record, shown
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="populace-lock", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let go."""
        if self._folder is None:
            return
        self._done.set()
        self._thread.join()
        folder, self._folder = self._folder, None
        try:
            with suppress(OSError):  # the folder may be gone; then nobody waits for it
                _write_whole(folder, _name(self._number), {**self._record, "over": True})
        finally:
            os.close(folder)

    def _beat(self) -> None:
        folder = self._folder
        assert folder is not None
        while not self._done.wait(BEAT_S):
            with suppress(OSError):  # a hiccup, or the folder was removed: the run itself finds that out
                os.utime(_name(self._number), dir_fd=folder)
                if max(_numbers(folder), default=0) > self._number:
                    # At once: what this process writes from here on would be mixed with the other's.
                    print(
                        f"error: another process has taken over {self._shown}, since this one gave no sign of life for "
                        f"{STALE_S / 60:g} minutes (was it suspended?); this one ends here",
                        file=sys.stderr, flush=True,
                    )  # fmt: skip
                    os._exit(1)


def _name(number: int) -> str:
    return f"{LOCK_FILE}-{number}"


def _numbers(folder: int) -> list[int]:
    return [int(match[1]) for name in os.listdir(folder) if (match := _CLAIM.fullmatch(name))]


def _read(folder: int, number: int) -> dict[str, Any] | None:
    """What a claim says; {} when it is not written yet, None when it is not there any more."""
    try:
        with open(os.open(_name(number), os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), encoding="utf-8") as file:
            record = json.load(file)
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _is_over(record: dict[str, Any], folder: int, number: int) -> bool:
    if record.get("over") is True:
        return True
    mine = _myself()
    if record and all(record.get(key) == mine[key] for key in ("host", "boot", "processes")):
        return not _is_alive(record.get("pid"), record.get("started"))
    try:
        touched = os.stat(_name(number), dir_fd=folder).st_mtime
    except FileNotFoundError:
        return False
    return _clock(folder) - touched > STALE_S


def _clock(folder: int) -> float:
    """The time by the file system that stamps the claims: hosts' own clocks may differ."""
    name = f"{LOCK_FILE}.{uuid.uuid4().hex}.tmp"
    descriptor = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=folder)
    try:
        os.write(descriptor, b"x")
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


def _write_whole(folder: int, name: str, record: dict[str, Any]) -> None:
    temporary = f"{name}.{uuid.uuid4().hex[:8]}.tmp"
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=folder)
    with os.fdopen(descriptor, "w") as file:
        json.dump(record, file)
    os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _myself() -> dict[str, Any]:
    """Who this process is: two on one host, since one start of it, in one space of process ids, can see each other."""
    return {
        "host": socket.gethostname(),
        "boot": _text("/proc/sys/kernel/random/boot_id"),
        "processes": _link("/proc/self/ns/pid"),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
    }


def _is_alive(pid: Any, started: Any) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    # The number may have been given to another process since; a zombie is gone.
    now = _started(pid)
    return now != "" and (started == now or not started or not now)


def _started(pid: int) -> str | None:
    """When a process was started, in the system's ticks; "" when it is dead but not collected, None when unknown."""
    line = _text(f"/proc/{pid}/stat")
    fields = line.rpartition(")")[2].split() if line else []
    if len(fields) < 20:
        return None
    return "" if fields[0] in "ZX" else fields[19]


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None
