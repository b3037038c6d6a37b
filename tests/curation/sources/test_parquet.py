import gc
import json
import random
import warnings
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curation.reasons import Reason
from curation.records import Locator, record_id
from curation.sources import ParquetConfig, SourceError, open_source
from curation.sources.base import Source
from tests.fixtures.tars import picture


def listed(source: Source) -> list[Locator]:
    return [locator for unit in source.units() for locator in source.list_unit(unit)]


def images(count: int) -> list[bytes | None]:
    special: dict[int, bytes | None] = {3: None, 5: b""}
    return [special.get(n, picture(n, 50 + n)) for n in range(count)]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), "struct", "nested-null"])
def test_columns_of_bytes(tmp_path: Path, kind: pa.DataType | str) -> None:
    data = images(8)
    if isinstance(kind, str):
        rows = [
            {"bytes": item, "path": f"{n}.jpg"} if kind == "struct" or n != 2 else None for n, item in enumerate(data)
        ]
        column = pa.array(rows, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    else:
        column = pa.array(data, kind)
    if kind == "nested-null":
        data[2] = None
    table = pa.table({"image": column, "TEXT": [f"t{n}" for n in range(8)], "width": range(8)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    source = open_source(ParquetConfig(path=str(tmp_path)))
    locators = listed(source)
    assert [(item.uri, item.member, item.id) for item in locators] == [
        ("a.parquet", str(n), record_id("a.parquet", str(n))) for n in range(8)
    ]
    payloads = list(source.read(locators))
    assert [item.data for item in payloads] == [item or None for item in data]
    reasons = {n: item.reason for n, item in enumerate(payloads) if item.reason}
    missing = {2: Reason.MISSING} if kind == "nested-null" else {}
    assert reasons == {3: Reason.MISSING, 5: Reason.EMPTY, **missing}
    path = {"path": "1.jpg"} if isinstance(kind, str) else {}
    assert json.loads(locators[1].metadata or "") == {"caption": "t1", "width": 1, **path}


def test_metadata_columns_can_be_chosen_and_vectors_stay_out(tmp_path: Path) -> None:
    table = pa.table({"jpg": [b"x"], "a": [1], "b": [2], "mask": [b"big"], "emb": [[0.5, 0.25]], "tags": [["x", "y"]]})
    pq.write_table(table, tmp_path / "a.parquet")
    (every,) = listed(open_source(ParquetConfig(path=str(tmp_path), image_column="jpg")))
    assert json.loads(every.metadata or "") == {"a": 1, "b": 2, "tags": ["x", "y"]}
    (some,) = listed(open_source(ParquetConfig(path=str(tmp_path), image_column="jpg", metadata_columns=("b", "emb"))))
    assert json.loads(some.metadata or "") == {"b": 2, "emb": [0.5, 0.25]}
    (none,) = listed(open_source(ParquetConfig(path=str(tmp_path), image_column="jpg", metadata_columns=())))
    assert none.metadata is None


@pytest.mark.parametrize("wanted", [None, ("a",), ()])
def test_columns_that_may_say_an_opt_out_always_come_along(tmp_path: Path, wanted: tuple[str, ...] | None) -> None:
    table = pa.table({"image": [b"x"], "a": [1], "NoAI": [True], "x-robots-tag": [b"noml"], "tdm_reservation": [[1]]})
    (tmp_path / "robots=noai").mkdir()
    pq.write_table(table, tmp_path / "robots=noai" / "a.parquet")
    (row,) = listed(open_source(ParquetConfig(path=str(tmp_path), metadata_columns=wanted)))
    expected = {"NoAI": True, "x-robots-tag": "noml", "tdm_reservation": [1], "robots": "noai"}
    assert json.loads(row.metadata or "") == expected | ({} if wanted == () else {"a": 1})


@pytest.mark.parametrize("wanted", [None, ("n",)])
def test_a_name_that_is_not_utf8_costs_no_row(tmp_path: Path, wanted: tuple[str, ...] | None) -> None:
    table = pa.table(
        {
            "image": [{"bytes": b"one", "cafx": 1}, {"bytes": b"two", "cafx": 2}],
            "cafx": ["a", "b"],
            "info": [{"cafx": 1, "noai": True}, {"cafx": 2, "noai": False}],
            "n": [1, 2],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", store_schema=False)
    (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes().replace(b"cafx", b"ca\xe9x"))
    source = open_source(ParquetConfig(path=str(tmp_path), metadata_columns=wanted))
    rows = listed(source)
    name = "ca\ufffdx"
    every = [
        {name: "a", "info": {name: 1, "noai": True}, "n": 1},
        {name: "b", "info": {name: 2, "noai": False}, "n": 2},
    ]
    expected = every if wanted is None else [{"n": 1}, {"n": 2}]
    assert [json.loads(row.metadata or "") for row in rows] == expected
    assert [item.data for item in source.read(rows)] == [b"one", b"two"]


def test_a_missing_or_wrong_column_is_a_clear_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"Image": [b"x"], "imgs": [b"y"], "link": ["u"]}), tmp_path / "a.parquet")
    with pytest.raises(
        SourceError, match=r"no column 'image'.*Image, imgs, link.*mean 'Image'.*source.image_column=Image"
    ):
        open_source(ParquetConfig(path=str(tmp_path))).units()
    with pytest.raises(SourceError, match="mean 'imgs'"):
        open_source(ParquetConfig(path=str(tmp_path), image_column="img")).units()
    with pytest.raises(SourceError, match="is string; allowed are binary"):
        open_source(ParquetConfig(path=str(tmp_path), image_column="link")).units()
    with pytest.raises(SourceError, match=r"source.metadata_columns"):
        open_source(ParquetConfig(path=str(tmp_path), image_column="Image", metadata_columns=("zzz",))).units()


def test_broken_and_different_files_are_one_row_each(tmp_path: Path) -> None:
    pq.write_table(pa.table({"image": [b"good"]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"other": [b"x"]}), tmp_path / "c.parquet")
    whole = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(b"<html>")
    (tmp_path / "d.parquet").write_bytes(b"")
    (tmp_path / "e.parquet").write_bytes(whole[:-20])
    (tmp_path / "_SUCCESS").write_bytes(b"")
    source = open_source(ParquetConfig(path=str(tmp_path)))
    locators = listed(source)
    bad = Reason.BAD_CONTAINER
    assert [(item.uri[0], item.member, item.problem) for item in locators] == [
        ("a", "", bad), ("b", "0", None), ("c", "0", bad), ("d", "", bad), ("e", "", bad)
    ]  # fmt: skip
    assert [item.reason for item in source.read(locators)] == [bad, None, bad, bad, bad]
    assert "no column 'image'" in (locators[2].problem_detail or "")


def test_damaged_pages_cost_the_rest_of_their_row_group(tmp_path: Path) -> None:
    data = [picture(n, 4000) for n in range(400)]
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"image": data}),
        path,
        row_group_size=200,
        compression="zstd",
        use_dictionary=False,
        data_page_size=20_000,
    )
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    raw = bytearray(path.read_bytes())
    middle = column.data_page_offset + column.total_compressed_size // 2
    raw[middle : middle + 3000] = random.Random(0).randbytes(3000)
    path.write_bytes(raw)
    source = open_source(ParquetConfig(path=str(path)))
    payloads = list(source.read(listed(source)))
    good = [index for index, item in enumerate(payloads) if item.data == data[index]]
    bad = [index for index, item in enumerate(payloads) if item.reason is Reason.BAD_CONTAINER]
    assert sorted(good + bad) == list(range(400))
    assert bad
    assert bad[-1] == 199
    assert bad == list(range(bad[0], 200))
    assert good[-200:] == list(range(200, 400))


def test_caps_rows_that_went_and_files_that_went(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": [b"12345", b"1"]}), path)
    source = open_source(ParquetConfig(path=str(path), max_bytes=4))
    locators = listed(source)
    assert [item.reason for item in source.read(locators)] == [Reason.TOO_MANY_BYTES, None]
    again = open_source(ParquetConfig(path=str(path)))
    pq.write_table(pa.table({"image": [b"1"]}), path)
    assert [item.reason for item in again.read(locators)] == [None, Reason.MISSING]
    path.unlink()
    assert [item.reason for item in open_source(ParquetConfig(path=str(path.parent))).read(locators)] == [
        Reason.MISSING
    ] * 2


def test_a_source_that_is_let_go_closes_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": [b"1", b"2"]}), path)
    gc.collect()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        source = open_source(ParquetConfig(path=str(path)))
        assert [item.data for item in source.read(listed(source)[:1])] == [b"1"]
        del source
        gc.collect()
    assert [str(warning.message) for warning in seen] == []


@pytest.fixture(scope="module", params=["local", "memory"])
def pool(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Source, list[Locator], list[bytes | None]]:
    folder = tmp_path_factory.mktemp("parquet")
    expected: list[bytes | None] = []
    for number, (rows, group) in enumerate([(300, 130), (0, 10), (70, 1000)]):
        data = images(rows)
        pq.write_table(
            pa.table({"image": pa.array(data, pa.binary()), "n": range(rows)}),
            folder / f"{number}.parquet",
            row_group_size=group,
        )
        expected += [item or None for item in data]
    path = str(folder)
    if request.param == "memory":
        for file in folder.iterdir():
            fsspec.filesystem("memory").pipe_file(f"/parquet/{file.name}", file.read_bytes())
        path = "memory://parquet"
    source = open_source(ParquetConfig(path=path))
    return source, listed(source), expected


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_input_is_read_back_once_in_order(
    pool: tuple[Source, list[Locator], list[bytes | None]], data: st.DataObject
) -> None:
    source, locators, expected = pool
    assert len(locators) == len(expected)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(locators) - 1), max_size=6)))
    spans = list(zip([0, *cuts], [*cuts, len(locators)], strict=True))
    for start, stop in data.draw(st.permutations(spans)):
        assert [payload.data for payload in source.read(locators[start:stop])] == expected[start:stop]


def test_a_dictionary_of_images_is_read(tmp_path: Path) -> None:
    data = [b"one", b"two", b"one", None]
    column = pa.array(data, pa.binary()).dictionary_encode()
    nested = pa.StructArray.from_arrays([column, pa.array(["1.jpg"] * 4)], ["bytes", "path"])
    pq.write_table(pa.table({"image": column}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"image": nested}), tmp_path / "b.parquet")
    source = open_source(ParquetConfig(path=str(tmp_path)))
    locators = listed(source)
    assert [item.data for item in source.read(locators)] == data * 2
    assert json.loads(locators[4].metadata or "") == {"path": "1.jpg"}


def test_names_that_begin_with_the_image_column_are_other_columns(tmp_path: Path) -> None:
    table = pa.table({"image.thumb": [b"small"], "image": [b"large"], "a.b": [1], "a": [2]})
    pq.write_table(table, tmp_path / "a.parquet")
    source = open_source(ParquetConfig(path=str(tmp_path), metadata_columns=("a",)))
    locators = listed(source)
    assert [item.data for item in source.read(locators)] == [b"large"]
    assert json.loads(locators[0].metadata or "") == {"a": 2}


def test_binary_metadata_are_left_out_at_any_depth_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        table = pa.table(
            {
                "image": [b"x"],
                "mask": [{"bytes": b"y" * 20_000, "path": "m.png"}],
                "thumbs": [[b"z" * 20_000]],
                "raw": [b"r"],
                "caption": ["c"],
            }
        )
        pq.write_table(table, tmp_path / f"{name}.parquet")
    locators = listed(open_source(ParquetConfig(path=str(tmp_path))))
    assert [json.loads(item.metadata or "") for item in locators] == [{"mask": {"path": "m.png"}, "caption": "c"}] * 2
    (record,) = caplog.records
    assert record.getMessage() == (
        "a.parquet: binary values are not carried as metadata: mask.bytes, thumbs.[], raw. Columns that are named in "
        "source.metadata_columns are carried whole."
    )


def test_a_lake_of_tables_is_its_data_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def put(name: str, table: pa.Table) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, tmp_path / name)

    put("_delta_log/00000000000000000010.checkpoint.parquet", pa.table({"add": ["x"]}))
    put("_metadata", pa.table({"image": [b"x"]}))
    put("_common_metadata", pa.table({"image": [b"x"]}))
    put("_temporary/0/part.parquet", pa.table({"image": [b"x"]}))
    put(".hidden/part.parquet", pa.table({"image": [b"x"]}))
    put("dt=2024-01-01/country=C%C3%B4te/part-0.parquet", pa.table({"image": [b"one"], "n": [1]}))
    put("dt=__HIVE_DEFAULT_PARTITION__/_year=1/part-0.parquet", pa.table({"image": [b"two"], "_year": [2024]}))
    (tmp_path / "_SUCCESS").write_bytes(b"")
    (tmp_path / "_delta_log/0.json").write_bytes(b"{}")
    (tmp_path / "dt=2024-01-01/.part-0.parquet.crc").write_bytes(b"x")
    source = open_source(ParquetConfig(path=str(tmp_path)))
    locators = listed(source)
    assert [(item.uri.rpartition("/")[2], json.loads(item.metadata or "")) for item in locators] == [
        ("part-0.parquet", {"dt": "2024-01-01", "country": "Côte", "n": 1}), ("part-0.parquet", {"_year": 2024})
    ]  # fmt: skip
    assert [item.data for item in source.read(locators)] == [b"one", b"two"]
    assert source.ignored() == {"(hidden)": 2, "(underscore)": 6}
    assert "is a Delta table: every Parquet file in it is read" in caplog.text
    named = open_source(ParquetConfig(path=str(tmp_path / "dt=*/*/*.parquet"), metadata_columns=("dt", "n")))
    assert [item.metadata for item in listed(named)] == ['{"dt":"2024-01-01","n":1}', None]


def test_a_file_with_another_schema_is_named_and_its_rows_are_counted(tmp_path: Path) -> None:
    pq.write_table(pa.table({"caption": ["a"] * 3}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"image": ["a", "b"]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"image": [b"x", b"y"], "late": [1, 2]}), tmp_path / "c.parquet")
    source = open_source(ParquetConfig(path=str(tmp_path), metadata_columns=("late", "caption")))
    locators = listed(source)
    assert [(item.uri, item.member, item.problem) for item in locators] == [
        *(("a.parquet", str(n), Reason.BAD_CONTAINER) for n in range(3)),
        *(("b.parquet", str(n), Reason.BAD_CONTAINER) for n in range(2)),
        ("c.parquet", "0", None),
        ("c.parquet", "1", None),
    ]
    assert (locators[0].problem_detail or "").startswith("a.parquet has no column 'image'; its columns are caption.")
    assert (locators[3].problem_detail or "").startswith("b.parquet: column 'image' is string; allowed are binary")
    assert [item.metadata for item in locators[5:]] == ['{"late":1}', '{"late":2}']
    assert [item.data for item in source.read(locators[5:])] == [b"x", b"y"]


def test_columns_are_looked_for_in_files_spread_over_the_pool(tmp_path: Path) -> None:
    for n in range(100):
        pq.write_table(pa.table({"caption": ["a"]}), tmp_path / f"{n:03d}.parquet")
    pq.write_table(pa.table({"image": [b"x"]}), tmp_path / "100.parquet")
    assert len(open_source(ParquetConfig(path=str(tmp_path))).units()) == 101


def test_a_damaged_column_of_metadata_costs_itself_only(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    captions = [f"{n} " + random.Random(n).randbytes(200).hex() for n in range(4000)]
    table = pa.table({"image": [b"x"] * 4000, "caption": captions, "noai": [True] * 4000})
    pq.write_table(table, path, row_group_size=2000, use_dictionary=False, data_page_size=20_000, compression="zstd")
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    content = bytearray(path.read_bytes())
    middle = column.data_page_offset + column.total_compressed_size // 2
    content[middle : middle + 3000] = random.Random(0).randbytes(3000)
    path.write_bytes(content)
    rows = [json.loads(item.metadata or "") for item in listed(open_source(ParquetConfig(path=str(path))))]
    assert len(rows) == 4000
    assert all(row["noai"] is True for row in rows)
    lost = [n for n, row in enumerate(rows) if "metadata_problem" in row]
    assert lost == list(range(lost[0], 2000))
    assert rows[lost[0]]["metadata_problem"].startswith("caption: cannot be read (")
    assert all("caption" not in rows[n] for n in lost)
    assert [row["caption"] for n, row in enumerate(rows) if n not in set(lost)] == [
        *captions[: lost[0]],
        *captions[2000:],
    ]
