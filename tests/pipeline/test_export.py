"""The corpus on disk: what a run exported is read unchanged by the tools that people use."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from curation.features import read_features, stated_fingerprints
from curation.manifest import read_index, read_manifest, verify_shards
from pipeline.config import parse_config
from pipeline.curate import curate
from pipeline.progress import RunProgress
from pipeline.shard_task import SourceChangedError, read_rows
from pipeline.storage import Storage
from tests.fixtures import pool

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT = 60


def run(data: dict[str, Any]) -> None:
    curate(parse_config(data), RunProgress(Console(quiet=True), quiet=True))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    pool.write_folder(folder / "pool", COUNT)
    (folder / "pool/00/00000.json").write_text(
        json.dumps({"caption": "a dot. and <b>markup</b>", "licence": "CC BY 4.0", "author": "someone"})
    )
    run(pool.config(folder / "pool", folder / "run"))
    return folder / "run"


@pytest.fixture(scope="module")
def originals(exported: Path) -> dict[str, bytes]:
    """Key -> original bytes of the kept rows."""
    table = pa.concat_tables([pq.read_table(path) for path in sorted((exported / "ledger").glob("*.parquet"))])
    return {
        row["id"]: (exported.parent / "pool" / row["uri"]).read_bytes()
        for row in table.to_pylist()
        if row["verdict"] == "kept"
    }


def tars(run: Path) -> list[str]:
    return [str(path) for path in sorted((run / "shards").glob("*.tar"))]


def test_webdataset_reads_the_original_bytes(exported: Path, originals: dict[str, bytes]) -> None:
    import webdataset

    samples = list(webdataset.WebDataset(tars(exported), shardshuffle=False))
    assert {s["__key__"]: s.get("jpg", s.get("png")) for s in samples} == originals
    assert all(json.loads(sample["json"])["id"] == sample["__key__"] for sample in samples)


@pytest.mark.parametrize("streaming", [True, False])
def test_hugging_face_reads_pictures_and_sidecars(
    exported: Path, originals: dict[str, bytes], streaming: bool, tmp_path: Path
) -> None:
    import datasets

    jpegs = [path for path in tars(exported) if path not in _of_extension(exported, "png")]
    dataset = datasets.load_dataset(
        "webdataset", data_files={"train": jpegs}, split="train", streaming=streaming, cache_dir=str(tmp_path)
    )
    rows = list(dataset)
    assert {row["__key__"] for row in rows} == {key for key, data in originals.items() if data[:2] == b"\xff\xd8"}
    assert all(row["jpg"].size == (160, 128) for row in rows)
    assert all(row["json"]["id"] == row["__key__"] for row in rows)


def test_hugging_face_reads_the_folder_by_its_card(exported: Path, originals: dict[str, bytes], tmp_path: Path) -> None:
    import datasets

    dataset = datasets.load_dataset(str(exported / "shards"), split="train", cache_dir=str(tmp_path))
    assert {row["__key__"] for row in dataset} == set(originals)


def test_ray_reads_the_original_bytes(exported: Path, originals: dict[str, bytes]) -> None:
    import ray

    rows = ray.data.read_webdataset(tars(exported), decoder=None).take_all()
    assert {row["__key__"]: row.get("jpg") or row.get("png") for row in rows} == originals


def _of_extension(run: Path, extension: str) -> list[str]:
    shards = read_manifest(run / "shards")["shards"]
    return [str(run / "shards" / shard["tar"]) for shard in shards if extension in shard["extensions"]]


def test_manifest_index_and_limits_agree(exported: Path, originals: dict[str, bytes]) -> None:
    assert verify_shards(exported / "shards") == []
    manifest = read_manifest(exported / "shards")
    assert manifest["samples"] == len(originals) == len(read_index(exported / "shards"))
    assert all(shard["samples"] <= 12 for shard in manifest["shards"])
    assert all(len(shard["extensions"]) == 1 for shard in manifest["shards"])
    for shard in manifest["shards"]:
        assert hashlib.sha256((exported / "shards" / shard["tar"]).read_bytes()).hexdigest() == shard["sha256"]
    lineage = json.loads((exported / "lineage.json").read_text())
    assert manifest["config_hash"] == lineage["configuration_hash"]
    assert "code_version" not in manifest
    assert lineage["code_version"] not in (exported / "shards/README.md").read_text()
    assert manifest["source_fingerprint"] == lineage["source"]["fingerprint"]
    assert lineage["manifest_sha256"] == hashlib.sha256((exported / "shards/manifest.json").read_bytes()).hexdigest()


def test_features_beside_each_shard_are_those_of_the_ledger(exported: Path) -> None:
    ledger = {
        row["id"]: row
        for path in sorted((exported / "ledger").glob("*.parquet"))
        for row in pq.read_table(path).to_pylist()
    }
    manifest = read_manifest(exported / "shards")
    lineage = json.loads((exported / "lineage.json").read_text())
    assert manifest["feature_fingerprints"] == {"screen": lineage["scorers"]["screen"]["fingerprint"]}
    for shard in manifest["shards"]:
        path = exported / "shards" / shard["features"]
        table = read_features(str(path))
        assert stated_fingerprints(table.schema) == manifest["feature_fingerprints"]
        assert path.stat().st_size == shard["features_bytes"]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == shard["features_sha256"]
        assert table.column("id").to_pylist() == _index_of(exported, shard).column("id").to_pylist()
        for row in table.to_pylist():
            for name in ("sha256", "phash", "phash_mirrored", "phash_degenerate"):
                assert row[name] == ledger[row["id"]][name]
                assert row[name] is not None
    # The whole folder is one table, as a reference may name it.
    assert len(read_features(str(exported / "shards/features"))) == manifest["samples"]


def _index_of(run: Path, shard: dict[str, Any]) -> pa.Table:
    return pq.read_table(run / "shards" / shard["index"])


@pytest.mark.parametrize("rows", [[], [0], [3, 4, 9], [0, 4, 5, 9], list(range(10))])
def test_rows_of_a_ledger_part_are_read_group_by_group(tmp_path: Path, rows: list[int]) -> None:
    storage = Storage(tmp_path)
    vectors = pa.array([np.full(3, row, np.float16) for row in range(10)], pa.list_(pa.float16()))
    table = pa.table({"id": [str(row) for row in range(10)], "embedding": vectors, "other": range(10)})
    storage.write_table("part.parquet", table, row_group_size=4)
    found = list(read_rows(storage, "part.parquet", rows, ["id", "embedding", "phash"]))
    assert [row["id"] for part in found for row in part.to_pylist()] == [str(row) for row in rows]
    assert all(part.column_names == ["id", "embedding"] for part in found)
    assert [row["embedding"] for part in found for row in part.to_pylist()] == [[row] * 3 for row in rows]


def test_sidecar_carries_the_metadata_and_the_chosen_scores(exported: Path) -> None:
    table = read_index(exported / "shards").to_pylist()
    sidecars = []
    for entry in table:
        data = (exported / "shards" / f"{entry['shard']}.tar").read_bytes()
        sidecars.append(json.loads(data[entry["json_offset"] : entry["json_offset"] + entry["json_size"]]))
    assert all(set(sidecar["scores"]) == {"width", "height"} for sidecar in sidecars)
    described = [sidecar for sidecar in sidecars if sidecar["metadata"]]
    # The copy of the described picture may be the one that survived.
    assert len(described) <= 1
    if described:
        assert described[0]["metadata"]["caption"] == "a dot. and <b>markup</b>"


def test_card_tells_the_funnel_and_escapes_what_came_from_data(exported: Path) -> None:
    card = (exported / "shards/DATASET_CARD.md").read_text()
    assert card == (exported / "shards/README.md").read_text()
    assert "near\\_duplicate" in card
    assert "<b>" not in card


def test_export_settings_rewrite_shards_without_measuring(exported: Path, tmp_path: Path) -> None:
    import shutil

    run_folder = tmp_path / "run"
    shutil.copytree(exported, run_folder)
    shutil.copytree(exported.parent / "pool", tmp_path / "pool")
    before = pool.folder_bytes(run_folder / "ledger")
    (run_folder / "run.json").write_bytes(
        (run_folder / "run.json").read_bytes().replace(str(exported.parent).encode(), str(tmp_path).encode())
    )
    (run_folder / "shards/features/shard-000000.parquet").unlink()
    run(pool.config(tmp_path / "pool", run_folder, export={"shard_samples": 5, "features": False}))
    assert pool.folder_bytes(run_folder / "ledger")["part-00000.parquet"] == before["part-00000.parquet"]
    manifest = read_manifest(run_folder / "shards")
    assert max(shard["samples"] for shard in manifest["shards"]) == 5
    assert not (run_folder / "shards/features").exists()
    assert not any("features" in shard for shard in manifest["shards"])
    assert "feature_fingerprints" not in manifest
    assert verify_shards(run_folder / "shards") == []


def test_another_version_of_the_code_or_another_title_writes_no_shard_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.write_folder(tmp_path / "pool", 20)
    data = pool.config(tmp_path / "pool", tmp_path / "run")
    run(data)
    before = pool.results(tmp_path / "run")
    inodes = {path: path.stat().st_ino for path in (tmp_path / "run/shards").rglob("*") if path.is_file()}
    monkeypatch.setattr("pipeline.lineage.code_version", lambda *_: "0.1.0+anothercode1")
    run(data)
    after = pool.results(tmp_path / "run")
    assert {path: path.stat().st_ino for path in inodes} == inodes
    assert (after["shards"], after["ledger"]) == (before["shards"], before["ledger"])
    assert json.loads((tmp_path / "run/lineage.json").read_text())["code_version"] == "0.1.0+anothercode1"

    data["export"]["title"] = "Another title"
    run(data)
    changed = {path.name for path, inode in inodes.items() if path.stat().st_ino != inode}
    assert changed == {"README.md", "DATASET_CARD.md", "manifest.json"}
    assert "# Another title" in (tmp_path / "run/shards/README.md").read_text()
    # As a run that began with that title would have it.
    run(pool.config(tmp_path / "pool", tmp_path / "fresh", export={"shard_samples": 12, "title": "Another title"}))
    assert pool.results(tmp_path / "fresh") == pool.results(tmp_path / "run")


@pytest.mark.parametrize("damage", ["changed", "removed"])
def test_a_source_that_changed_under_the_run_stops_the_export(tmp_path: Path, damage: str) -> None:
    pool.write_folder(tmp_path / "pool", 20)
    data = pool.config(tmp_path / "pool", tmp_path / "run", policy={"low_entropy": {"min": 8.0}})
    run(data)  # keeps nothing
    victim = tmp_path / "pool/00/00001.jpg"
    if damage == "changed":
        victim.write_bytes(victim.read_bytes()[:-3] + b"\0\xff\xd9")
    else:
        victim.unlink()
        victim.mkdir()
    relaxed = pool.config(tmp_path / "pool", tmp_path / "run")
    error: type[Exception] = SourceChangedError
    if damage == "removed":
        # Found before the run begins: the listing is not the one that the run describes.
        from pipeline.rundir import RunConflictError

        error = RunConflictError
    with pytest.raises(error, match="changed"):
        run(relaxed)
    assert list((tmp_path / "run/shards").glob("*.tar")) == []
