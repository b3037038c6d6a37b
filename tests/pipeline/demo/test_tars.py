from __future__ import annotations

import io
import tarfile
from pathlib import Path

from pipeline.demo.tars import TarWriter, write


def written() -> bytes:
    tar = TarWriter()
    tar.add("../a b.jpg", b"one")
    tar.add("é.jpg", b"two")
    tar.add("é.jpg", b"three")
    tar.add_link("link.jpg", "/etc/hostname")
    return tar.close()


def test_members_are_stored_as_given_and_bytes_repeat() -> None:
    data = written()
    assert data == written()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        infos = tar.getmembers()
        assert [info.name for info in infos] == ["../a b.jpg", "é.jpg", "é.jpg", "link.jpg"]
        contents = [file.read() for info in infos[:3] if (file := tar.extractfile(info)) is not None]
    assert contents == [b"one", b"two", b"three"]
    assert infos[3].issym()
    assert {(info.mtime, info.uid, info.uname) for info in infos} == {(0, 0, "")}


def test_write_makes_folders(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b.txt", b"x")
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"x"
