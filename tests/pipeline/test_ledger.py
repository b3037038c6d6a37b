"""The ledger: one row per input, the first reason with its numbers, counts that add up, parts that can be checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.decode import DecodeConfig
from curation.policy import Limit, Policy, PolicyConfig
from curation.reasons import Reason
from curation.records import Payload
from pipeline.chunk import ChunkScorer, ChunkState
from pipeline.ledger import (
    COMPLETE,
    LEDGER,
    STAGING,
    LedgerPart,
    LedgerWriter,
    complete_record,
    funnel,
    ledger_parts,
    ledger_record,
    publish_ledger,
)
from pipeline.plan import Plan
from pipeline.scores import ScoreTable, part_name
from pipeline.select.marks import MARK_SCHEMA
from pipeline.storage import Storage
from tests.fixtures.counting import (
    BrightnessScorer,
    CaptionScorer,
    MeanScorer,
    Rows,
    locator_table,
    locators,
    stage_set,
)
from tests.fixtures.pool import encode

STAGES = stage_set(MeanScorer(bad=(locators(9)[7].id,)), BrightnessScorer())
POLICY = Policy(
    PolicyConfig(
        too_small=Limit(min=32), aspect_ratio=Limit(max=3), low_entropy=None, person_score=Limit(min=0.1, max=0.5),
        person_too_small=None,
    ),
    STAGES.names,
)  # fmt: skip
METADATA = [
    json.dumps({"caption": "a person", "licence": "CC0", "url": "http://x/0", "more": [1]}), None, '{"caption":5}',
    *[None] * 6,
]  # fmt: skip
NOTHING = MARK_SCHEMA.empty_table()


def marks(*rows: dict[str, Any]) -> pa.Table:
    """What selection says of rows."""
    return pa.Table.from_pylist(list(rows), schema=MARK_SCHEMA)


@dataclass(frozen=True)
class Marks:
    """The marks of the first part; others have none."""

    table: pa.Table

    def __call__(self, first: int, rows: int) -> pa.Table:
        return self.table if first == 0 else NOTHING


def shade(red: int, size: tuple[int, int] = (64, 48)) -> bytes:
    from PIL import Image

    return encode(Image.new("RGB", size, (red, 100, 100)), kind="PNG")


DATA: list[bytes | Payload] = [
    shade(100), shade(100, (64, 20)), shade(255), shade(0), b"<html>", Payload(None, Reason.MISSING, "gone"),
    shade(90), shade(80), shade(100),
]  # fmt: skip
REASONS = [
    None, "too_small", "person_score", "person_score", "not_an_image", "missing", None, "scorer_failed", None,
]  # fmt: skip


def scored(storage: Storage, chunks: int = 2) -> Plan:
    """Chunks of the nine rows each, measured."""
    for chunk in range(chunks):
        rows = locators(9, METADATA)
        table = ScoreTable(locator_table(rows), STAGES.columns)
        state = ChunkState.start(chunk, table, rows)
        ChunkScorer(STAGES, STAGES.names, POLICY, Rows(DATA), DecodeConfig()).run(state)
        storage.write_table(part_name(chunk), table.to_table({"fingerprints": STAGES.fingerprints}))
    counts = np.full(chunks, 9)
    return Plan(storage, counts, counts, counts, "x", {})


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path)


def write(storage: Storage, table: pa.Table = NOTHING) -> tuple[pa.Table, LedgerPart]:
    plan = scored(storage)
    part = LedgerWriter(storage, plan, STAGES, POLICY, Marks(table))(0)
    return storage.read_table(f"{STAGING}/{part.name}"), part


def test_every_input_has_a_row_with_the_first_reason_and_its_numbers(storage: Storage) -> None:
    table, part = write(storage)
    assert part.rows == len(table) == 18
    assert table.column("reason").to_pylist() == REASONS * 2
    assert table.column("verdict").to_pylist() == ["kept" if why is None else "dropped" for why in REASONS] * 2
    one = table.slice(0, 9)
    assert one.column("stage").to_pylist() == [
        None, "header", "person", "person", "header", "read", None, "person", None,
    ]  # fmt: skip
    assert one.column("column").to_pylist() == [
        None, "short_side", "person_score", "person_score", None, None, None, None, None,
    ]  # fmt: skip
    assert one.column("score").to_pylist() == [None, 20, 1, 0, None, None, None, None, None]
    assert one.column("threshold").to_pylist() == [None, 32, 0.5, 0.1, None, None, None, None, None]
    details = one.column("detail").to_pylist()
    assert [bool(text) for text in details] == [False] * 4 + [True, True, False, True, False]
    assert details[5] == "gone"
    assert "cannot score" in details[7]
    assert part.kept == 6
    assert part.reasons == {
        "too_small": 2, "person_score": 4, "not_an_image": 2, "missing": 2, "scorer_failed": 2,
    }  # fmt: skip
    assert part.kept + sum(part.reasons.values()) == part.rows


def test_scores_are_carried_and_rows_can_be_found_again(storage: Storage) -> None:
    table, _ = write(storage)
    assert table.column("person_score").to_pylist()[:3] == [np.float32(100 / 255), None, 1.0]
    assert table.column("sha256").to_pylist()[0] == hashlib.sha256(shade(100)).hexdigest()
    assert table.column("bytes").to_pylist()[4] == 6
    assert table.column("chunk").to_pylist() == [0] * 9 + [1] * 9
    assert table.column("chunk_row").to_pylist() == [*range(9)] * 2
    assert table.column("id").to_pylist() == [row.id for row in locators(9)] * 2
    hidden = [name for name in table.column_names if name.startswith(("scored_", "problem"))]
    assert hidden == []
    assert len(set(table.column_names)) == len(table.column_names)


def test_captions_licences_and_urls_become_columns(storage: Storage) -> None:
    table, _ = write(storage)
    assert table.column("caption").to_pylist()[:4] == ["a person", None, "5", None]
    assert table.column("licence").to_pylist()[:2] == ["CC0", None]
    assert table.column("url").to_pylist()[:2] == ["http://x/0", None]
    assert table.column("metadata").to_pylist()[:2] == METADATA[:2]


def test_a_scorer_that_gives_a_promoted_column_has_the_say(tmp_path: Path) -> None:
    class Licences(CaptionScorer):
        columns: ClassVar[Mapping[str, pa.DataType]] = {**CaptionScorer.columns, "licence": pa.string()}

        def measure(self, batch: Any) -> Any:
            return {**super().measure(batch), "licence": ["normalised"] * len(batch)}

    stages, storage, rows = stage_set(Licences()), Storage(tmp_path), locators(1, METADATA[:1])
    policy = Policy(PolicyConfig(too_small=None, low_entropy=None), stages.names)
    table = ScoreTable(locator_table(rows), stages.columns)
    state = ChunkState.start(0, table, rows)
    ChunkScorer(stages, stages.names, policy, Rows(DATA[:1]), DecodeConfig()).run(state)
    storage.write_table(part_name(0), table.to_table({"fingerprints": stages.fingerprints}))
    counts = np.array([1])
    part = LedgerWriter(storage, Plan(storage, counts, counts, counts, "x", {}), stages, policy, Marks(NOTHING))(0)
    ledger = storage.read_table(f"{STAGING}/{part.name}")
    assert ledger.column("licence").to_pylist() == ["normalised"]
    assert ledger.column("caption").to_pylist() == ["a person"]


def test_what_selection_removed_is_written_with_its_keeper(storage: Storage) -> None:
    ids = [row.id for row in locators(9)]
    table, part = write(
        storage,
        marks(
            {"row": 0, "cluster": 7, "stratum": "all"},
            {"row": 6, "reason": "near_duplicate", "duplicate_of": ids[0], "distance": 3},
            {"row": 6, "cluster": 7, "stratum": "all"},
            {"row": 8, "reason": "exact_duplicate", "duplicate_of": ids[0], "distance": 0},
            {"row": 15, "reason": "contamination", "duplicate_of": "r1", "similarity": 0.75, "reference": "coco"},
        ),
    )
    assert table.column("reason").to_pylist()[6] == "near_duplicate"
    assert table.column("stage").to_pylist()[6:9] == ["select", "person", "select"]
    assert table.column("duplicate_of").to_pylist() == [
        *[None] * 6, ids[0], None, ids[0], *[None] * 6, "r1", None, None,
    ]  # fmt: skip
    assert table.column("distance").to_pylist()[6:9] == [3, None, 0]
    assert table.column("similarity").to_pylist()[15] == 0.75
    assert table.column("reference").to_pylist()[15] == "coco"
    assert table.column("cluster").to_pylist()[:8] == [7, *[None] * 5, 7, None]
    assert table.column("verdict").to_pylist()[0] == "kept"
    assert table.column("distance").to_pylist()[15] is None
    assert table.column("detail").to_pylist()[6] is None
    assert part.kept == 3
    assert (part.reasons["near_duplicate"], part.reasons["contamination"]) == (1, 1)
    with pytest.raises(AssertionError, match="only drop rows that passed"):
        write(storage, marks({"row": 1, "reason": "near_duplicate"}))


def test_the_same_rows_give_the_same_bytes_and_the_stated_hash(storage: Storage) -> None:
    _, part = write(storage)
    first = storage.read_bytes(f"{STAGING}/{part.name}")
    assert part.sha256 == hashlib.sha256(first).hexdigest()
    _, again = write(storage)
    assert again == part
    assert storage.read_bytes(f"{STAGING}/{part.name}") == first


def finish(storage: Storage, table: pa.Table = NOTHING, decision: str = "d") -> dict[str, Any]:
    _, part = write(storage, table)
    record = complete_record([part], decision)
    publish_ledger(storage, record)
    return record


def test_publishing_replaces_the_old_ledger_whole(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError, match="no finished ledger"):
        funnel(storage)
    assert ledger_record(storage) is None
    write(storage)
    with pytest.raises(FileNotFoundError):  # staged is not published
        funnel(storage)
    finish(storage)
    storage.write_bytes(f"{LEDGER}/part-00099.parquet", b"of an older plan")
    finish(storage, marks({"row": 6, "reason": "near_duplicate", "duplicate_of": "x", "distance": 1}))
    assert ledger_parts(storage) == [f"{LEDGER}/part-00000.parquet"]
    assert not storage.exists(STAGING)
    assert storage.names() == ["ledger", "work"]
    record = ledger_record(storage)
    assert record is not None
    assert record["dropped"]["near_duplicate"] == 1
    assert sorted(storage.names(LEDGER)) == [COMPLETE, "part-00000.parquet"]


def test_killed_while_publishing_there_is_no_half_ledger(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    finish(storage)
    replace, calls = os.replace, []

    def dying(source: str, target: str) -> None:
        # The rename of the staged folder; those of files inside it come first.
        if str(source).endswith(STAGING):
            calls.append(target)
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr("pipeline.storage.os.replace", dying)
    with pytest.raises(KeyboardInterrupt):
        finish(storage)
    assert calls
    with pytest.raises(FileNotFoundError):
        funnel(storage)
    monkeypatch.undo()
    finish(storage)
    assert funnel(storage)["inputs"] == 18
    assert not [name for name in os.listdir(storage.root) if name.startswith(".")]


def test_the_record_says_what_the_parts_hold(storage: Storage) -> None:
    record = finish(storage)
    assert record["rows"] == 18
    assert record["rows"] == record["kept"] + sum(record["dropped"].values())
    assert json.loads(storage.read_bytes(f"{LEDGER}/{COMPLETE}")) == record
    for part in record["parts"]:
        assert part["sha256"] == hashlib.sha256(storage.read_bytes(f"{LEDGER}/{part['name']}")).hexdigest()
    other = complete_record([LedgerPart("p", 1, 1, 9, "x", {})], "d")
    assert other["sha256"] != record["sha256"]
    assert complete_record([], "d")["rows"] == 0


def test_the_funnel_is_in_the_order_of_the_reasons_and_adds_up(storage: Storage) -> None:
    finish(storage)
    counts = funnel(storage)
    assert counts == {
        "inputs": 18, "kept": 6,
        "dropped": {"missing": 2, "not_an_image": 2, "too_small": 2, "person_score": 4, "scorer_failed": 2},
    }  # fmt: skip
    assert list(counts["dropped"]) == ["missing", "not_an_image", "too_small", "person_score", "scorer_failed"]
    assert json.loads(json.dumps(counts)) == counts
    assert all(type(value) is int for value in [counts["inputs"], counts["kept"], *counts["dropped"].values()])


@given(
    st.lists(
        st.dictionaries(st.sampled_from([reason.value for reason in Reason]), st.integers(1, 50), max_size=5),
        max_size=5,
    ),
    st.integers(0, 100),
)  # fmt: skip
@settings(deadline=None)
def test_counts_of_parts_add_up(parts: list[dict[str, int]], kept: int) -> None:
    made = [
        LedgerPart(f"part-{number}", kept + sum(reasons.values()), kept, number, str(number), reasons)
        for number, reasons in enumerate(parts)
    ]
    record = complete_record(made, "d")
    assert record["rows"] == sum(part.rows for part in made)
    assert record["kept"] == kept * len(parts)
    for reason in Reason:
        assert record["dropped"].get(reason.value, 0) == sum(part.get(reason.value, 0) for part in parts)


def test_an_empty_run_has_an_empty_ledger(storage: Storage) -> None:
    publish_ledger(storage, complete_record([], "d"))
    assert funnel(storage) == {"inputs": 0, "kept": 0, "dropped": {}}
