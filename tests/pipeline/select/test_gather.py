"""The first pass: rows that pass the policy and that no reference has; the others are marked in its name."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from curation.features import as_features
from pipeline.select import ReadScores, gather
from pipeline.select.candidates import Layout
from pipeline.select.duplicates import candidates_name
from pipeline.select.gather import Gather, hash_sample
from pipeline.select.marks import read_marks
from pipeline.select.references import MatchReferences, ReferenceConfig
from tests.fixtures.selection import POLICY, STAGES, Picture, Run

FAR = 0xFFFF_0000_FFFF_0000


def task(run: Run, references: MatchReferences | None = None, extra: frozenset[str] = frozenset()) -> Gather:
    read = ReadScores(run.storage, run.plan, STAGES, POLICY)
    return Gather(run.storage.child("selection"), read, Layout(run.plan), ("pixels",), extra, references)


def references() -> MatchReferences:
    """An evaluation set of three pictures, and a block list of one."""
    bad = Picture("bad", "blocked bytes")
    first = pa.table(
        {
            "id": ["e0", "e1", "e2"],
            "phash": pa.array([0b0, None, None], pa.uint64()),
            "phash_degenerate": [False, None, None],
            "sha256": pa.array([None, Picture("", "content 4").sha256, None], pa.string()),
            "embedding": pa.array([None, None, np.array([0, 0, 1], np.float16)], pa.list_(pa.float16())),
        }
    )
    listed = ReferenceConfig(name="listed", table="b", reason="blocked", radius=None, threshold=None)
    evaluation = ReferenceConfig(name="eval", table="a", radius=2, threshold=0.9)
    second = as_features(pa.table({"id": ["b0"], "sha256": [bad.sha256]}), "b")
    return MatchReferences([(evaluation, as_features(first, "a")), (listed, second)])


def pictures() -> list[Picture]:
    up, front = (0, 1, 0), (0, 0, 1)
    return [
        Picture("0", "content 0", 0b11, vector=up),  # within two bits of e0
        Picture("1", "content 1", 0b111, vector=up),
        Picture("2", "content 2", 0b0, flat=True, vector=up),  # a flat hash says nothing
        Picture("3", "content 3", 0b0, size=9),  # does not pass
        Picture("4", "content 4", FAR, vector=up),  # the bytes of e1
        Picture("5", "content 5", FAR, vector=front),  # the embedding of e2
        Picture("6", "blocked bytes", None, vector=None),
        Picture("7", "content 7", None, vector=(0, 0, 0)),
    ]


def test_rows_that_a_reference_has_are_marked_and_left_out(tmp_path: Path) -> None:
    run = Run(tmp_path, pictures(), chunk_rows=8)
    gathered = task(run, references())(0)
    storage = run.storage.child("selection")
    table = storage.read_table(candidates_name(0))
    assert table.column("row").to_pylist() == [1, 2, 7]
    assert table.column("id").to_pylist() == [run.pictures[at].id for at in (1, 2, 7)]
    assert table.column("quality_0").to_pylist() == [10_000] * 3
    assert "embedding" not in table.column_names
    assert gathered["rows"] == 3
    assert gathered["degenerate"] == 2
    assert gathered["dropped"] == {"contamination": 3, "blocked": 1}
    assert gathered["hashes"] == [0b111]
    marks = read_marks(storage, ["hits"], 0)
    assert marks.select(["row", "reason", "duplicate_of", "reference", "distance"]).to_pylist() == [
        {"row": 0, "reason": "contamination", "duplicate_of": "e0", "reference": "eval", "distance": 2},
        {"row": 4, "reason": "contamination", "duplicate_of": "e1", "reference": "eval", "distance": 0},
        {"row": 5, "reason": "contamination", "duplicate_of": "e2", "reference": "eval", "distance": None},
        {"row": 6, "reason": "blocked", "duplicate_of": "b0", "reference": "listed", "distance": 0},
    ]
    assert marks.column("similarity").to_pylist() == [None, None, 1.0, None]


def test_without_references_every_row_that_passes_is_there(tmp_path: Path) -> None:
    run = Run(tmp_path, pictures(), chunk_rows=3)
    gathered = [task(run, extra=frozenset({"head_yaw"}))(batch) for batch in range(3)]
    storage = run.storage.child("selection")
    tables = [storage.read_table(candidates_name(batch)) for batch in range(3)]
    assert [table.column("row").to_pylist() for table in tables] == [[0, 1, 2], [4, 5], [6, 7]]
    assert [(item["rows"], item["degenerate"], item["dropped"]) for item in gathered] == [
        (3, 1, {}),
        (2, 0, {}),
        (2, 2, {}),
    ]
    assert {"sha256", "phash", "phash_degenerate", "head_yaw"} <= set(tables[0].column_names)
    assert not storage.exists("hits")


def test_nothing_passes(tmp_path: Path) -> None:
    run = Run(tmp_path, [Picture("0", "x", 5, size=3)])
    assert task(run, references())(0) == {"rows": 0, "degenerate": 0, "dropped": {}, "hashes": []}
    storage = run.storage.child("selection")
    assert len(storage.read_table(candidates_name(0))) == len(read_marks(storage, ["hits"], 0)) == 0


def test_the_sample_of_hashes_is_bounded_and_does_not_depend_on_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "SAMPLED_HASHES", 10)
    pool = [Picture(str(at), "x", None if at % 4 == 0 else 2**63 + at) for at in range(60)]
    gathered = task(Run(tmp_path / "a", pool, 60))(0)
    assert len(gathered["hashes"]) == 10
    random.Random(0).shuffle(pool)
    assert task(Run(tmp_path / "b", pool, 60))(0)["hashes"] == gathered["hashes"]
    sample = hash_sample([gathered, {"hashes": []}, gathered])
    assert sample.dtype == np.uint64
    assert sample.tolist() == gathered["hashes"] * 2
    assert hash_sample([]).tolist() == []
