import os
import threading
import time
from pathlib import Path

import fsspec
import pytest

from curation.sources.failures import TooManyBytesError
from curation.sources.filesystem import Files, read_ahead
from curation.sources.names import unescape_name


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in [
        "b/2.jpg",
        "b/1.jpg",
        "a.jpg",
        "b/.hidden/x.jpg",
        ".dot.jpg",
        "__MACOSX/._a.jpg",
        "b.jpg",
        "lost+found/x",
    ]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def test_walk_is_sorted_and_counts_the_hidden(tree: Path) -> None:
    listing = Files(str(tree), {}).walk()
    assert [(entry.name, entry.size) for entry in listing.entries] == [
        ("a.jpg", 5), ("b.jpg", 5), ("b/1.jpg", 7), ("b/2.jpg", 7)
    ]  # fmt: skip
    assert listing.skipped == {"(hidden)": 3}


def test_memory_walk_agrees_with_local(tree: Path) -> None:
    fs = fsspec.filesystem("memory")
    for path in tree.rglob("*"):
        if path.is_file() and "lost+found" not in path.parts:
            fs.pipe_file(f"/walk/{path.relative_to(tree)}", path.read_bytes())
    assert Files("memory://walk", {}).walk() == Files(f"file://{tree}", {}).walk()
    fs.rm("/walk", recursive=True)


def test_links_in_circles_end_and_real_names_win(tree: Path) -> None:
    (tree / "b" / "up").symlink_to(tree)
    (tree / "aa").symlink_to(tree / "b")
    (tree / "self").symlink_to(tree / "self")
    (tree / "gone.jpg").symlink_to(tree / "nowhere")
    (tree / "copy.jpg").symlink_to(tree / "a.jpg")
    os.mkfifo(tree / "pipe.jpg")
    listing = Files(str(tree), {}).walk()
    names = {entry.name: entry.size for entry in listing.entries}
    assert names == {
        "a.jpg": 5, "b.jpg": 5, "b/1.jpg": 7, "b/2.jpg": 7, "copy.jpg": 5, "gone.jpg": None, "self": None
    }  # fmt: skip
    assert listing.skipped == {"(hidden)": 3, "(not a file)": 1, "(repeated folder)": 2}


def test_a_linked_folder_elsewhere_is_walked(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.jpg").write_bytes(b"x")
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool" / "link").symlink_to(tmp_path / "other")
    assert [entry.name for entry in Files(str(tmp_path / "pool"), {}).walk().entries] == ["link/x.jpg"]


def test_names_that_are_not_utf8_can_be_read(tmp_path: Path) -> None:
    raw = b"caf\xe9.jpg"
    (tmp_path / os.fsdecode(raw)).write_bytes(b"12345")
    files = Files(str(tmp_path), {})
    (entry,) = files.walk().entries
    assert entry.name == "caf\\xe9.jpg"
    assert os.fsencode(unescape_name(entry.name)) == raw
    assert files.read(entry.name, 100) == b"12345"
    assert files.read_range(entry.name, 1, 3) == b"234"


def test_ranges_caps_and_missing_files(tree: Path) -> None:
    fsspec.filesystem("memory").pipe_file("/caps/a.jpg", b"a.jpg")
    for files in (Files(str(tree), {}), Files("memory://caps", {})):
        assert files.read_range("a.jpg", 2, 100) == b"jpg"
        assert files.read_range("a.jpg", 2, 0) == b""
        assert files.size("a.jpg") == 5
        with pytest.raises(TooManyBytesError, match="5 bytes, the cap is 4"):
            files.read("a.jpg", 4)
        with pytest.raises(FileNotFoundError):
            files.read("none.jpg", 4)


def test_read_ahead_keeps_order_and_bounds_what_it_holds() -> None:
    lock = threading.Lock()
    started = 0

    def job(number: int) -> int:
        nonlocal started
        with lock:
            started += 1
        time.sleep(0.002 * (number % 3))
        return number

    results = []
    for number in read_ahead(((1, lambda n=n: job(n)) for n in range(60)), workers=3):
        results.append(number)
        assert started <= len(results) + 6
    assert results == list(range(60))


def test_read_ahead_waits_when_bytes_run_out() -> None:
    started: list[int] = []
    jobs = ((1 << 40, lambda n=n: started.append(n) or n) for n in range(4))
    run = read_ahead(jobs)
    assert next(run) == 0
    assert started == [0]
    assert list(run) == [1, 2, 3]
