"""Downloads are kept: what came once comes back the same, and only what failed is asked for again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from curation.reasons import Reason
from curation.records import Locator, Payload
from curation.sources import FolderConfig, UrlsConfig, open_source
from curation.sources.base import READ_COLUMNS, Source, Unit
from pipeline.fetch import Reader
from pipeline.storage import Storage
from tests.fixtures.counting import locators
from tests.fixtures.http_server import OddServer, odd_server
from tests.fixtures.tars import picture

COLUMNS = {"http_status": 200, "final_url": "http://x/1", "read_attempts": 1, "read_error": None}


class Remote(Source):
    """A place whose answers the test decides; remembers what was asked for."""

    fetches = True

    def __init__(self, answers: list[Payload | Exception]) -> None:
        super().__init__(None)
        self.answers = answers
        self.asked: list[int] = []

    def units(self) -> list[Unit]:
        return []

    def list_unit(self, unit: Unit) -> Iterator[Locator]:
        yield from ()

    def read(self, locators: Sequence[Locator]) -> Iterator[Payload]:
        for locator in locators:
            number = int(locator.uri.removesuffix(".jpg"))
            self.asked.append(number)
            answer = self.answers[number]
            if isinstance(answer, Exception):
                raise answer
            yield answer


def ok(data: bytes, **columns: Any) -> Payload:
    return Payload(data, columns={**COLUMNS, **columns})


def failed(reason: Reason, **columns: Any) -> Payload:
    return Payload(None, reason, f"detail of {reason}", {**COLUMNS, "http_status": None, **columns})


ANSWERS: list[Payload | Exception] = [
    ok(b"first"), failed(Reason.DOWNLOAD_FAILED, read_error="timeout", read_attempts=3), ok(bytes(range(256)) * 99),
    failed(Reason.HTTP_ERROR, http_status=404), ok(b"\0", final_url="http://x/redirected"), failed(Reason.OPTED_OUT),
]  # fmt: skip


def files(storage: Storage) -> dict[str, bytes]:
    return {name: storage.read_bytes(f"work/fetched/{name}") for name in storage.names("work/fetched")}


def read(reader: Reader, rows: Sequence[int], count: int = 6) -> list[Payload]:
    return list(reader.read(0, rows, [locators(count)[row] for row in rows]))


def test_what_was_fetched_comes_back_exactly_and_any_rows_of_it(tmp_path: Path) -> None:
    source = Remote(list(ANSWERS))
    reader = Reader(Storage(tmp_path), source)
    reader.fetch(0, locators(6))
    assert source.asked == list(range(6))
    assert read(reader, range(6)) == ANSWERS
    assert read(reader, [1, 4]) == [ANSWERS[1], ANSWERS[4]]
    assert read(reader, []) == []
    # It is asked once.
    reader.fetch(0, locators(6))
    assert source.asked == list(range(6))
    assert sorted(name.rsplit(".", 1)[1] for name in files(reader.storage)) == ["bin", "parquet"]


def test_a_retry_asks_only_for_the_rows_that_failed_so(tmp_path: Path) -> None:
    source = Remote(list(ANSWERS))
    reader = Reader(Storage(tmp_path), source)
    reader.fetch(0, locators(6))
    source.asked.clear()
    source.answers = [AssertionError("asked again"), ok(b"now it is there"), *[AssertionError("asked again")] * 4]
    reader.fetch(0, locators(6), {"download_failed", "missing"})
    assert source.asked == [1]
    assert read(reader, range(6)) == [ANSWERS[0], ok(b"now it is there"), *ANSWERS[2:]]
    assert sorted(name.rsplit(".", 1)[1] for name in files(reader.storage)) == ["bin", "parquet"]
    # Nothing left to try: nothing is asked and nothing is written.
    before = files(reader.storage)
    reader.fetch(0, locators(6), {"download_failed", "missing"})
    assert source.asked == [1]
    assert files(reader.storage) == before


def test_a_row_may_fail_again_in_another_way(tmp_path: Path) -> None:
    source = Remote(list(ANSWERS))
    reader = Reader(Storage(tmp_path), source)
    reader.fetch(0, locators(6))
    source.answers[1] = failed(Reason.HTTP_ERROR, http_status=500)
    reader.fetch(0, locators(6), {"download_failed"})
    assert read(reader, [0, 1]) == [ANSWERS[0], source.answers[1]]


def test_killed_half_way_nothing_looks_fetched(tmp_path: Path) -> None:
    source = Remote([*ANSWERS[:3], RuntimeError("killed"), *ANSWERS[4:]])
    reader = Reader(Storage(tmp_path), source)
    with pytest.raises(RuntimeError, match="killed"):
        reader.fetch(0, locators(6))
    assert files(reader.storage) == {}
    source.answers = list(ANSWERS)
    reader.fetch(0, locators(6))
    assert read(reader, range(6)) == ANSWERS


def test_killed_in_a_retry_the_old_download_stays_whole(tmp_path: Path) -> None:
    source = Remote(list(ANSWERS))
    reader = Reader(Storage(tmp_path), source)
    reader.fetch(0, locators(6))
    before = files(reader.storage)
    source.answers[3] = RuntimeError("killed")
    with pytest.raises(RuntimeError, match="killed"):
        reader.fetch(0, locators(6), {"download_failed", "http_error"})
    assert files(reader.storage) == before
    assert read(reader, range(6)) == ANSWERS


def test_an_empty_chunk_and_chunks_apart(tmp_path: Path) -> None:
    source = Remote(list(ANSWERS))
    reader = Reader(Storage(tmp_path), source)
    reader.fetch(0, [])
    reader.fetch(1, locators(1))
    assert list(reader.read(1, [0], locators(1))) == [ANSWERS[0]]
    assert list(reader.read(0, [], [])) == []


def test_a_source_of_files_is_read_straight(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool" / "1.jpg").write_bytes(b"x")
    reader = Reader(Storage(tmp_path / "run"), open_source(FolderConfig(path=str(tmp_path / "pool"))))
    assert [item.data for item in reader.read(0, [1], [locators(2)[1]])] == [b"x"]
    assert files(reader.storage) == {}


@pytest.fixture
def server() -> Iterator[OddServer]:
    with odd_server() as running:
        yield running


def test_a_real_server_is_asked_once_and_again_only_for_what_failed(tmp_path: Path, server: OddServer) -> None:
    paths = ["/image/1", "/status/404", "/flaky/500", "/image/2/5000"]
    (tmp_path / "list.txt").write_text("".join(f"{server.url}{path}\n" for path in paths))
    config = UrlsConfig(path=str(tmp_path / "list.txt"), allow_private_addresses=True, backoff_s=0.01, retries=0)
    source = open_source(config)
    rows = [locator for unit in source.units() for locator in source.list_unit(unit)]
    reader = Reader(Storage(tmp_path / "run"), source)
    reader.fetch(0, rows)

    def now() -> list[Payload]:
        return list(reader.read(0, range(4), rows))

    assert [item.data for item in now()] == [picture(1), None, None, picture(2, 5000)]
    assert [item.reason for item in now()] == [None, Reason.HTTP_ERROR, Reason.HTTP_ERROR, None]
    assert [item.columns["http_status"] for item in now()] == [200, 404, 500, 200]
    assert all(set(item.columns) == set(READ_COLUMNS) for item in now())
    for _ in range(2):  # the flaky page answers at the third request
        reader.fetch(0, rows, {"http_error"})
    assert [item.data for item in now()] == [picture(1), None, picture(1), picture(2, 5000)]
    assert [server.requests[path] for path in paths] == [1, 3, 3, 1]
