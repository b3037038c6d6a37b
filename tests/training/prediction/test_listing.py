"""Files of folders and lists: links, videos beside images, lists of every encoding."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from training.prediction.listing import folder_files, given_files, list_file


def files(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    return root


def test_linked_folders_are_followed_once_and_hidden_files_are_none(tmp_path: Path) -> None:
    root = files(tmp_path / "in", "a.jpg", "sub/b.PNG", ".hidden/c.jpg", "__MACOSX/d.jpg", "notes.md", ".e.jpg")
    files(tmp_path / "elsewhere", "f.jpg", "g/h.jpg")
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    (root / "sub/circle").symlink_to(root)
    (root / "broken.jpg").symlink_to(tmp_path / "gone.jpg")
    found = folder_files(root)
    assert [file.relative for file in found] == ["a.jpg", "broken.jpg", "linked/f.jpg", "linked/g/h.jpg", "sub/b.PNG"]
    assert [file.name for file in found] == ["a", "broken", "linked/f", "linked/g/h", "sub/b"]
    assert found[2].path == root / "linked/f.jpg"


def test_names_that_are_no_unicode_are_listed_as_they_are(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9\\.jpg")
    (found,) = folder_files(files(tmp_path, name))
    assert found.relative == name
    assert found.path.read_bytes() == b"x"


def test_videos_stand_beside_images_and_no_two_names_are_one(tmp_path: Path) -> None:
    root = files(tmp_path / "in", "a.mp4", "a/000000.jpg", "b.avi", "c.avi", "c.mkv", "d.jpg", "d.png")
    found = folder_files(root)
    assert {file.relative: file.name for file in found} == {
        "a/000000.jpg": "a/000000",
        "a.mp4": "a.mp4",  # its frames would be among the images of the folder a
        "b.avi": "b",
        "c.avi": "c.avi",
        "c.mkv": "c.mkv",
        "d.jpg": "d.jpg",
        "d.png": "d.png",
    }
    assert [file.relative for file in found if file.is_video] == ["a.mp4", "b.avi", "c.avi", "c.mkv"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_lists_of_every_encoding(encoding: str, tmp_path: Path) -> None:
    names = ["dir/ä.jpg", "b c.png", "clip.mp4"]
    (tmp_path / "list.txt").write_bytes(f"{names[0]}\r\n\r\n{names[1]} \n{names[2]}".encode(encoding))
    assert [file.path for file in list_file(tmp_path / "list.txt")] == [tmp_path / name for name in names]


def test_a_list_names_files_of_any_bytes(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(b"caf\xe9.jpg\n")
    (found,) = list_file(tmp_path / "list.txt")
    assert os.fsencode(found.path.name) == b"caf\xe9.jpg"


def test_what_holds_no_pictures_is_an_error_that_says_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no pictures .*no videos .*seen, by extension: 2 md, 1 \(none\)"):
        folder_files(files(tmp_path / "in", "a.md", "b.md", "c"))
    for data, message in (
        (b"\n \n", "is empty: give a list with a path on each line"),
        (b"\xff\xfea", "no list in UTF-8 or UTF-16"),
        (b"a.jpg\0\0b", "NUL characters"),
    ):
        (tmp_path / "list.txt").write_bytes(data)
        with pytest.raises(ValueError, match=message):
            list_file(tmp_path / "list.txt")
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(ValueError, match=r"folder\.txt cannot be read: Is a directory"):
        list_file(tmp_path / "folder.txt")
    with pytest.raises(ValueError, match="is empty: give at least one path"):
        given_files([])
