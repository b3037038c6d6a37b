import gzip
import json
import os
import pickle
import random
import tarfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import curation.sources.tar_contents as tar_contents
import curation.sources.webdataset as webdataset
from curation.reasons import Reason
from curation.records import LOCATOR_SCHEMA, Locator, record_id
from curation.sources import SourceError, WebDatasetConfig, open_source
from curation.sources.base import Source
from tests.fixtures.tars import device, link, picture, tar_bytes, write_tar

P = [picture(number) for number in range(6)]


def listed(source: Source) -> list[Locator]:
    return [locator for unit in source.units() for locator in source.list_unit(unit)]


def outcome(path: Path | str) -> list[tuple[str, bytes | None, Reason | None, dict[str, object]]]:
    """(member, bytes, reason, metadata) of every input."""
    source = open_source(WebDatasetConfig(path=str(path)))
    locators = listed(source)
    assert len({(locator.uri, locator.member) for locator in locators}) == len(locators)
    payloads = list(source.read(locators))
    assert all(item.id == record_id(item.uri, item.member) for item in locators)
    return [
        (locator.member, payload.data, payload.reason, json.loads(locator.metadata or "{}"))
        for locator, payload in zip(locators, payloads, strict=True)
    ]


def plain(path: Path) -> list[tuple[str, bytes | None, Reason | None]]:
    return [row[:3] for row in outcome(path)]


# The odd-tar table, row by row.


def test_dotted_names_are_inputs_of_their_own(tmp_path: Path) -> None:
    members = [("img.v2.jpg", P[0]), ("img.v3.jpg", P[1]), ("img.v3.json", b'{"n": 3}'), ("img.json", b'{"n": 0}')]
    assert outcome(write_tar(tmp_path / "a.tar", members)) == [
        ("img.v2.jpg", P[0], None, {"n": 0}),
        ("img.v3.jpg", P[1], None, {"n": 3}),
    ]


def test_a_sidecar_of_the_plain_name_is_not_given_to_dotted_ones(tmp_path: Path) -> None:
    members = [("img.jpg", P[0]), ("img.v2.jpg", P[1]), ("img.json", b'{"n": 0}'), ("img.seg.json", b'{"s": 1}')]
    assert outcome(write_tar(tmp_path / "a.tar", members)) == [
        ("img.jpg", P[0], None, {"n": 0, "seg.json": {"s": 1}}),
        ("img.v2.jpg", P[1], None, {}),
    ]


def test_dots_in_folders_mean_nothing(tmp_path: Path) -> None:
    members = [("set.v1/a.jpg", P[0]), ("set.v1/a.txt", b"one"), ("set.v2/a.jpg", P[1])]
    assert outcome(write_tar(tmp_path / "a.tar", members)) == [
        ("set.v1/a.jpg", P[0], None, {"caption": "one"}),
        ("set.v2/a.jpg", P[1], None, {}),
    ]


def test_members_need_not_be_adjacent(tmp_path: Path) -> None:
    members = [("a.jpg", P[0]), ("b.JPG", P[1]), ("a.json", b'{"k": "a"}'), ("b.json", b'{"k": "b"}'), ("b.cls", b"7")]
    assert outcome(write_tar(tmp_path / "a.tar", members)) == [
        ("a.jpg", P[0], None, {"k": "a"}),
        ("b.JPG", P[1], None, {"k": "b", "cls": 7}),
    ]


def test_several_pictures_of_one_key_share_its_metadata(tmp_path: Path) -> None:
    members = [("0.jpg", P[0]), ("0.png", P[1]), ("0.txt", b"both")]
    assert [(row[0], row[3]) for row in outcome(write_tar(tmp_path / "a.tar", members))] == [
        ("0.jpg", {"caption": "both"}),
        ("0.png", {"caption": "both"}),
    ]


def test_a_repeated_name_is_an_input_each_time(tmp_path: Path) -> None:
    members = [("a.jpg", P[0]), ("a.txt", b"one"), ("b.jpg", P[1]), ("a.jpg", P[2]), ("a.txt", b"two"), ("a.jpg", P[3])]
    assert outcome(write_tar(tmp_path / "a.tar", members)) == [
        ("a.jpg", P[0], None, {"caption": "one"}),
        ("b.jpg", P[1], None, {}),
        ("a.jpg#2", P[2], None, {"caption": "two"}),
        ("a.jpg#3", P[3], None, {"caption": "two"}),
    ]


def test_the_same_name_in_several_tars(tmp_path: Path) -> None:
    for number in range(3):
        write_tar(tmp_path / f"{number}.tar", [("a.jpg", P[number])])
    locators = listed(open_source(WebDatasetConfig(path=str(tmp_path))))
    assert [(item.uri, item.member) for item in locators] == [
        ("0.tar", "a.jpg"),
        ("1.tar", "a.jpg"),
        ("2.tar", "a.jpg"),
    ]
    assert len({item.id for item in locators}) == 3


def test_links_and_devices_are_unsafe(tmp_path: Path) -> None:
    members = [
        ("a.jpg", P[0]),
        ("sym.jpg", link("/etc/passwd")),
        ("hard.jpg", link("a.jpg", tarfile.LNKTYPE)),
        ("dev.jpg", device()),
        ("sym.txt", link("a.jpg")),
    ]
    tar = write_tar(tmp_path / "a.tar", members)
    unsafe = Reason.UNSAFE_MEMBER
    assert plain(tar) == [
        ("a.jpg", P[0], None),
        ("sym.jpg", None, unsafe),
        ("hard.jpg", None, unsafe),
        ("dev.jpg", None, unsafe),
    ]
    details = [item.problem_detail for item in listed(open_source(WebDatasetConfig(path=str(tar))))]
    assert details[1:3] == ["a symbolic link to '/etc/passwd'", "a hard link to 'a.jpg'"]


def test_litter_and_names_without_extension_are_no_inputs(tmp_path: Path) -> None:
    members = [
        ("._a.jpg", b"x"),
        ("__MACOSX/a.jpg", b"x"),
        ("d/__MACOSX/b.jpg", b"x"),
        ("README", b"x"),
        ("a.npy", b"x"),
        ("a.jpg", P[0]),
    ]
    assert plain(write_tar(tmp_path / "a.tar", members)) == [("a.jpg", P[0], None)]


def test_names_that_climb_are_only_names(tmp_path: Path) -> None:
    write_tar(tmp_path / "in" / "a.tar", [("../../etc/a.jpg", P[0]), ("/b.jpg", P[1]), ("./c.jpg", P[2])])
    before = sorted(tmp_path.rglob("*"))
    assert plain(tmp_path / "in") == [("../../etc/a.jpg", P[0], None), ("/b.jpg", P[1], None), ("./c.jpg", P[2], None)]
    assert sorted(tmp_path.rglob("*")) == before


def test_empty_key_and_empty_member(tmp_path: Path) -> None:
    assert plain(write_tar(tmp_path / "a.tar", [(".jpg", P[0]), ("e.png", b"")])) == [
        (".jpg", P[0], None),
        ("e.png", None, Reason.EMPTY),
    ]


def test_names_that_are_not_utf8_are_escaped_and_storable(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9\\.jpg")
    tar = write_tar(tmp_path / "a.tar", [(name, P[0])], fmt=tarfile.GNU_FORMAT)
    assert plain(tar) == [("caf\\xe9\\\\.jpg", P[0], None)]
    import pyarrow as pa

    (locator,) = listed(open_source(WebDatasetConfig(path=str(tar))))
    pa.Table.from_pylist([{name: getattr(locator, name) for name in LOCATOR_SCHEMA.names}], LOCATOR_SCHEMA)


@pytest.mark.parametrize(
    ("name", "data", "word"),
    [
        ("zero.tar", b"", "zero bytes"),
        ("page.tar", b"<!DOCTYPE html><html>" + b"not found " * 300, "not a tar"),
        ("tiny.tar", b"<html>", "not a tar"),
        ("a.tar.gz", gzip.compress(tar_bytes([("a.jpg", P[0])])), "decompress"),
        ("b.tgz", gzip.compress(tar_bytes([("a.jpg", P[0])])), "decompress"),
        ("c.tar", gzip.compress(tar_bytes([("a.jpg", P[0])])), "decompress"),
        ("d.tar", b"PK\x03\x04" + bytes(1000), "zip"),
    ],
)
def test_what_is_no_tar_is_one_row(tmp_path: Path, name: str, data: bytes, word: str) -> None:
    (tmp_path / name).write_bytes(data)
    (locator,) = listed(open_source(WebDatasetConfig(path=str(tmp_path))))
    assert (locator.uri, locator.member, locator.problem) == (name, "", Reason.BAD_CONTAINER)
    assert word in (locator.problem_detail or "")
    assert plain(tmp_path) == [("", None, Reason.BAD_CONTAINER)]


def test_a_truncated_tar_gives_its_complete_members(tmp_path: Path) -> None:
    data = tar_bytes([(f"{number}.jpg", P[number]) for number in range(4)])
    (tmp_path / "a.tar").write_bytes(data[: 512 * 7 + 100])
    assert plain(tmp_path) == [
        ("0.jpg", P[0], None),
        ("1.jpg", P[1], None),
        ("2.jpg", P[2], None),
        ("", None, Reason.TRUNCATED_CONTAINER),
    ]


@pytest.mark.parametrize("members", [[], [("a.txt", b"only text")], [("d/x.npy", b"123"), ("d/x.json", b"{}")]])
def test_a_tar_without_images_has_no_inputs(tmp_path: Path, members: list[tuple[str, bytes]]) -> None:
    assert plain(write_tar(tmp_path / "a.tar", members)) == []


def test_a_tar_that_a_range_names_and_is_absent_is_missing(tmp_path: Path) -> None:
    write_tar(tmp_path / "s-00.tar", [("a.jpg", P[0])])
    rows = outcome(str(tmp_path / "s-{00..01}.tar"))
    assert [row[:3] for row in rows] == [("a.jpg", P[0], None), ("", None, Reason.MISSING)]


def test_members_that_nothing_uses_are_counted(tmp_path: Path) -> None:
    members = [("a.jpg", P[0]), ("a.json", b"{}"), ("lost.json", b"{}"), ("d/a.npy", b"x"), ("README", b"x")]
    write_tar(tmp_path / "a.tar", [*members, ("._a.jpg", b"x")])
    write_tar(tmp_path / "b.tar", [("b.jpg", P[0])])
    source = open_source(WebDatasetConfig(path=str(tmp_path)))
    found = []
    for unit in source.units():
        assert len(list(source.list_unit(unit))) == 1
        found.append(source.ignored_in_unit())
    assert dict(found[0].counts) == {".json": 1, ".npy": 1, "(other)": 1}
    assert found[0].examples == ["a.tar: d/a.npy", "a.tar: README", "a.tar: lost.json"]
    assert dict(found[1].counts) == {}


# Hostile tars.


def test_sidecars_are_held_up_to_a_bound_and_read_again_beyond_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members: list[tuple[str, bytes | tarfile.TarInfo]] = []
    for number in range(60):
        members.append((f"{number:02d}.jpg", P[0]))
        members.append((f"{number:02d}.json", json.dumps({"n": number, "pad": "x" * 900_000}).encode()))
    tar = write_tar(tmp_path / "a.tar", members)
    del members
    monkeypatch.setattr(tar_contents, "MAX_HELD_BYTES", 2 << 20)
    source = open_source(WebDatasetConfig(path=str(tar)))
    (unit,) = source.units()
    tracemalloc.start()
    numbers = [json.loads(locator.metadata or "{}")["n"] for locator in source.list_unit(unit)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert numbers == list(range(60))
    assert peak < 16 << 20, "54 MB of sidecars are not held"


def test_a_tar_with_too_many_members_is_damage_with_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tar = write_tar(tmp_path / "a.tar", [(f"{number}.jpg", P[0]) for number in range(10)])
    monkeypatch.setattr(webdataset, "MAX_INDEX_BYTES", 1000)
    rows = outcome(tar)
    assert [row[0] for row in rows] == ["0.jpg", "1.jpg", "2.jpg", "3.jpg", ""]
    assert rows[-1][2] is Reason.BAD_CONTAINER


@pytest.mark.parametrize("error", [RecursionError("deep"), MemoryError(), ValueError("odd"), OverflowError("big")])
def test_whatever_a_tar_raises_is_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    tar = write_tar(tmp_path / "a.tar", [("a.jpg", P[0]), ("b.json", b"{}")])

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(tar_contents.TarContents, "add_sidecar", fails)
    assert plain(tar) == [("a.jpg", P[0], None), ("", None, Reason.BAD_CONTAINER)]


def test_chained_headers_cost_one_tar_its_rest(tmp_path: Path) -> None:
    long = tarfile.TarInfo("././@LongLink")
    long.type, long.size = tarfile.GNUTYPE_LONGNAME, 100
    chain = (long.tobuf(tarfile.GNU_FORMAT) + b"n" * 100 + bytes(412)) * 1200
    (tmp_path / "a.tar").write_bytes(tar_bytes([("a.jpg", P[0])], end=False) + chain + tar_bytes([("b.jpg", P[1])]))
    write_tar(tmp_path / "b.tar", [("a.jpg", P[2])])
    assert plain(tmp_path) == [
        ("a.jpg", P[0], None),
        ("", None, Reason.BAD_CONTAINER),
        ("a.jpg", P[2], None),
    ]


def test_content_decides_where_the_extension_says_nothing(tmp_path: Path) -> None:
    names = ["photo.jpg?w=300", "photo.jpg_large", "photo.jpg.1", "noext"]
    members: list[tuple[str, bytes | tarfile.TarInfo]] = [(name, P[k]) for k, name in enumerate(names)]
    members += [("data.npy", b"\x93NUMPY"), ("photo.json", b'{"k": 1}'), ("link.1", link("a.jpg")), ("e.bin", b"")]
    tar = write_tar(tmp_path / "a.tar", members)
    assert plain(tar) == []
    source = open_source(WebDatasetConfig(path=str(tar), sniff=True))
    found = [(item.member, json.loads(item.metadata or "{}")) for item in listed(source)]
    assert found == [*((name, {"k": 1}) for name in names[:3]), ("noext", {})]


# Reading.


def test_the_cap_is_checked_without_reading(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", [("a.jpg", P[0]), ("b.jpg", b"small")])
    source = open_source(WebDatasetConfig(path=str(tar), max_bytes=100))
    payloads = list(source.read(listed(source)))
    assert [(item.data, item.reason) for item in payloads] == [(None, Reason.TOO_MANY_BYTES), (b"small", None)]


def test_a_tar_that_shrinks_or_goes_after_listing(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", [("a.jpg", P[0]), ("b.jpg", P[1])])
    source = open_source(WebDatasetConfig(path=str(tar)))
    locators = listed(source)
    tar.write_bytes(tar.read_bytes()[:1000])
    assert [item.reason for item in source.read(locators)] == [None, Reason.READ_ERROR]
    tar.unlink()
    assert [item.reason for item in source.read(locators)] == [Reason.MISSING, Reason.MISSING]


def test_the_source_pickles(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", [("a.jpg", P[0])])
    source = open_source(WebDatasetConfig(path=str(tar)))
    units = source.units()
    other = pickle.loads(pickle.dumps(source))
    assert [item.data for item in other.read(list(other.list_unit(units[0])))] == [P[0]]


def many_tars() -> dict[str, bytes]:
    rng = random.Random(4)
    tars = {}
    for number in range(3):
        members: list[tuple[str, bytes | tarfile.TarInfo]] = []
        for index in range(30):
            size = rng.choice([0, 1, 511, 512, 513, 5000, 400_000])
            members.append((f"{index:03d}.jpg", picture(100 * number + index, size) if size else b""))
            if index % 3 == 0:
                members.append((f"{index:03d}.json", json.dumps({"n": index}).encode()))
            if index == 10:
                members.append(("link.jpg", link("x")))
        tars[f"s-{number:03d}.tar"] = tar_bytes(members)
    tars["s-003.tar"] = tars["s-000.tar"][:100_000]
    tars["s-004.tar"] = b"<html>"
    return tars


TARS = many_tars()


@pytest.fixture(scope="module")
def moto_url() -> Iterator[tuple[str, dict[str, object]]]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    options: dict[str, object] = {
        "key": "testing",
        "secret": "testing",
        "client_kwargs": {"endpoint_url": f"http://{host}:{port}"},
    }
    fs = fsspec.filesystem("s3", **options)
    fs.mkdir("pool")
    for name, data in TARS.items():
        fs.pipe_file(f"pool/laion/{name}", data)
    yield "s3://pool/laion", options
    server.stop()


@pytest.fixture(scope="module", params=["local", "memory", "s3"])
def big(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Source, list[Locator], list[bytes | None]]:
    options: dict[str, object] = {}
    if request.param == "local":
        folder = tmp_path_factory.mktemp("big")
        for name, data in TARS.items():
            (folder / name).write_bytes(data)
        path = str(folder)
    elif request.param == "memory":
        for name, data in TARS.items():
            fsspec.filesystem("memory").pipe_file(f"/big/{name}", data)
        path = "memory://big"
    else:
        path, options = request.getfixturevalue("moto_url")
    source = open_source(WebDatasetConfig(path=path, storage_options=options))
    locators = listed(source)
    expected: list[bytes | None] = [
        None if item.problem or not item.size else TARS[item.uri][item.offset : (item.offset or 0) + item.size]
        for item in locators
    ]
    return source, locators, expected


def test_every_file_system_lists_the_same(
    big: tuple[Source, list[Locator], list[bytes | None]], tmp_path: Path
) -> None:
    for name, data in TARS.items():
        (tmp_path / name).write_bytes(data)
    assert big[1] == listed(open_source(WebDatasetConfig(path=str(tmp_path))))
    assert sum(item.problem is None for item in big[1]) > 90
    assert {item.problem for item in big[1]} == {
        None,
        Reason.UNSAFE_MEMBER,
        Reason.TRUNCATED_CONTAINER,
        Reason.BAD_CONTAINER,
    }


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_input_is_read_back_once_in_order(
    big: tuple[Source, list[Locator], list[bytes | None]], data: st.DataObject
) -> None:
    source, locators, expected = big
    cuts = sorted(data.draw(st.sets(st.integers(1, len(locators) - 1), max_size=8)))
    got = []
    for start, stop in zip([0, *cuts], [*cuts, len(locators)], strict=True):
        got += [payload.data for payload in source.read(locators[start:stop])]
    assert got == expected


def test_any_order_works(big: tuple[Source, list[Locator], list[bytes | None]]) -> None:
    source, locators, expected = big
    order = list(range(len(locators)))
    random.Random(1).shuffle(order)
    got = [payload.data for payload in source.read([locators[index] for index in order])]
    assert got == [expected[index] for index in order]


def test_wrong_credentials_or_bucket_is_a_source_error(moto_url: tuple[str, dict[str, object]]) -> None:
    with pytest.raises(SourceError, match=r"does not exist|cannot be listed"):
        open_source(WebDatasetConfig(path="s3://no-such-bucket/x", storage_options=moto_url[1])).units()


def test_units_ignore_other_files(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("a.jpg", P[0])])
    (tmp_path / "a_stats.json").write_bytes(b"{}")
    source = open_source(WebDatasetConfig(path=str(tmp_path)))
    assert [unit.name for unit in source.units()] == ["a.tar"]
    assert source.ignored() == {".json": 1}
