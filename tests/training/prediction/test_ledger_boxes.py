"""People that curation found come back as boxes: from the ledger of a run, else from the samples' own JSON."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.export import SHARDS
from tests.fixtures.exports import export
from tests.fixtures.ledgers import write_ledger
from training.prediction import Inputs
from training.prediction import ledger_boxes as module
from training.prediction.ledger_boxes import LedgerBoxes, shards_of

TWO = [4.0, 2.0, 30.0, 40.0, 0.5, 1.0, 1.0, 9.0, 9.5, 0.25]


def test_the_ledger_of_a_run(tmp_path: Path) -> None:
    assert module.SHARDS == SHARDS
    run = tmp_path / "run"
    ids = export(run / "shards", [2, 1])
    write_ledger(run, ids[::-1], [None, [], TWO])  # a ledger has its own order
    for given in (run, run / "shards"):
        boxes = LedgerBoxes(given)
        found = boxes("k0.jpg")
        assert found is not None
        assert found.boxes.tolist() == [[4, 2, 30, 40], [1, 1, 9, 9.5]]
        assert found.scores.tolist() == [0.5, 0.25]
        nobody = boxes("k1.jpg")
        assert nobody is not None
        assert len(nobody) == 0
        assert boxes("k2.jpg") is None, "curation did not look"
        assert boxes("other.jpg") is None
        assert boxes.detections
        assert str(run) in boxes.origin
    assert [picture.name for picture in Inputs(run)] == ["k0", "k1", "k2"], "a run stands for its shards"
    assert shards_of(run / "shards") == shards_of(run) == run / "shards"
    assert shards_of(tmp_path) == tmp_path


def test_a_hostile_key_is_passed_over(tmp_path: Path) -> None:
    export(tmp_path / "shards", [2])
    path = tmp_path / "shards/index/shard-000000.parquet"
    table = pq.read_table(path)
    keys = pa.array(["../../k0", "k1"])
    pq.write_table(table.set_column(table.column_names.index("key"), table.schema.field("key"), keys), path)
    inputs = Inputs(tmp_path / "shards")
    assert [picture.name for picture in inputs] == ["k1"]
    assert inputs.bad.first[0].detail == "this name leads out of the folder of the outputs"


def test_shards_alone_have_what_was_put_into_their_json(tmp_path: Path) -> None:
    sidecars = {
        0: {"scores": {"person_boxes": TWO, "person_box": TWO[:4]}},
        1: {"scores": {"person_box": TWO[:4], "person_count": 2}},
        2: {"scores": {"person_box": None, "person_count": 0}},
        3: {"scores": {"person_box": None, "person_count": None}},
    }
    export(tmp_path / "shards", [3, 2], sidecars=sidecars)
    boxes = LedgerBoxes(tmp_path / "shards")
    people = [boxes(f"k{number}.jpg") for number in range(5)]
    assert [None if found is None else len(found) for found in people] == [2, 1, 0, None, None]
    assert people[1] is not None
    assert people[1].scores.tolist() == [1.0]
    (tmp_path / "shards/shard-000000.tar").write_bytes(b"")
    with pytest.raises(ValueError, match="the JSON of sample k0 is not readable"):
        boxes("k0.jpg")
    again = LedgerBoxes(tmp_path / "shards")  # its first samples cannot be read, and are told when they are reached
    assert again("k3.jpg") is None


def test_what_has_no_boxes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no exported shards"):
        LedgerBoxes(tmp_path)
    ids = export(tmp_path / "run/shards", [1])
    with pytest.raises(ValueError, match="no boxes of people in its samples' JSON"):
        LedgerBoxes(tmp_path / "run")
    write_ledger(tmp_path / "run", ids, [None], column="person_count")
    with pytest.raises(ValueError, match="curate with a person scorer"):
        LedgerBoxes(tmp_path / "run")
