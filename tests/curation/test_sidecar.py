import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from curation.shards import Sample, write_shard
from curation.sidecar import MAX_KEYS, merged_types, metadata_types, type_of, typed

Rows = list[dict[str, Any]]


def written(rows: Rows) -> Rows:
    types = metadata_types(rows)
    return [typed(row, types) for row in rows]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], [1, 2]),
        ([1, 0.5], [1.0, 0.5]),
        ([1, "x"], ["1", "x"]),
        ([2**62, str(2**64)], [str(2**62), str(2**64)]),
        ([True, 1], ["true", "1"]),
        (["x", "y"], ["x", "y"]),
        ([[1], [0.5, 2]], [[1.0], [0.5, 2.0]]),
        ([[1], ["a"]], ["[1]", '["a"]']),
        ([[1], []], ["[1]", "[]"]),
        ([[], []], [[], []]),
        ([[1, "é"], [2]], ['[1,"é"]', "[2]"]),
        ([{"a": 1}, {"a": 0.5}], [{"a": 1.0}, {"a": 0.5}]),
        ([{"a": 1}, {"b": 1}], ['{"a":1}', '{"b":1}']),
        ([{"a": None}, {"a": 1}], ['{"a":null}', '{"a":1}']),
        ([[{"a": 1}], [{"a": 2}, {"a": 3}]], [[{"a": 1}], [{"a": 2}, {"a": 3}]]),
        ([5, {"a": 1}], ["5", '{"a":1}']),
    ],
)
def test_one_key_has_one_type(values: list[Any], expected: list[Any]) -> None:
    assert [row["k"] for row in written([{"k": value, "other": 1} for value in values])] == expected
    assert [row["k"] for row in written([{"k": value} for value in reversed(values)])] == expected[::-1]


def test_rows_without_the_key_do_not_matter() -> None:
    assert written([{}, {"a": 1}, {"b": "x"}]) == [{}, {"a": 1}, {"b": "x"}]


def test_ids_as_keys_are_text_and_take_no_memory() -> None:
    rows: Rows = [{f"id{n}": n} for n in range(MAX_KEYS + 1)]
    assert metadata_types(rows) is None
    assert merged_types([metadata_types(rows[:10]), None]) is None
    assert written(rows)[7] == {"id7": "7"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(st.sampled_from("xyz"), json_values), max_size=6), st.integers(0, 6))
def test_parts_in_any_order_give_the_same_types(rows: Rows, cut: int) -> None:
    whole = metadata_types(rows)
    assert merged_types([metadata_types(rows[cut:]), metadata_types(rows[:cut])]) == whole
    out = [typed(row, whole) for row in rows]
    again = metadata_types(out)
    assert all(typed(row, again) == row for row in out)
    for key in "xyz":
        kinds = [type_of(row[key]) for row in out if key in row]
        assert all(kind == kinds[0] for kind in kinds)


HOSTILE: Rows = [
    {"n": 1, "big": 1, "score": 1, "box": [1, 2], "tags": [], "who": {"a": 1}, "mix": [1]},
    {"n": "x", "big": 2, "score": 0.5, "box": [0.5, 2], "tags": ["t"], "who": {"b": "y"}, "mix": ["a", 1]},
    *[{"n": 3, "big": 3, "score": 2, "box": [1, 2], "tags": []} for _ in range(6)],
    {"n": {"a": 1}, "big": str(2**64), "score": 0.25, "box": [1, 0.5], "tags": ["t", "u"], "who": {"a": [1]}},
]


@pytest.mark.parametrize("streaming", [False, True])
def test_hugging_face_loads_metadata_whose_types_differ(tmp_path: Path, streaming: bool) -> None:
    from datasets import load_dataset

    rows = written(HOSTILE)
    image = io.BytesIO()
    Image.new("RGB", (8, 8)).save(image, "PNG")
    pixel = image.getvalue()
    samples = (Sample(str(n), f"k{n}", "png", pixel, {"metadata": row}) for n, row in enumerate(rows))
    with open(tmp_path / "a.tar", "wb") as file:
        write_shard(file, samples, "a")
    loaded = load_dataset(
        "webdataset",
        data_files={"train": [str(tmp_path / "a.tar")]},
        split="train",
        streaming=streaming,
        cache_dir=str(tmp_path / "cache"),
    )
    found = [{key: value for key, value in row["json"]["metadata"].items() if value is not None} for row in loaded]
    assert found == rows
    assert [row["big"] for row in found][-2:] == ["3", str(2**64)]
    assert json.loads(found[-1]["who"]) == {"a": [1]}
