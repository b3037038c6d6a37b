import asyncio
import gzip
import json
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curation.reasons import Reason
from curation.records import Locator, Payload
from curation.sources import SourceError, UrlsConfig, open_source
from curation.sources.base import READ_COLUMNS, Source
from curation.sources.download import Downloader
from tests.fixtures.http_server import OddServer, odd_server
from tests.fixtures.tars import picture


@pytest.fixture
def server() -> Iterator[OddServer]:
    with odd_server() as running:
        yield running


def source_of(tmp_path: Path, urls: list[str | None], **options: Any) -> Source:
    pq.write_table(pa.table({"url": pa.array(urls, pa.string())}), tmp_path / "list.parquet", row_group_size=7)
    values = {"allow_private_addresses": True, "backoff_s": 0.01, "total_timeout_s": 5.0, **options}
    return open_source(UrlsConfig(path=str(tmp_path / "list.parquet"), **values))


def listed(source: Source) -> list[Locator]:
    return [locator for unit in source.units() for locator in source.list_unit(unit)]


def read(tmp_path: Path, urls: list[str | None], **options: Any) -> list[Payload]:
    source = source_of(tmp_path, urls, **options)
    payloads = list(source.read(listed(source)))
    assert all(set(item.columns) == set(READ_COLUMNS) for item in payloads)
    return payloads


def one(tmp_path: Path, url: str | None, **options: Any) -> Payload:
    (payload,) = read(tmp_path, [url], **options)
    return payload


def test_a_picture_comes_with_its_columns(tmp_path: Path, server: OddServer) -> None:
    payload = one(tmp_path, f"{server.url}/image/3", contact="https://example.org/bot")
    assert payload.data == picture(3)
    assert payload.reason is None
    assert payload.columns == {
        "http_status": 200, "final_url": f"{server.url}/image/3", "read_attempts": 1, "read_error": None
    }  # fmt: skip
    headers = server.headers["/image/3"]
    assert headers["user-agent"] == "Populace/0.1 (image corpus builder) (contact: https://example.org/bot)"
    assert "accept-encoding" not in headers


@pytest.mark.parametrize(
    ("path", "options", "reason", "status", "error", "attempts"),
    [
        ("missing", {}, Reason.HTTP_ERROR, 404, "http_404", 1),
        ("status/403", {}, Reason.HTTP_ERROR, 403, "http_403", 1),
        ("status/410", {}, Reason.HTTP_ERROR, 410, "http_410", 1),
        ("status/500", {"retries": 2}, Reason.HTTP_ERROR, 500, "http_500", 3),
        ("status/429", {"retries": 1}, Reason.HTTP_ERROR, 429, "http_429", 2),
        ("status/302", {}, Reason.HTTP_ERROR, 302, "http_302", 1),
        ("flaky/500", {}, None, 200, None, 3),
        ("flaky/503", {"retries": 1}, Reason.HTTP_ERROR, 503, "http_503", 2),
        ("redirect/3", {}, None, 200, None, 1),
        ("redirect/6", {}, Reason.HTTP_ERROR, 302, "too_many_redirects", 1),
        ("loop", {}, Reason.HTTP_ERROR, 301, "too_many_redirects", 1),
        ("to/?ftp://example.org/a.jpg", {}, Reason.BAD_URL, 307, None, 1),
        ("to/?http://[broken", {}, Reason.BAD_URL, 307, None, 1),
        ("hang", {"total_timeout_s": 0.3, "retries": 1}, Reason.DOWNLOAD_FAILED, None, "timeout", 2),
        ("drip", {"total_timeout_s": 0.5, "retries": 0}, Reason.DOWNLOAD_FAILED, 200, "timeout", 1),
        ("truncated", {"retries": 1}, Reason.DOWNLOAD_FAILED, 200, "cut_body", 2),
        ("endless", {"max_bytes": 1 << 20}, Reason.TOO_MANY_BYTES, 200, None, 1),
        ("huge_length", {}, Reason.TOO_MANY_BYTES, 200, None, 1),
        ("image/1/5000", {"max_bytes": 5007}, Reason.TOO_MANY_BYTES, 200, None, 1),
        ("image/1/5000", {"max_bytes": 5008}, None, 200, None, 1),
        ("bomb", {"max_bytes": 1 << 20}, Reason.TOO_MANY_BYTES, 200, None, 1),
        ("gzip", {}, None, 200, None, 1),
        ("brotli", {}, Reason.DOWNLOAD_FAILED, 200, "bad_encoding", 1),
        ("garbage", {"retries": 1}, Reason.DOWNLOAD_FAILED, None, "protocol", 2),
        ("drop", {"retries": 1}, Reason.DOWNLOAD_FAILED, None, "disconnected", 2),
        ("empty", {}, Reason.EMPTY, 200, None, 1),
        ("html", {}, None, 200, None, 1),
        ("robots/?noai", {}, Reason.OPTED_OUT, 200, None, 1),
        ("robots/?noindex,%20NoImageAI", {}, Reason.OPTED_OUT, 200, None, 1),
        ("robots/?somebot:%20noai", {}, Reason.OPTED_OUT, 200, None, 1),
        ("robots/?all|otherbot:%20noindex,noimageai", {}, Reason.OPTED_OUT, 200, None, 1),
        ("robots/?noml", {}, Reason.OPTED_OUT, 200, None, 1),
        ("tdm/?1", {}, Reason.OPTED_OUT, 200, None, 1),
        ("tdm/?0", {}, None, 200, None, 1),
        ("tdm/?1", {"respect_robots_tag": False}, None, 200, None, 1),
        ("robots/?noindex", {}, None, 200, None, 1),
        ("robots/?noai", {"respect_robots_tag": False}, None, 200, None, 1),
    ],
)
def test_what_servers_do(
    tmp_path: Path,
    server: OddServer,
    path: str,
    options: dict[str, Any],
    reason: Reason | None,
    status: int | None,
    error: str | None,
    attempts: int,
) -> None:
    payload = one(tmp_path, f"{server.url}/{path}", **options)
    assert payload.reason is reason
    assert (payload.data is None) == (reason is not None)
    columns = payload.columns
    assert (columns["http_status"], columns["read_error"], columns["read_attempts"]) == (status, error, attempts)


def test_the_bodies_are_right(tmp_path: Path, server: OddServer) -> None:
    paths = ["flaky/500", "redirect/3", "gzip", "html"]
    bodies = [picture(1), picture(0), picture(1), b"<html>hello</html>"]
    payloads = read(tmp_path, [f"{server.url}/{path}" for path in paths])
    assert [item.data for item in payloads] == bodies
    assert payloads[1].columns["final_url"] == f"{server.url}/image/0"


def test_more_bytes_than_declared_never_get_in(tmp_path: Path, server: OddServer) -> None:
    """Whether the surplus is noticed depends on how the network cuts the packets; it is never part of the picture."""
    for payload in read(tmp_path, [f"{server.url}/short_length"] * 5, retries=0):
        assert payload.data == picture(1)[:10] or payload.reason is Reason.DOWNLOAD_FAILED


def test_retry_after_is_kept_up_to_its_cap(tmp_path: Path, server: OddServer) -> None:
    started = time.monotonic()
    assert one(tmp_path, f"{server.url}/busy/1").reason is None
    assert time.monotonic() - started >= 1.0
    started = time.monotonic()
    assert one(tmp_path, f"{server.url}/busy/500", retry_after_cap_s=0.1).reason is None
    assert 0.1 <= time.monotonic() - started < 3


def test_connect_errors_are_tried_again(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    payload = one(tmp_path, f"http://127.0.0.1:{port}/a.jpg", retries=2)
    assert (payload.reason, payload.columns["read_error"], payload.columns["read_attempts"]) == (
        Reason.DOWNLOAD_FAILED, "connect", 3
    )  # fmt: skip
    payload = one(tmp_path, "http://no-such-host.invalid/a.jpg", retries=1)
    assert (payload.reason, payload.columns["read_error"], payload.columns["read_attempts"]) == (
        Reason.DOWNLOAD_FAILED, "dns", 2
    )  # fmt: skip


@pytest.mark.parametrize(
    "url", [None, "", "not a url", "ftp://h/a.jpg", "file:///etc/passwd", "http://", "http://[::1", "//h/a"]
)
def test_bad_urls(tmp_path: Path, url: str | None) -> None:
    payload = one(tmp_path, url)
    assert payload.reason is Reason.BAD_URL
    assert payload.columns["read_attempts"] == 1


def test_private_addresses_are_refused_in_every_spelling(tmp_path: Path, server: OddServer) -> None:
    hosts = ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "[::1]",
             "[::ffff:127.0.0.1]", "0.0.0.0", "169.254.169.254", "10.0.0.1", "user:pw@127.0.0.1"]  # fmt: skip
    payloads = read(tmp_path, [f"http://{host}:{server.port}/image/1" for host in hosts], allow_private_addresses=False)
    assert [item.reason for item in payloads] == [Reason.ADDRESS_REFUSED] * len(hosts)
    assert not server.requests
    assert "pw" not in repr(payloads)


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest", "http://127.0.0.2:1/", "http://localhost:1/", "http://0x7f.2/"]
)
def test_each_redirect_is_checked(tmp_path: Path, server: OddServer, target: str) -> None:
    options = {"allow_private_addresses": False, "allowed_networks": ("127.0.0.1/32",)}
    if "localhost" in target:  # which is 127.0.0.1, or ::1
        options["allowed_networks"] = ("127.0.0.0/32",)
        payload = one(tmp_path, target, **options)
    else:
        payload = one(tmp_path, f"{server.url}/to/?{target}", **options)
        assert sum(server.requests.values()) == 1
    assert payload.reason is Reason.ADDRESS_REFUSED
    assert payload.columns["final_url"] == target
    assert (
        one(tmp_path, f"{server.url}/image/1", allow_private_addresses=False, allowed_networks=("127.0.0.1/32",)).reason
        is None
    )


def test_the_address_that_was_checked_is_the_one_connected_to(server: OddServer) -> None:
    """A name that is allowed when it is checked and private the next time: it is asked for once, and what was checked
    is connected to (an address of the documentation network, where nobody answers)."""
    from aiohttp.abc import AbstractResolver

    class Rebinding(AbstractResolver):
        asked = 0

        async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[Any]:
            self.asked += 1
            address = "192.0.2.1" if self.asked == 1 else "127.0.0.1"
            return [{"hostname": host, "host": address, "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}]

        async def close(self) -> None:
            pass

    resolver = Rebinding()

    async def fetch() -> Payload:
        config = UrlsConfig(path="-", allowed_networks=("192.0.2.0/24",), retries=0, connect_timeout_s=0.5)
        async with Downloader(config, 1000, resolver) as downloader:
            return await downloader.fetch(f"http://rebind.example:{server.port}/image/1")

    assert asyncio.run(fetch()).reason is Reason.DOWNLOAD_FAILED
    assert resolver.asked == 1
    assert asyncio.run(fetch()).reason is Reason.ADDRESS_REFUSED
    assert not server.requests


def test_proxies_of_the_environment_are_not_used(
    tmp_path: Path, server: OddServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert one(tmp_path, "http://no-such-host.invalid/image/1", retries=0).columns["read_error"] == "dns"
    assert not server.requests
    refused = one(tmp_path, "http://169.254.169.254/image/1", trust_env=True, allow_private_addresses=False)
    assert refused.reason is Reason.ADDRESS_REFUSED
    one(tmp_path, "http://no-such-host.invalid/image/1", trust_env=True, allow_private_addresses=False, retries=0)
    assert list(server.requests) == ["http://no-such-host.invalid/image/1"]


def test_requests_to_one_host_are_limited(tmp_path: Path, server: OddServer) -> None:
    server.hold_s = 0.05
    payloads = read(tmp_path, [f"{server.url}/image/{n}" for n in range(40)], per_host=3, concurrency=32)
    assert [item.data for item in payloads] == [picture(n) for n in range(40)]
    assert server.peak == 3


def test_requests_altogether_are_limited(tmp_path: Path, server: OddServer) -> None:
    server.hold_s = 0.05
    read(tmp_path, [f"{server.url}/image/{n}" for n in range(30)], per_host=32, concurrency=4)
    assert server.peak == 4


def test_one_slow_url_does_not_stop_the_others(tmp_path: Path, server: OddServer) -> None:
    urls: list[str | None] = [f"{server.url}/hang", *[f"{server.url}/image/{n}" for n in range(30)]]
    started = time.monotonic()
    payloads = read(tmp_path, urls, total_timeout_s=1.0, retries=0)
    assert time.monotonic() - started < 4
    assert [item.reason for item in payloads] == [Reason.DOWNLOAD_FAILED] + [None] * 30


def test_endless_bodies_do_not_fill_memory(tmp_path: Path, server: OddServer) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    payloads = read(tmp_path, [f"{server.url}/{page}" for page in ("endless", "huge_length") * 8], max_bytes=2 << 20)
    assert {item.reason for item in payloads} == {Reason.TOO_MANY_BYTES}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


def test_credentials_are_used_and_not_stored(tmp_path: Path, server: OddServer) -> None:
    url = f"http://me:s3cret@127.0.0.1:{server.port}/image/1?X-Amz-Signature=abc123&w=1"
    source = source_of(tmp_path, [url, url.replace("image/1", "missing")])
    locators = listed(source)
    payloads = list(source.read(locators))
    assert payloads[0].data == picture(1)
    assert server.headers["/image/1?X-Amz-Signature=abc123&w=1"]["authorization"].startswith("Basic ")
    stored = repr(locators) + repr([item.columns for item in payloads]) + repr([item.detail for item in payloads])
    assert "s3cret" not in stored
    assert "abc123" not in stored
    assert json.loads(locators[0].metadata or "")["url"] == f"{server.url}/image/1?X-Amz-Signature=REDACTED&w=1"


LISTS = {
    "a.csv": 'URL,TEXT,n\n{u}/image/0,"one, two",5\n\n{u}/image/1,,6\n',
    "b.tsv": "URL\tTEXT\n{u}/image/0\tone\n{u}/image/1\n",
    "c.jsonl": '{{"URL": "{u}/image/0", "TEXT": "one"}}\n\n{{broken\n{{"URL": "{u}/image/1"}}\n[1]\n{{"URL": 5}}\n',
    "d.txt": "\ufeff{u}/image/0\n\n  {u}/image/1  \r\n",
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("place", ["local", "memory"])
def test_text_lists(tmp_path: Path, server: OddServer, name: str, place: str) -> None:
    text = LISTS[name].format(u=server.url).encode()
    path = str(tmp_path / name)
    (tmp_path / name).write_bytes(text)
    if place == "memory":
        path = f"memory://{tmp_path.name}-{name}/{name}"
        fsspec.filesystem("memory").pipe_file(f"/{tmp_path.name}-{name}/{name}", text)
    source = open_source(UrlsConfig(path=path, url_column="URL", allow_private_addresses=True))
    locators = listed(source)
    payloads = list(source.read(locators))
    assert [item.data for item in payloads if item.data] == [picture(0), picture(1)]
    metadata = json.loads(locators[0].metadata or "")
    assert metadata["url"] == f"{server.url}/image/0"
    if name == "a.csv":
        assert metadata["caption"] == "one, two"
        assert metadata["n"] == "5"
        assert [item.member for item in locators] == ["0", "1"]
    if name == "c.jsonl":
        assert [item.member for item in locators] == ["0", "2", "3", "4", "5"]
        assert [item.reason for item in payloads] == [None, Reason.BAD_URL, None, Reason.BAD_URL, Reason.BAD_URL]
        assert json.loads(locators[1].metadata or "") == {"metadata_problem": "not a JSON object"}
    if name == "d.txt":
        assert [item.member for item in locators] == ["0", "2"]


def test_metadata_columns_and_missing_columns(tmp_path: Path) -> None:
    table = pa.table({"URL": ["http://h/a"], "TEXT": ["one"], "LICENSE": ["cc0"], "emb": [[0.5]], "n": [3]})
    pq.write_table(table, tmp_path / "a.parquet")
    path = str(tmp_path)
    (every,) = listed(open_source(UrlsConfig(path=path, url_column="URL")))
    assert json.loads(every.metadata or "") == {"url": "http://h/a", "caption": "one", "licence": "cc0", "n": 3}
    (some,) = listed(open_source(UrlsConfig(path=path, url_column="URL", metadata_columns=("n",))))
    assert json.loads(some.metadata or "") == {"url": "http://h/a", "n": 3}
    with pytest.raises(SourceError, match=r"no column 'url'; its columns are URL, TEXT.*source.url_column=URL"):
        open_source(UrlsConfig(path=path)).units()
    with pytest.raises(SourceError, match=r"source.metadata_columns"):
        open_source(UrlsConfig(path=path, url_column="URL", metadata_columns=("m",))).units()


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
def test_columns_that_may_say_an_opt_out_always_come_along(tmp_path: Path, name: str) -> None:
    values = {"url": "http://h/a", "caption": "one", "no-ai": "true", "other": "x"}
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist([values]), tmp_path / name)
    elif name == "a.jsonl":
        (tmp_path / name).write_text(json.dumps(values))
    else:
        delimiter = "," if name == "a.csv" else "\t"
        (tmp_path / name).write_text(f"{delimiter.join(values)}\n{delimiter.join(values.values())}\n")
    (row,) = listed(open_source(UrlsConfig(path=str(tmp_path), metadata_columns=("caption",))))
    assert json.loads(row.metadata or "") == {"url": "http://h/a", "caption": "one", "no-ai": "true"}


def test_broken_lists_are_one_row(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"<html>")
    pq.write_table(pa.table({"link": ["x"]}), tmp_path / "c.parquet")
    pq.write_table(pa.table({"url": ["http://127.0.0.1:1/"]}), tmp_path / "b.parquet")
    source = open_source(UrlsConfig(path=str(tmp_path)))
    locators = listed(source)
    assert [(item.uri, item.member, item.problem) for item in locators] == [
        ("a.parquet", "", Reason.BAD_CONTAINER), ("b.parquet", "0", None), ("c.parquet", "0", Reason.BAD_CONTAINER)
    ]  # fmt: skip
    reasons = [item.reason for item in source.read(locators)]
    assert reasons == [Reason.BAD_CONTAINER, Reason.ADDRESS_REFUSED, Reason.BAD_CONTAINER]
    (tmp_path / "b.parquet").unlink()
    fresh = open_source(UrlsConfig(path=str(tmp_path)))
    assert [item.reason for item in fresh.read(locators)] == [
        Reason.BAD_CONTAINER,
        Reason.MISSING,
        Reason.BAD_CONTAINER,
    ]


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_input_is_read_back_once_in_order(tmp_path: Path, server: OddServer, data: st.DataObject) -> None:
    urls: list[str | None] = [f"{server.url}/image/{n}" if n % 9 else None for n in range(50)]
    expected = [picture(n) if n % 9 else None for n in range(50)]
    source = source_of(tmp_path, urls)
    locators = listed(source)
    cuts = sorted(data.draw(st.sets(st.integers(1, 49), max_size=4)))
    spans = list(zip([0, *cuts], [*cuts, 50], strict=True))
    for start, stop in data.draw(st.permutations(spans)):
        assert [payload.data for payload in source.read(locators[start:stop])] == expected[start:stop]


def test_urls_say_that_they_fetch(tmp_path: Path) -> None:
    assert source_of(tmp_path, ["http://h/"]).fetches


def of_list(folder: Path, name: str, content: bytes, **options: Any) -> tuple[Source, list[Locator]]:
    (folder / name).write_bytes(content)
    source = open_source(UrlsConfig(path=str(folder / name), allow_private_addresses=True, retries=0, **options))
    return source, listed(source)


def test_a_url_that_is_not_utf8_is_one_bad_row(tmp_path: Path, server: OddServer) -> None:
    good = f"{server.url}/image/1".encode()
    urls = pa.array([good, b"http://h/caf\xe9", good]).view(pa.string())
    pq.write_table(pa.table({"url": urls}), tmp_path / "a.parquet")
    parquet = open_source(UrlsConfig(path=str(tmp_path / "a.parquet"), allow_private_addresses=True))
    csv = of_list(tmp_path, "b.csv", b"n,url\n1," + good + b"\n2,http://h/caf\xe9\n3," + good + b"\n")
    for source, locators in ((parquet, listed(parquet)), csv):
        payloads = list(source.read(locators))
        assert [item.reason for item in payloads] == [None, Reason.BAD_URL, None]
        assert payloads[1].detail == "no URL, or one that is not UTF-8"
        metadata = json.loads(locators[1].metadata or "")
        assert metadata["url"] == "http://h/caf\ufffd"
        assert metadata["metadata_problem"] == "url: not UTF-8"
        assert "metadata_problem" not in (locators[0].metadata or "")


@pytest.mark.parametrize(
    "name", ["a.csv", "a.tsv", "a.jsonl", "a.txt", "a.csv.gz", "a.tsv.gz", "a.jsonl.gz", "a.txt.gz"]
)
@pytest.mark.parametrize("folder", [False, True])
def test_compressed_lists_are_read(tmp_path: Path, name: str, folder: bool) -> None:
    kind = name.split(".")[1]
    rows = [f"http://h/{n}" for n in range(5000)]
    lines = [json.dumps({"url": row}) for row in rows] if kind == "jsonl" else ["url", *rows] if kind != "txt" else rows
    content = "\n".join(lines).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    locators = listed(open_source(UrlsConfig(path=str(tmp_path if folder else tmp_path / name))))
    assert [json.loads(item.metadata or "") for item in locators] == [{"url": row} for row in rows]


@pytest.mark.parametrize("first", ["not JSON", "{}", '{"other": 1}', "[]x", "\ufeff"])
def test_the_first_line_of_json_does_not_decide(tmp_path: Path, first: str) -> None:
    content = "\n".join([first, *(json.dumps({"url": f"http://h/{n}", "n": n}) for n in range(5000))])
    _, locators = of_list(tmp_path, "a.jsonl", content.encode(), metadata_columns=("n",))
    assert len(locators) == 5000 + (first != "\ufeff")
    assert json.loads(locators[-1].metadata or "") == {"url": "http://h/4999", "n": 4999}


def test_a_json_array_is_read(tmp_path: Path) -> None:
    items = [{"url": f"http://h/{n}", "text": "é"} for n in range(3000)]
    _, locators = of_list(tmp_path, "a.json", json.dumps(items, indent=1).encode())
    assert [json.loads(item.metadata or "") for item in locators] == [
        {"url": item["url"], "caption": "é"} for item in items
    ]


def test_what_cannot_be_read_on_is_a_row_of_its_own(tmp_path: Path) -> None:
    content = gzip.compress("".join(f"http://h/{n}\n" for n in range(50_000)).encode())
    _, locators = of_list(tmp_path, "a.txt.gz", content[: len(content) // 2])
    assert len(locators) > 10_000
    assert all(item.problem is None for item in locators[:-1])
    assert (locators[-1].member, locators[-1].problem) == ("", Reason.BAD_CONTAINER)
    _, locators = of_list(tmp_path, "b.json", b'[{"url": "http://h/0"}, {"url": oops}]')
    assert [(item.member, item.problem) for item in locators] == [("0", None), ("", Reason.BAD_CONTAINER)]
    assert "element 1 of the JSON array is damaged" in (locators[-1].problem_detail or "")
    _, (only,) = of_list(tmp_path, "c.csv", b"PK\x03\x04")
    assert only.problem is Reason.BAD_CONTAINER
    assert "a zip file (or a spreadsheet)" in (only.problem_detail or "")


def test_lists_without_the_column_have_their_rows_counted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"link,caf\xe9\nhttp://h/0,x\nhttp://h/1,y\n")
    (tmp_path / "b.tsv").write_bytes(b"link\nhttp://h/0\n")
    pq.write_table(pa.table({"link": ["x"] * 3}), tmp_path / "c.parquet")
    (tmp_path / "d.txt").write_bytes(b"http://h/0\n")
    locators = listed(open_source(UrlsConfig(path=str(tmp_path))))
    bad = Reason.BAD_CONTAINER
    assert [(item.uri[0], item.member, item.problem) for item in locators] == [
        ("a", "0", bad), ("a", "1", bad), ("b", "0", bad), ("c", "0", bad), ("c", "1", bad), ("c", "2", bad),
        ("d", "0", None),
    ]  # fmt: skip
    assert (locators[0].problem_detail or "").startswith("a.csv has no column 'url'; its columns are link, caf?.")
    with pytest.raises(SourceError, match="no column 'url'"):
        open_source(UrlsConfig(path=str(tmp_path / "a.csv"))).units()
    (tmp_path / "list.dat").write_bytes(b"http://h/0\n")
    with pytest.raises(SourceError, match="no list that is known by its suffix"):
        open_source(UrlsConfig(path=str(tmp_path / "list.dat"))).units()


def test_a_list_without_a_header_shows_no_secret(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        of_list(tmp_path, "a.csv", b"https://u:S3CRET@h/a.jpg?sig=S3CRET,caption\n")
    assert "S3CRET" not in str(caught.value)
