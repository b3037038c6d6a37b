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


LEDGER_RECORD = {"rows": 0, "kept": 0, "dropped": {}, "sha256": "s"}


@pytest.mark.parametrize(
    ("name", "content", "damaged"),
    [
        ("lineage.json", '{"ledger": null}', "lineage.json"),
        ("lineage.json", '{"ledger": [1], "manifest_sha256": "a"}', "lineage.json"),
        ("lineage.json", json.dumps({"ledger": LEDGER_RECORD}), "lineage.json"),
        ("lineage.json", "[" * 100_000, "lineage.json"),
        ("shards/manifest.json", '{"shards": [{"tar": []}]}', "shards/manifest.json"),
        ("shards/manifest.json", '{"shards": 5}', "shards/manifest.json"),
        ("ledger/_complete.json", "[" * 100_000, "ledger/_complete.json"),
        ("ledger/_complete.json", '{"parts": 3}', "ledger/_complete.json"),
    ],
)
def test_json_of_another_shape_is_damage_that_is_named(run: Storage, name: str, content: str, damaged: str) -> None:
    run.write_bytes(name, content.encode())
    assert damaged in [damage.name for damage in _listed(run)[0]]


def test_the_records_of_a_run_with_a_ledger_have_to_be_there(run: Storage) -> None:
    run.write_bytes("ledger/_complete.json", json.dumps({**LEDGER_RECORD, "parts": []}).encode())
    found = {damage.name: damage.problem for damage in _listed(run)[0]}
    assert (found["run.json"], found["selection/summary.json"]) == ("missing", "missing")
    run.write_bytes("run.json", b"[]")
    run.write_bytes("selection/summary.json", b"{}")
    found = {damage.name: damage.problem for damage in _listed(run)[0]}
    assert (found["run.json"], found["selection/summary.json"]) == ("is not what was written",) * 2
    damage = Damage("run.json", "missing")
    assert discard(run, [damage]) == [damage]
