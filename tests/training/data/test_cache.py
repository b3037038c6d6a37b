"""The cache holds whole files only, stays in its bound, and takes nothing away from a reader."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from training.data.cache import RemoteFile, ShardCache
from training.data.errors import DataError


def remote(name: str, data: bytes, **changed: Any) -> RemoteFile:
    url = f"memory://cache-test/{name}"
    with fsspec.open(url, "wb") as file:
        file.write(data)
    values = {"url": url, "options": {}, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return RemoteFile(**values | changed)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was copied, in order; each copy takes a while."""
    names: list[str] = []
    plain = MemoryFileSystem.get_file

    def get_file(self: MemoryFileSystem, name: str, target: str, **options: Any) -> None:
        names.append(name.rpartition("/")[2])
        time.sleep(0.02)
        plain(self, name, target, **options)

    monkeypatch.setattr(MemoryFileSystem, "get_file", get_file)
    return names


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_fetched_once_and_read_whole(tmp_path: Path, fetched: list[str]) -> None:
    cache, file = ShardCache(tmp_path / "new" / "cache", 10_000), remote("a", b"x" * 1000)
    for _ in range(3):
        with cache.open(file) as copy:
            assert copy.read() == b"x" * 1000
    assert cache.fill(file)
    assert fetched == ["a"]
    # Nothing but the file is left, and neither name nor address is stored.
    assert files_of(tmp_path / "new" / "cache") == [file.sha256]
    with pickle.loads(pickle.dumps(cache)).open(file) as copy:
        assert len(copy.read()) == 1000
    assert fetched == ["a"]


def test_threads_that_want_one_file_wait_for_one_fetch(tmp_path: Path, fetched: list[str]) -> None:
    cache, file = ShardCache(tmp_path, 10_000), remote("a", b"x" * 1000)
    sizes: list[int] = []

    def read() -> None:
        with cache.open(file) as copy:
            sizes.append(len(copy.read()))

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sizes == [1000] * 6
    assert fetched == ["a"]


def test_the_files_opened_longest_ago_make_room(tmp_path: Path, fetched: list[str]) -> None:
    cache = ShardCache(tmp_path, 3000)
    files = [remote(name, name.encode() * 1000) for name in "abcd"]
    for age, file in enumerate(files[:3]):
        cache.open(file).close()
        os.utime(tmp_path / file.sha256, (age, age))
    cache.open(files[0]).close()  # the oldest is used again
    cache.open(files[3]).close()
    assert files_of(tmp_path) == sorted(files[number].sha256 for number in (0, 2, 3))
    assert cache.used() == 3000


def test_what_a_reader_has_open_stays(tmp_path: Path, fetched: list[str]) -> None:
    cache = ShardCache(tmp_path, 2000)
    files = [remote(name, name.encode() * 1000) for name in "abc"]
    with cache.open(files[0]) as first, cache.open(files[1]):
        assert not cache.fill(files[2])  # ahead of its use: not without room
        assert fetched == ["a", "b"]
        with cache.open(files[2]) as third:  # needed now: beyond the bound
            assert third.read() == b"c" * 1000
        assert first.read() == b"a" * 1000
        assert {file.sha256 for file in files[:2]} <= set(files_of(tmp_path))
    cache.open(remote("d", b"d" * 1000)).close()
    assert cache.used() <= 2000


def test_reading_ahead_removes_nothing_that_is_needed_as_soon(tmp_path: Path) -> None:
    cache = ShardCache(tmp_path, 2000)
    files = [remote(name, name.encode() * 1000) for name in "abc"]
    assert cache.fill(files[0])
    assert cache.fill(files[1])
    assert not cache.fill(files[2], spare=frozenset(file.sha256 for file in files))
    assert cache.fill(files[2], spare=frozenset(file.sha256 for file in files[1:]))
    assert files_of(tmp_path) == sorted(file.sha256 for file in files[1:])


def _hold(folder: str, file: RemoteFile, ready: Any, go: Any) -> None:
    with ShardCache(folder, 1000).open(file) as copy:
        ready.set()
        go.wait(20)
        assert copy.read() == b"a" * 1000


def test_a_reader_of_another_process_keeps_its_file_until_it_is_killed(tmp_path: Path) -> None:
    cache, first = ShardCache(tmp_path, 1000), remote("a", b"a" * 1000)
    cache.open(first).close()
    context = multiprocessing.get_context("fork")
    ready, go = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(str(tmp_path), first, ready, go))
    process.start()
    assert ready.wait(20)
    assert not cache.fill(remote("b", b"b" * 1000))
    process.kill()
    process.join()
    assert cache.fill(remote("b", b"b" * 1000))
    assert files_of(tmp_path) == [remote("b", b"b" * 1000).sha256]


def test_what_a_killed_process_left_is_removed_when_room_is_needed(tmp_path: Path) -> None:
    (tmp_path / f"{'0' * 64}.1500.12345678.part").write_bytes(b"half")
    cache = ShardCache(tmp_path, 2000)
    assert cache.used() == 1500
    cache.open(remote("a", b"a" * 1000)).close()
    assert files_of(tmp_path) == [remote("a", b"a" * 1000).sha256]


def test_a_file_being_fetched_is_passed_over_by_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, file = ShardCache(tmp_path, 10_000), remote("a", b"a" * 1000)
    started, go = threading.Event(), threading.Event()
    plain = MemoryFileSystem.get_file

    def get_file(self: MemoryFileSystem, *args: Any, **options: Any) -> None:
        started.set()
        go.wait(20)
        plain(self, *args, **options)

    monkeypatch.setattr(MemoryFileSystem, "get_file", get_file)
    thread = threading.Thread(target=lambda: cache.open(file).close())
    thread.start()
    assert started.wait(20)
    assert not cache.fill(file)  # and does not wait
    assert cache.used() == 1000  # its room is taken from the start
    go.set()
    thread.join()
    assert cache.fill(file)


@pytest.mark.parametrize(
    ("changed", "verify", "message"),
    [
        ({"bytes": 999}, False, "has 1000 bytes, its manifest says 999"),
        ({"sha256": "0" * 64}, True, "has the SHA-256 .* its manifest says 0000"),
        ({"url": "memory://user:swordfish@cache-test/none?token=swordfish"}, False, "none.token=REDACTED cannot be"),
    ],
)
def test_what_is_not_what_the_manifest_says_is_not_kept(
    tmp_path: Path, changed: dict[str, Any], verify: bool, message: str
) -> None:
    cache = ShardCache(tmp_path, 10_000, verify)
    file = remote("a", b"a" * 1000, **changed)
    with pytest.raises(DataError, match=message) as caught:
        cache.open(file)
    assert "swordfish" not in f"{caught.value}{file!r}"
    assert files_of(tmp_path) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be made"):
        ShardCache(tmp_path / "file" / "cache", 1)
