import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curation.records import Locator
from curation.rights import opted_out
from curation.sources import ParquetConfig, UrlsConfig, open_source
from curation.sources.arrow_values import PROBLEM, add_problems, batch_rows, column_values
from curation.sources.base import Source

LATIN = b"caf\xe9"
YEARS = "outside the years 1 to 9999, kept as text"


def raw(kind: pa.DataType, *values: Any) -> pa.Array:
    """An array of the stored integers or bytes, whatever they mean."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        stored = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
        return pa.Array.from_buffers(kind, len(values), pa.array(values, stored[kind]).buffers())
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


@pytest.mark.parametrize(
    ("array", "expected", "problem"),
    [
        (raw(pa.string(), LATIN, b"ok"), "caf\ufffd", "not UTF-8"),
        (raw(pa.large_string(), LATIN, b"ok"), "caf\ufffd", "not UTF-8"),
        (raw(pa.string_view(), LATIN, b"ok"), "caf\ufffd", "not UTF-8"),
        (
            pa.DictionaryArray.from_arrays(pa.array([0, 1]), raw(pa.string(), LATIN, b"ok")),
            "caf\ufffd",
            "not UTF-8",
        ),
        (raw(pa.date32(), -719528, 0), "0000-01-01", YEARS),
        (raw(pa.date32(), 2932897, 0), "10000-01-01", YEARS),
        (raw(pa.date64(), 2932897 * 86400000, 0), "10000-01-01T00:00:00.000", YEARS),
        (raw(pa.timestamp("s"), 253402300800, 0), "10000-01-01T00:00:00", YEARS),
        (raw(pa.timestamp("us", "+02:00"), 253402300799 * 10**6, 0), "9999-12-31T23:59:59.000000+00:00", YEARS),
        (raw(pa.timestamp("ms", "Asia/Tokyo"), 253402300799 * 1000, 0), "9999-12-31T23:59:59.000+00:00", YEARS),
        (raw(pa.timestamp("s"), -(2**63), 0), -(2**63), YEARS),
        (raw(pa.duration("s"), 2**62, 0), 2**62, "beyond what can be held, kept as the number of s"),
        (raw(pa.time64("us"), 2**62, 0), 2**62, "beyond what can be held, kept as the number of us"),
        (
            pa.StructArray.from_arrays([pa.array([1, 1]), pa.array([2, 2])], ["a", "a"]),
            {"a": 1, "a#2": 2},
            "the field 'a' appears twice",
        ),
    ],
)
def test_a_value_that_python_cannot_hold_is_kept_as_far_as_it_can_be(
    array: pa.Array, expected: Any, problem: str
) -> None:
    values, problems = column_values(array)
    assert values[0] == expected
    assert problems[0] == problem
    if not pa.types.is_struct(array.type):
        assert problems == {0: problem}
        assert values[1] == array[1].as_py()


def test_an_unknown_zone_costs_no_value() -> None:
    values, problems = column_values(raw(pa.timestamp("s", "Mars/Olympus"), 5, 6))
    assert values == ["1970-01-01T00:00:05+00:00", "1970-01-01T00:00:06+00:00"]
    assert problems == dict.fromkeys(range(2), "the time zone 'Mars/Olympus' is not known, kept in UTC")


@pytest.mark.parametrize(
    ("wrap", "expected"),
    [
        (lambda a: pa.ListArray.from_arrays([0, 1, 2], a), ["caf\ufffd"]),
        (lambda a: pa.LargeListArray.from_arrays([0, 1, 2], a), ["caf\ufffd"]),
        (lambda a: pa.FixedSizeListArray.from_arrays(a, 1), ["caf\ufffd"]),
        (lambda a: pa.StructArray.from_arrays([a, pa.array([1, 2])], ["t", "n"]), {"t": "caf\ufffd", "n": 1}),
        (lambda a: pa.MapArray.from_arrays([0, 1, 2], a, pa.array([1, 2])), [("caf\ufffd", 1)]),
        (lambda a: pa.ExtensionArray.from_storage(pa.json_(), a), "caf\ufffd"),
        (
            lambda a: pa.ListArray.from_arrays([0, 1, 2], pa.StructArray.from_arrays([a], ["t"])),
            [{"t": "caf\ufffd"}],
        ),
    ],
)
def test_also_inside_lists_structs_maps_and_extensions(wrap: Any, expected: Any) -> None:
    array = wrap(raw(pa.string(), LATIN, b"ok"))
    values, problems = column_values(array)
    assert values[0] == expected
    assert problems == {0: "not UTF-8"}
    assert values[1] == array[1].as_py()


def test_rows_name_the_columns() -> None:
    batch = pa.RecordBatch.from_arrays(
        [raw(pa.string(), LATIN, b"ok"), raw(pa.date32(), 2932897, 0), pa.array([1, 2]), pa.array([3, 4])],
        names=["t", "d", "n", "n"],
    )
    first, second = batch_rows(batch)
    assert first == {"t": "caf\ufffd", "d": "10000-01-01", "n": 1, PROBLEM: f"t: not UTF-8; d: {YEARS}"}
    assert set(second) == {"t", "d", "n"}


def test_problems_add_up() -> None:
    row = {PROBLEM: "before"}
    add_problems(row, [("a", "x"), ("b", "y")])
    assert row == {PROBLEM: "before; a: x; b: y"}


def listed(source: Source) -> list[Locator]:
    return [locator for unit in source.units() for locator in source.list_unit(unit)]


def test_one_cell_costs_one_note(tmp_path: Path) -> None:
    count = 2500
    captions = raw(pa.string(), *(LATIN if n == 1700 else b"fine" for n in range(count)))
    taken = raw(pa.date32(), *(2932897 if n == 3 else 0 for n in range(count)))
    seen = raw(pa.timestamp("us", "Nowhere/At_All"), *range(count))
    plain = {"url": [f"http://h/{n}" for n in range(count)], "image": [b"x"] * count, "noai": [True] * count}
    pq.write_table(pa.table({**plain, "caption": captions, "taken": taken, "seen": seen}), tmp_path / "a.parquet")
    path = str(tmp_path / "a.parquet")
    for source in (open_source(ParquetConfig(path=path)), open_source(UrlsConfig(path=path))):
        rows = [json.loads(item.metadata or "") for item in listed(source)]
        assert len(rows) == count
        assert all(row["noai"] is True and row["url"] == f"http://h/{n}" for n, row in enumerate(rows))
        zone = "seen: the time zone 'Nowhere/At_All' is not known, kept in UTC"
        notes = {n: row.get("metadata_problem") for n, row in enumerate(rows)}
        assert notes.pop(1700) == f"caption: not UTF-8; {zone}"
        assert notes.pop(3) == f"taken: {YEARS}; {zone}"
        assert set(notes.values()) == {zone}
        assert rows[1700]["caption"] == "caf\ufffd"
        assert rows[3]["taken"] == "10000-01-01"
        assert rows[4]["seen"] == "1970-01-01T00:00:00.000004+00:00"


ZONES = [None, "UTC", "Europe/Berlin", "+02:00", "-23:59", "Mars/Olympus", "+99:00", ""]
LEAVES = [
    pa.string(), pa.large_string(), pa.string_view(), pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"),
    pa.time64("us"), pa.time64("ns"), *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in ZONES),
]  # fmt: skip


@st.composite
def arrays(draw: st.DrawFn) -> pa.Array:
    kind = draw(st.sampled_from(LEAVES))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        array = raw(kind, *draw(st.lists(st.binary(max_size=20), min_size=4, max_size=4)))
    else:
        half = 2 ** (kind.bit_width - 1)
        array = raw(kind, *draw(st.lists(st.integers(-half, half - 1), min_size=4, max_size=4)))
    for _ in range(draw(st.integers(0, 3))):
        shape = draw(st.sampled_from(["list", "struct", "map", "dictionary"]))
        if shape == "list":
            array = pa.ListArray.from_arrays(range(len(array) + 1), array)
        elif shape == "struct":
            array = pa.StructArray.from_arrays([array, array], ["a", draw(st.sampled_from(["a", "b"]))])
        elif shape == "map":
            array = pa.MapArray.from_arrays(range(len(array) + 1), pa.array(["k"] * len(array)), array)
        elif not pa.types.is_nested(array.type):
            array = pa.DictionaryArray.from_arrays(pa.array([3, 2, None, 0], pa.int8()), array)
    return array


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(arrays())
def test_no_value_raises(array: pa.Array) -> None:
    values, problems = column_values(array)
    assert len(values) == len(array)
    assert set(problems) <= set(range(len(array)))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(array=arrays())
def test_no_file_ends_a_listing(tmp_path: Path, array: pa.Array) -> None:
    table = pa.table({"image": [b"x"] * 4, "url": ["u"] * 4, "odd": array, "noai": [True] * 4})
    try:
        pq.write_table(table, tmp_path / "a.parquet")
    except (pa.ArrowException, ValueError):
        return  # not every type can be stored
    path = str(tmp_path / "a.parquet")
    for source in (open_source(ParquetConfig(path=path)), open_source(UrlsConfig(path=path))):
        rows = [json.loads(item.metadata or "") for item in listed(source)]
        assert [row["noai"] for row in rows] == [True] * 4


def test_a_map_has_one_form_and_its_opt_out_counts() -> None:
    kind = pa.map_(pa.string(), pa.string())
    keys = raw(pa.string(), LATIN, b"X-Robots-Tag")
    damaged = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), keys, pa.array(["a", "noai"]))
    for array in (damaged, damaged.slice(1), pa.array([[("X-Robots-Tag", "noai")]], kind)):
        values, _ = column_values(array)
        assert values[-1] == [("X-Robots-Tag", "noai")]
        assert opted_out({"headers": values[-1]})
    assert column_values(damaged)[0][0] == [("caf\ufffd", "a")]
    assert column_values(damaged)[1] == {0: "not UTF-8"}
