"""A pool of URLs, from a server that misbehaves to shards: each is asked once, and what was got is what is exported."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from curation.manifest import read_index, verify_shards
from pipeline.config import parse_config
from pipeline.curate import CurateResult, curate
from pipeline.progress import RunProgress
from tests.fixtures import pool
from tests.fixtures.http_server import OddServer

pytestmark = pytest.mark.usefixtures("ray_cluster")


class PictureServer(OddServer):
    """Also serves pictures of the test pool, and a page that is down until it is repaired."""

    def __init__(self) -> None:
        super().__init__()
        self.repaired = False

    def page_picture(self, handler: BaseHTTPRequestHandler, count: int) -> None:
        # Another answer each time: only a body that was kept can be exported as it was scored.
        number = int(handler.path.partition("?")[0].rsplit("/", 1)[1])
        self.answer(handler, pool.encode(pool.picture(number), quality=90 - count), Content_Type="image/jpeg")

    def page_down(self, handler: BaseHTTPRequestHandler, count: int) -> None:
        if self.repaired:
            self.answer(handler, pool.encode(pool.picture(77)))
        else:
            self.answer(handler, b"gone fishing", status=404)


@pytest.fixture
def server() -> Iterator[PictureServer]:
    server = PictureServer()
    thread = threading.Thread(target=server.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.close()


def write_list(folder: Path, urls: list[str]) -> None:
    folder.mkdir()
    table = pa.table({"url": urls, "caption": [f"caption {number}" for number in range(len(urls))]})
    pq.write_table(table, folder / "list.parquet")


def run(folder: Path, output: Path, retry: bool = False, **source: Any) -> CurateResult:
    data = pool.config(folder, output, "urls", policy={"low_entropy": None})
    data["source"] |= {"retries": 1, "backoff_s": 0.01, "total_timeout_s": 5, "connect_timeout_s": 1} | source
    data["ray"] |= {"download_workers": 1}
    return curate(parse_config(data), RunProgress(Console(quiet=True), quiet=True), retry=retry)


def ledger(output: Path) -> list[dict[str, Any]]:
    return pa.concat_tables([pq.read_table(path) for path in sorted((output / "ledger").glob("*.parquet"))]).to_pylist()


def test_downloads_are_kept_counted_and_exported_as_they_came(server: PictureServer, tmp_path: Path) -> None:
    expected = {
        "picture/1": None,
        "picture/2": None,
        "picture/3?token=secret": None,
        "status/404": "http_error",
        "down": "http_error",
        "html": "not_an_image",
        "robots/?noai": "opted_out",
        "loop": "http_error",
    }
    urls = [f"{server.url}/{path}" for path in expected] + ["ftp://example.org/a.jpg", "http://user:pass@127.0.0.1:1/x"]
    write_list(tmp_path / "lists", urls)
    result = run(tmp_path / "lists", tmp_path / "run", allow_private_addresses=True)
    rows = ledger(tmp_path / "run")
    found = {row["url"].removeprefix(f"{server.url}/"): row for row in rows}
    for path, reason in expected.items():
        (row,) = (row for key, row in found.items() if key.split("?")[0] == path.split("?")[0])
        assert row["reason"] == reason, path
    assert [row["reason"] for row in rows[-2:]] == ["bad_url", "download_failed"]
    assert found["status/404"]["http_status"] == 404
    assert result.inputs == 10 == result.kept + sum(result.dropped.values())
    assert [row["caption"] for row in rows] == [f"caption {number}" for number in range(10)]
    assert all(server.requests[f"/{path}"] == 1 for path in ("picture/1", "picture/2", "status/404"))
    assert verify_shards(tmp_path / "run/shards") == []
    kept = {row["id"]: row["sha256"] for row in rows if row["verdict"] == "kept"}
    assert {row["id"]: row["sha256"] for row in read_index(tmp_path / "run/shards").to_pylist()} == kept
    # No secret of a URL is anywhere in the run.
    for path in (tmp_path / "run").rglob("*"):
        assert not path.is_file() or b"user:pass" not in path.read_bytes()
    assert all("secret" not in str(row) for row in rows)

    # Relaxing decodes what was kept; the server is not asked again.
    asked = dict(server.requests)
    again = run(tmp_path / "lists", tmp_path / "run", allow_private_addresses=True)
    assert (again.annotated, dict(server.requests)) == (0, asked)

    # --retry asks again for what failed, and only for that.
    server.repaired = True
    retried = run(tmp_path / "lists", tmp_path / "run", retry=True, allow_private_addresses=True)
    assert retried.kept == result.kept + 1
    assert server.requests["/down"] == asked["/down"] + 1
    assert all(server.requests[f"/picture/{number}"] == 1 for number in (1, 2))
    assert verify_shards(tmp_path / "run/shards") == []


def test_private_addresses_are_refused_by_default(server: PictureServer, tmp_path: Path) -> None:
    write_list(tmp_path / "lists", [f"{server.url}/picture/1", "http://169.254.169.254/latest/meta-data"])
    result = run(tmp_path / "lists", tmp_path / "run")
    assert result.dropped == {"address_refused": 2}
    assert server.requests == {}
