"""Users rely on: no stranger's pickle is ever opened; every refusal says what to do."""

import os
import pickle
import shutil
from pathlib import Path

import pytest

from curation.scorers import yolo_weights
from curation.scorers.base import MissingWeightsError, hash_file
from curation.scorers.person_yolo import YoloPersonConfig, YoloPersonScorer
from curation.scorers.yolo_weights import cache_folder, resolve


class Bomb:
    """Unpickling this makes a file."""

    def __init__(self, target):
        self.target = str(target)

    def __reduce__(self):
        return os.mkdir, (self.target,)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("YOLO_OFFLINE", "true")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def bomb(tmp_path):
    file = tmp_path / "models" / "yolo11x-pose.pt"
    file.parent.mkdir()
    file.write_bytes(pickle.dumps({"model": Bomb(tmp_path / "exploded")}))
    return file


def refused(config, error, match):
    scorer = YoloPersonScorer(YoloPersonConfig(**config))
    with pytest.raises(error, match=match):
        scorer.check()
    with pytest.raises(error, match=match):
        scorer.setup()


def test_the_bomb_works(bomb, tmp_path):
    pickle.loads(bomb.read_bytes())
    assert (tmp_path / "exploded").is_dir()


def test_an_unpinned_checkpoint_is_refused_unopened_even_under_a_published_name(bomb, tmp_path):
    refused({"weights": str(bomb)}, ValueError, f"pickle.*sha256={hash_file(bomb).sha256}")
    assert not (tmp_path / "exploded").exists()


def test_a_wrong_pin_is_refused_unopened(bomb, tmp_path):
    refused({"weights": str(bomb), "sha256": "0" * 64}, ValueError, f"has SHA-256 {hash_file(bomb).sha256}.*pins 0000")
    assert not (tmp_path / "exploded").exists()


def test_even_a_pinned_pickle_runs_no_code(bomb, tmp_path):
    """Ultralytics' restricted unpickler knows model classes only."""
    pytest.importorskip("ultralytics")
    scorer = YoloPersonScorer(YoloPersonConfig(weights=str(bomb), sha256=hash_file(bomb).sha256))
    scorer.check()
    with pytest.raises(Exception, match=r"checkpoint|unpickl|format"):
        scorer.setup()
    assert not (tmp_path / "exploded").exists()


def test_a_published_name_is_not_taken_from_the_working_directory(bomb, tmp_path):
    pytest.importorskip("ultralytics")
    shutil.copy(bomb, tmp_path / bomb.name)
    refused({"weights": bomb.name}, MissingWeightsError, rf"looked for at {cache_folder() / bomb.name}.*offline.*copy")
    assert not (tmp_path / "exploded").exists()


def test_a_published_name_is_taken_from_the_cache():
    pytest.importorskip("ultralytics")
    file = cache_folder() / "yolo11n-pose.pt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"weights")
    path, found = resolve("yolo11n-pose.pt", None)
    assert path == file
    assert (found.name, found.bytes) == ("yolo11n-pose.pt", 7)
    assert resolve("yolo11n-pose.pt", found.sha256.upper()) == (path, found)
    with pytest.raises(ValueError, match="pins"):
        resolve("yolo11n-pose.pt", "1" * 64)


@pytest.mark.parametrize("name", ["yolo11x.pt", "no-such-pose.pt"])
def test_names_that_are_no_published_pose_model(name, tmp_path):
    pytest.importorskip("ultralytics")
    (tmp_path / name).write_bytes(b"x")
    refused({"weights": name}, MissingWeightsError, "yolo11x-pose.pt")


def test_missing_files_say_where_and_how():
    refused({"weights": "models/pose.onnx"}, MissingWeightsError, r"models/pose\.onnx.*nothing is there.*Copy the file")
    refused({"weights": "models/pose.pt", "sha256": "0" * 64}, MissingWeightsError, "nothing is there")
    refused({"weights": "models/pose.pt"}, MissingWeightsError, "nothing is there")


def test_other_formats_are_refused(tmp_path):
    (tmp_path / "pose.engine").write_bytes(b"x")
    refused({"weights": "pose.engine"}, ValueError, r"\.pt or an \.onnx")


def test_onnx_needs_no_pin_and_obeys_one(tmp_path):
    file = tmp_path / "pose.onnx"
    file.write_bytes(b"graph")
    path, found = resolve("pose.onnx", None)
    assert path == Path("pose.onnx")
    assert found.sha256 == hash_file(file).sha256
    with pytest.raises(ValueError, match="pins"):
        resolve("pose.onnx", "2" * 64)


def test_a_default_pose_model_is_published():
    pytest.importorskip("ultralytics")
    yolo_weights.prepare_ultralytics()
    assert YoloPersonConfig().weights in yolo_weights.published_pose_names()


def test_ultralytics_is_quiet():
    pytest.importorskip("ultralytics")
    yolo_weights.prepare_ultralytics()
    from ultralytics.utils import SETTINGS, checks

    assert SETTINGS["sync"] is False
    assert checks.AUTOINSTALL is False
