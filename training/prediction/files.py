"""Files of a prediction: where they lie, and that they are there whole or not at all."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

_LONGEST = 200  # bytes of a name; file systems allow 255, with what is added to it


def is_safe(name: str) -> bool:
    """Whether a picture's name stays in the folder of the outputs."""
    path = PurePosixPath(name)
    return bool(path.parts) and ".." not in path.parts and not path.is_absolute() and "\0" not in name


def output_path(folder: Path, name: str, suffix: str) -> Path:
    """Where an output of a picture lies: `folder/name` + suffix; a very long last part is cut and gets a hash.

    Raises:
        ValueError: the name leads out of the folder.
    """
    if not is_safe(name):
        raise ValueError(f"{name!r} is no name for an output: it leads out of {folder}")
    parts = PurePosixPath(name).parts
    last = parts[-1]
    if len(os.fsencode(last)) > _LONGEST:
        digest = hashlib.blake2b(os.fsencode(last), digest_size=8).hexdigest()
        last = f"{last[:40]}-{digest}"
    return folder.joinpath(*parts[:-1], last + suffix)


@contextmanager
def landing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, in folders that are made, which becomes `path` when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}.part")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(temporary)):
            error.filename = str(path)  # of a full disk, the system says no place
        raise
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def land(path: Path, data: bytes) -> None:
    """Write bytes, whole or not at all."""
    with landing(path) as temporary:
        temporary.write_bytes(data)
