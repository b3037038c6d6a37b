"""References are checked before a run, and rows that are too near to one are dropped in its name."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from curation.features import as_features, feature_schema
from pipeline.select import references
from pipeline.select.marks import MARK_SCHEMA
from pipeline.select.references import MatchReferences, ReferenceConfig, check_references
from tests.fixtures.counting import VectorScorer, stage_set

STAGES = stage_set(VectorScorer())
BARE = stage_set()
HASH = 0x0F0F_3333_5555_AAAA


def config(**values: Any) -> ReferenceConfig:
    return ReferenceConfig.model_validate({"name": "eval", "table": "t.parquet", **values})


def table(**columns: Any) -> pa.Table:
    return as_features(pa.table(columns), "t")


def rows(**columns: Any) -> pa.Table:
    """Rows of a run, numbered from 100 on."""
    found = table(**columns)
    return found.add_column(0, "row", pa.array(range(100, 100 + len(found)), pa.int64()))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"source": {"kind": "folder", "path": "x"}}, "exactly one of source .* and table"),
        ({"table": None}, "exactly one of source .* and table"),
        ({"name": "a\nb"}, "printable"),
        ({"name": " a"}, "no space at its ends"),
        ({"name": ""}, "at least 1 character"),
        ({"radius": 9}, "less than or equal to 8"),
        ({"threshold": 0}, "greater than 0"),
        ({"threshold": float("nan")}, "finite"),
        ({"reason": "boring"}, "'contamination' or 'blocked'"),
        ({"exact": False, "radius": None, "threshold": None}, "nothing is compared"),
    ],
)
def test_a_reference_that_makes_no_sense_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config(**values)


def test_credentials_are_not_shown() -> None:
    secret = config(table="s3://bucket/t.parquet", table_options={"secret": "hunter2"})
    assert "hunter2" not in secret.model_dump_json() + repr(secret)
    assert secret.table_options["secret"] == "hunter2"


def test_what_the_run_does_not_measure_is_found_before_it(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"sha256": ["a" * 64]}), path)
    check_references([config(table=path)], STAGES)
    check_references([config(table=path, threshold=None)], BARE)
    with pytest.raises(ValueError, match=r"references: eval has threshold 0.9, and no scorer gives embeddings"):
        check_references([config(table=path)], BARE)
    with pytest.raises(ValueError, match="eval is given twice"):
        check_references([config(table=path), config(table=path)], STAGES)


def test_a_table_is_looked_at_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"references: eval: the feature table .*t.parquet does not exist"):
        check_references([config(table=path)], STAGES)
    pq.write_table(pa.table({"phash": [1.5]}), path)
    with pytest.raises(ValueError, match="the column phash is double; allowed: uint64"):
        check_references([config(table=path)], STAGES)
    good = pa.table({"phash": [1, 2, 3]})
    stated = {**STAGES.fingerprints, "embedding": "another"}
    pq.write_table(good.replace_schema_metadata(feature_schema(stated).metadata), path)
    with pytest.raises(ValueError, match=r"holds embeddings of another model.*embedding scorer of this run"):
        check_references([config(table=path)], STAGES)
    check_references([config(table=path, threshold=None)], STAGES)
    monkeypatch.setattr(references, "MOST_ROWS", 2)
    with pytest.raises(ValueError, match=r"has 3 rows.*at most 2.*select.against"):
        check_references([config(table=path, threshold=None)], STAGES)


def test_each_row_names_what_it_is_near_to() -> None:
    first = table(id=["a", "b"], sha256=["a" * 64, None], phash=pa.array([None, HASH], pa.uint64()))
    second = table(id=["c"], embedding=[[1.0, 0.0]], phash=pa.array([HASH], pa.uint64()))
    match = MatchReferences(
        [
            (config(name="bytes", threshold=None, radius=2, reason="blocked"), first),
            (config(name="looks", radius=8, threshold=0.9), second),
        ]
    )
    assert match.needs_embedding
    run = rows(
        id=["r0", "r1", "r2", "r3", "r4"],
        sha256=[None, "b" * 64, "a" * 64, "c" * 64, None],
        phash=pa.array([HASH ^ 7, HASH ^ 1, 5, None, None], pa.uint64()),
        embedding=[None, None, None, [1.0, 0.1], [0.0, 1.0]],
    )
    marks = pickle.loads(pickle.dumps(match))(run)
    assert marks.schema.equals(MARK_SCHEMA)
    found = marks.select(["row", "reason", "reference", "duplicate_of", "distance"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (100, "contamination", "looks", "c", 3),
        (101, "blocked", "bytes", "b", 1),
        (102, "blocked", "bytes", "a", 0),
        (103, "contamination", "looks", "c", None),
    ]
    similarity = marks.column("similarity").to_pylist()
    assert similarity[:3] == [None] * 3
    assert similarity[3] == pytest.approx(1 / np.sqrt(1.01), abs=1e-4)


def test_groups_of_rows_change_nothing() -> None:
    rng = np.random.default_rng(0)
    reference = table(
        phash=rng.integers(0, 2**64, 300, dtype=np.uint64), embedding=list(rng.standard_normal((300, 16)))
    )
    near = reference.column("phash").to_numpy()[:200] ^ np.uint64(0b101)
    run = rows(
        phash=np.concatenate([near, rng.integers(0, 2**64, 200, dtype=np.uint64)]),
        embedding=list(rng.standard_normal((400, 16))),
    )
    order = rng.permutation(400)
    match = MatchReferences([(config(radius=3, threshold=0.6), reference)])
    whole = match(run)
    assert set(whole.column("row").to_pylist()) >= set(range(100, 300))
    assert whole.column("similarity").drop_null().length() > 5
    shuffled = run.take(pa.array(order))
    parts = pa.concat_tables([match(shuffled.slice(start, 37)) for start in range(0, 400, 37)])
    assert parts.sort_by("row").equals(whole)
    assert len(match(run.slice(0, 0))) == 0


def test_without_references_nothing_matches() -> None:
    match = MatchReferences([])
    assert not match.needs_embedding
    assert len(match(rows(sha256=["a" * 64]))) == 0


def test_embeddings_of_another_length_are_told_with_the_name() -> None:
    match = MatchReferences([(config(), table(embedding=[[1.0, 0.0, 0.0]]))])
    with pytest.raises(ValueError, match=r"reference eval: embeddings of the rows have 2 values and .* 3"):
        match(rows(embedding=[[1.0, 0.0]]))
