"""What one check finds, without a cluster; whole runs are in `test_damage.py`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.config import ConfigError
from pipeline.storage import Storage
from pipeline.verify import Damage, _Check, _listed, _sample, discard, parquet_problem
from pipeline.verify_command import stored_config
from tests.fixtures import exports


@pytest.fixture
def run(tmp_path: Path) -> Storage:
    exports.export(tmp_path / "shards", [4, 4, 4])
    storage = Storage(tmp_path)
    for number in range(3):
        storage.write_table(f"work/scores/part-{number:08d}.parquet", pa.table({"score": [0.5, 0.25]}))
    return storage


def test_a_whole_run_has_no_damage(run: Storage) -> None:
    damages, items = _listed(run)
    assert damages == []
    assert sorted(item.name for item in items if item.kind == "shard") == [
        f"shards/shard-00000{number}.tar" for number in range(3)
    ]
    assert _Check(run)(items) == []


def test_of_a_tar_too_large_for_the_sample_one_image_is_checked(run: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.verify.SAMPLE_BYTES", 0)
    items = [item for item in _listed(run)[1] if item.kind == "shard"]
    chosen = _sample(items, run)
    assert [item.kind for item in chosen] == ["image"] * 3
    assert chosen == _sample(items[::-1], run)
    assert _Check(run)(chosen) == []
    path = Path(run.path("shards/shard-000002.tar"))
    path.write_bytes(bytes(path.stat().st_size))
    (damage,) = _Check(run)(chosen)
    assert damage.name == "shards/shard-000002.tar"
    assert "does not have the SHA-256 of the index" in damage.problem


def test_a_flipped_score_is_a_problem(run: Storage) -> None:
    name = "work/scores/part-00000001.parquet"
    assert parquet_problem(run, name) is None
    path = Path(run.path(name))
    data = bytearray(path.read_bytes())
    data[50] ^= 4
    path.write_bytes(data)
    assert parquet_problem(run, name) is not None
    (damage,) = _Check(run)(_listed(run)[1])
    assert discard(run, [damage]) == []
    assert not run.exists(name)


def test_a_checkpoint_is_left_to_training(run: Storage) -> None:
    damage = Damage("pretrain/checkpoints/step-000000006", "is damaged")
    assert discard(run, [damage]) == [damage]


@pytest.mark.parametrize("stored", [{}, {"source": {"kind": "folder", "path": "x", "storage_options": {"key": "***"}}}])
def test_a_configuration_that_is_not_all_there_is_asked_for(run: Storage, stored: dict[str, object]) -> None:
    run.write_bytes("lineage.json", json.dumps({"configuration": stored}).encode())
    run.write_bytes("run.json", json.dumps({"identity": {"source": {"path": "x"}}}).encode())
    with pytest.raises(ConfigError, match="populace curate CONFIG --verify"):
        stored_config(run)
