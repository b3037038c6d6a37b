"""Pictures of a reference are measured as the run's own are, once, and those that cannot be read are told."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from curation.decode import DecodeConfig, read_header
from curation.features import FEATURE_SCHEMA, stated_fingerprints
from curation.scorers.screen import ScreenScorer
from curation.sources.base import SourceError
from pipeline.annotate import PoolSizes
from pipeline.progress import RunProgress
from pipeline.select import reference_features as module
from pipeline.select import references
from pipeline.select.reference_features import reference_features, reference_fingerprint, reference_stages
from pipeline.select.references import ReferenceConfig
from pipeline.storage import Storage
from tests.fixtures import pool
from tests.fixtures.counting import BrightnessScorer, MeanScorer, VectorScorer, stage_set

STAGES = stage_set(MeanScorer(), VectorScorer(), BrightnessScorer())
DECODE = DecodeConfig()


def folder(path: Path, **values: Any) -> ReferenceConfig:
    return ReferenceConfig.model_validate({"name": "eval", "source": {"kind": "folder", "path": str(path)}, **values})


def features(
    storage: Storage, config: ReferenceConfig, said: io.StringIO | None = None, stages: Any = STAGES
) -> pa.Table:
    progress = RunProgress(Console(file=said or io.StringIO(), width=200))
    return reference_features(storage, config, stages, DECODE, progress, PoolSizes(2, 0), chunk_rows=4)


@pytest.mark.usefixtures("ray_cluster")
def test_pictures_are_measured_once_and_as_the_run_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "eval").mkdir()
    # Smaller than any policy would pass: a reference has no policy.
    pictures = {f"{number}.png": pool.encode(pool.picture(number, 60, 48), kind="PNG") for number in range(6)}
    for name, data in {**pictures, "broken.jpg": b"\xff\xd8\xff\xe0 no more", "empty.jpg": b""}.items():
        (tmp_path / "eval" / name).write_bytes(data)
    storage, said = Storage(tmp_path / "run"), io.StringIO()
    config = folder(tmp_path / "eval")
    table = features(storage, config, said)
    assert table.schema.equals(FEATURE_SCHEMA)
    assert stated_fingerprints(table.schema) == {name: STAGES.fingerprints[name] for name in ("screen", "embedding")}
    assert "reference eval: 2 of 8 rows could not be read" in said.getvalue()
    screen = ScreenScorer(None, DECODE)
    for row, data in zip(table.to_pylist(), pictures.values(), strict=True):
        columns, pixels = screen.measure(data, read_header(data, DECODE))
        assert row["phash"] == columns["phash"]
        assert row["phash_mirrored"] == columns["phash_mirrored"]
        expected = (np.asarray(pixels).reshape(-1)[:8].astype(np.float16) / 255).tolist()
        assert row["embedding"] == expected

    # The second time, and in another order of the day, nothing is measured again.
    monkeypatch.setattr(module, "annotate", lambda *_: pytest.fail("measured again"))
    said = io.StringIO()
    assert features(storage, config, said).equals(table)
    assert "2 of 8 rows" in said.getvalue()
    # A killed run leaves chunks that are done, and takes up the others.
    child = storage.child(f"work/references/{reference_fingerprint(config, STAGES)}")
    assert len(child.names("work/scores")) == 2
    child.remove("work/scores/chunk-00000001.parquet")
    monkeypatch.undo()
    assert features(storage, config).equals(table)


@pytest.mark.usefixtures("ray_cluster")
def test_a_reference_without_a_usable_picture_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval/a.jpg").write_bytes(b"<html>")
    with pytest.raises(ValueError, match=r"eval has no usable row: of 1, none has any of sha256, phash,"):
        features(Storage(tmp_path / "run"), folder(tmp_path / "eval", threshold=None))
    with pytest.raises(SourceError, match="does not exist"):
        features(Storage(tmp_path / "run"), folder(tmp_path / "nothing"))


@pytest.mark.usefixtures("ray_cluster")
def test_too_many_pictures_are_refused_before_one_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool.write_folder(tmp_path / "eval", 5)
    monkeypatch.setattr(references, "MOST_ROWS", 4)
    monkeypatch.setattr(module, "annotate", lambda *_: pytest.fail("measured"))
    with pytest.raises(ValueError, match=r"reference eval has 5 rows.*at most 4"):
        features(Storage(tmp_path / "run"), folder(tmp_path / "eval"))


def test_only_what_is_compared_is_measured() -> None:
    assert reference_stages(folder(Path("x")), STAGES).names == ["read", "header", "screen", "embedding"]
    assert reference_stages(folder(Path("x"), threshold=None), STAGES).names == ["read", "header", "screen"]


def test_identity_follows_the_pictures_and_the_models(tmp_path: Path) -> None:
    pool.write_folder(tmp_path / "eval", 4)
    config = folder(tmp_path / "eval")
    one = reference_fingerprint(config, STAGES)
    assert one == reference_fingerprint(config.model_copy(update={"name": "other"}), STAGES)
    other = stage_set(VectorScorer(model="two"))
    assert one != reference_fingerprint(config, other)
    bare = config.model_copy(update={"threshold": None})
    assert reference_fingerprint(bare, STAGES) == reference_fingerprint(bare, other)
    (tmp_path / "eval/new.jpg").write_bytes(b"x")
    assert one != reference_fingerprint(config, STAGES)


def test_a_table_is_read_and_what_says_nothing_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    columns = {
        "id": ["a", "b", "c", "d"],
        "sha256": ["a" * 64, None, None, None],
        "phash": pa.array([None, 0x0F0F_3333_5555_AAAA, 1, None], pa.uint64()),
        "embedding": pa.array([None, None, None, [0.0, 1.0]], pa.list_(pa.float32())),
    }
    pq.write_table(pa.table(columns), path)
    config = ReferenceConfig(name="eval", table=str(path))
    said = io.StringIO()
    assert features(Storage(tmp_path / "run"), config, said).column("id").to_pylist() == ["a", "b", "d"]
    assert "reference eval: 1 of 4 rows could not be read or have none of sha256, phash, embedding" in said.getvalue()
    only = config.model_copy(update={"exact": False, "radius": None})
    assert features(Storage(tmp_path / "run"), only).column("id").to_pylist() == ["d"]
    before = reference_fingerprint(config, STAGES)
    assert before == reference_fingerprint(config, STAGES)
    pq.write_table(pa.table({**columns, "id": ["a", "b", "c", "e"]}), path)
    assert before != reference_fingerprint(config, STAGES)
    pq.write_table(pa.table({"phash": [1], "embedding": [[0.0, 0.0]]}), path)
    with pytest.raises(ValueError, match="no usable row: of 1"):
        features(Storage(tmp_path / "run"), config)
