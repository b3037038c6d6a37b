"""Folders that Ray needs on this machine: it ends in the middle of its start where they do not do."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SOCKET_LIMIT = 107
"""Bytes of a socket's path on Linux."""
_SESSION = "/ray/session_2026-12-31_23-59-59_999999_{pid}/sockets/plasma_store"

_TOKEN = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@dataclass(frozen=True)
class FolderProblem:
    """What is wrong with a folder, and what to set."""

    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}: {self.fix}"


def home() -> Path:
    """As Ray finds it."""
    return Path(os.path.expanduser("~"))


def temporary() -> tuple[str, str]:
    """The variable that says where Ray's temporary files go, and the folder."""
    for name in ("RAY_TMPDIR", "TMPDIR"):
        if name in os.environ:
            return name, os.environ[name]
    return "TMPDIR", "/tmp"  # noqa: S108 - Ray's own default


def longest_temporary() -> int:
    """Bytes of the path of the temporary folder, below which this process's Ray would have its sockets."""
    return SOCKET_LIMIT - len(_SESSION.format(pid=os.getpid()))


def home_problem() -> FolderProblem | None:
    """Ray writes a token for its processes into HOME/.ray, unless it is there or given."""
    token = home() / ".ray" / "auth_token"
    given = any(os.environ.get(name) for name in _TOKEN) or os.environ.get("RAY_AUTH_MODE") == "disabled"
    if given or os.access(token, os.R_OK) or _writable(token.parent):
        return None
    return FolderProblem(
        f"HOME is {home()}, where Ray cannot write .ray/auth_token",
        "set HOME to a folder that you can write, for example HOME=$PWD",
    )


def temporary_problem() -> FolderProblem | None:
    """Ray's sockets lie below its temporary folder, and the system limits the length of their paths."""
    name, folder = temporary()
    length, longest = len(os.fsencode(os.path.abspath(folder))), longest_temporary()
    if length > longest:
        return FolderProblem(
            f"{name} has {length} bytes ({folder}), and Ray's sockets below it allow {longest}",
            "set RAY_TMPDIR to a shorter one, for example RAY_TMPDIR=/tmp",
        )
    if not _writable(Path(folder)):
        return FolderProblem(
            f"{name} is {folder}, where Ray cannot write", "set RAY_TMPDIR to a folder that you can write"
        )
    return None


def _writable(folder: Path) -> bool:
    """Whether a folder can be written, or made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
