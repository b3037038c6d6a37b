"""Users rely on: both file kinds load, give the same persons, in the right colours, and survive out-of-memory.

The weights are random and made here by the library itself, so only the wiring is tested, not the detector.
"""

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from curation.records import Batch
from curation.scorers.base import BatchRunner, MissingWeightsError, hash_file
from curation.scorers.person_columns import COCO17, COLUMNS, DETECTED
from curation.scorers.person_yolo import YoloPersonConfig, YoloPersonScorer
from curation.scorers.yolo_onnx import Poses
from curation.scorers.yolo_weights import prepare_ultralytics

SIDE = 96
CONF = 0.2


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Checkpoint and exports of a random pose model."""
    pytest.importorskip("ultralytics")
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        prepare_ultralytics()
        import torch
        import ultralytics
        import yaml

        # As the published pose models: one class, person. The scale is read from the file's name.
        recipe = Path(ultralytics.__file__).parent / "cfg/models/11/yolo11-pose.yaml"
        (folder / "yolo11n-pose.yaml").write_text(yaml.safe_dump(yaml.safe_load(recipe.read_text()) | {"nc": 1}))
        torch.manual_seed(0)
        yolo = ultralytics.YOLO(folder / "yolo11n-pose.yaml", verbose=False)
        # Fresh layers forget the picture on the way: calibrate the batch norms on noise, and spread the answers.
        norms = [layer for layer in yolo.model.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
        momentum = norms[0].momentum
        for norm in norms:
            norm.momentum = 1.0
        with torch.no_grad():
            yolo.model.train()(torch.rand(8, 3, SIDE, SIDE))
        for norm in norms:
            norm.momentum = momentum
        head = yolo.model.eval().model[-1]
        for sides, scores in zip(head.cv2, head.cv3, strict=True):
            sides[-1].bias.data = torch.linspace(4, -4, head.reg_max).repeat(4)  # boxes smaller than the picture
            torch.nn.init.normal_(scores[-1].weight, std=0.3)
            torch.nn.init.constant_(scores[-1].bias, -1.0)
        yolo.save(folder / "pose.pt")
        yield folder


@pytest.fixture(scope="module")
def exported(models):
    pytest.importorskip("onnx", reason="exporting a test model needs the onnx package")
    from ultralytics import YOLO

    suppressing = {"nms": True, "conf": CONF, "iou": 0.7, "max_det": 20}
    for name, options in {"dynamic": {"dynamic": True}, "fixed": {"batch": 2}, "suppressing": suppressing}.items():
        file = YOLO(models / "pose.pt", task="pose").export(
            format="onnx", imgsz=SIDE, simplify=False, verbose=False, **options
        )
        (models / file.rpartition("/")[2]).rename(models / f"{name}.onnx")
    return models


def config(file, **options):
    options = {"conf": CONF, "image_size": SIDE, "device": "cpu", "max_det": 20, "batch_size": 8} | options
    if file.suffix == ".pt":
        options["sha256"] = hash_file(file).sha256
    return YoloPersonConfig(weights=str(file), **options)


def pictures(count=5, seed=0):
    """Smooth coloured noise of different sizes."""
    rng = np.random.default_rng(seed)
    found = []
    for index in range(count):
        height, width = 60 + 20 * index, 140 - 15 * index
        coarse = rng.integers(0, 256, (6, 7, 3), dtype=np.uint8)
        rows, columns = np.arange(height) * 6 // height, np.arange(width) * 7 // width
        found.append(np.ascontiguousarray(coarse[rows][:, columns]))
    return found


def batch(items, scale=3):
    sizes = {"width": [p.shape[1] * scale for p in items], "height": [p.shape[0] * scale for p in items]}
    return Batch([str(index) for index in range(len(items))], items, sizes)


def run(scorer, items):
    columns, errors = BatchRunner(scorer)(batch(items))
    assert errors == {}
    return columns


def test_checkpoint_fills_the_columns(models):
    scorer = YoloPersonScorer(config(models / "pose.pt"))
    (weights,) = scorer.check()
    assert weights == hash_file(models / "pose.pt")
    items = pictures()
    columns = run(scorer, items)
    assert list(columns) == list(COLUMNS)
    for name, kind in COLUMNS.items():
        assert len(pa.array(columns[name], type=kind)) == len(items)
    assert all(count > 0 for count in columns["person_count"])
    assert columns["person_box_source"] == [DETECTED] * 5
    assert columns["person_keypoint_layout"] == [COCO17] * 5
    for index, picture in enumerate(items):
        x1, y1, x2, y2 = columns["person_box"][index]
        assert 0 <= x1 < x2 <= picture.shape[1] * 3
        assert 0 <= y1 < y2 <= picture.shape[0] * 3
        assert columns["person_short_side"][index] == pytest.approx(min(x2 - x1, y2 - y1), abs=0.02)
        assert len(columns["person_keypoints"][index]) == 51
        assert columns["person_boxes"][index][:4] == columns["person_box"][index]
    assert max(max(box) for box in columns["person_box"]) > 140  # original pixels, three times those given


def test_a_picture_does_not_depend_on_its_batch(models):
    scorer = YoloPersonScorer(config(models / "pose.pt"))
    items = pictures()
    together = run(scorer, items)
    for index, picture in enumerate(items):
        alone = run(scorer, [picture])
        assert alone["person_count"][0] == together["person_count"][index]
        assert alone["person_box"][0] == pytest.approx(together["person_box"][index], abs=0.05)
        assert alone["person_score"][0] == pytest.approx(together["person_score"][index], abs=2e-4)


@pytest.mark.parametrize("name", ["dynamic", "fixed", "suppressing"])
def test_onnx_and_checkpoint_agree(exported, name):
    items = pictures()
    reference = YoloPersonScorer(config(exported / "pose.pt"))
    scorer = YoloPersonScorer(config(exported / f"{name}.onnx"))
    scorer.check()
    for item in (reference, scorer):
        item.setup()
    for expected, found in zip(reference.predict(items), scorer.predict(items), strict=True):
        assert len(found.scores) == len(expected.scores) > 0
        assert np.allclose(found.scores, expected.scores, atol=1e-4)
        assert np.allclose(found.boxes, expected.boxes, atol=0.1)
        assert np.allclose(found.keypoints, expected.keypoints, atol=0.1)


@pytest.mark.parametrize("name", ["pose.pt", "dynamic.onnx"])
def test_the_model_gets_rgb(exported, name):
    """The first layer is made to look at one channel only: pictures that differ elsewhere then score the same."""
    from ultralytics import YOLO

    yolo = YOLO(exported / "pose.pt", task="pose")
    first = next(parameter for parameter in yolo.model.parameters() if parameter.ndim == 4)
    first.data[:, 1:] = 0  # red only
    file = exported / "red.pt"
    yolo.save(file)
    if name.endswith(".onnx"):
        YOLO(file, task="pose").export(format="onnx", imgsz=SIDE, dynamic=True, simplify=False, verbose=False)
        file = file.with_suffix(".onnx")
    scorer = YoloPersonScorer(config(file))
    (picture,) = pictures(1)
    other_blue, other_red = picture.copy(), picture.copy()
    other_blue[:, :, 2] = 255 - other_blue[:, :, 2]
    other_red[:, :, 0] = 255 - other_red[:, :, 0]
    columns = run(scorer, [picture, other_blue, other_red])
    assert columns["person_boxes"][0] == columns["person_boxes"][1]
    assert columns["person_boxes"][0] != columns["person_boxes"][2]


class Cramped(YoloPersonScorer):
    """Has memory for two pictures."""

    sizes: list

    def predict(self, pictures):
        self.sizes.append(len(pictures))
        if len(pictures) > 2:
            raise MemoryError("CUDA out of memory")
        return super().predict(pictures)


def test_out_of_memory_halves_the_batch_and_is_remembered(models):
    items = pictures(7)
    scorer = Cramped(config(models / "pose.pt"))
    scorer.sizes = []
    runner = BatchRunner(scorer)
    columns, errors = runner(batch(items))
    assert errors == {}
    assert runner.batch_size == 1 or scorer.sizes[-1] <= 2
    before = len(scorer.sizes)
    runner(batch(items[:2]))
    assert max(scorer.sizes[before:]) <= 2
    whole = run(YoloPersonScorer(config(models / "pose.pt")), items)
    assert columns["person_count"] == whole["person_count"]
    for found, expected in zip(columns["person_box"], whole["person_box"], strict=True):
        assert found == pytest.approx(expected, abs=0.05)


def test_a_model_that_is_no_pose_model_is_refused(models):
    from ultralytics import YOLO

    file = models / "detect.pt"
    YOLO("yolo11n.yaml", verbose=False).save(file)
    scorer = YoloPersonScorer(config(file))
    scorer.check()
    with pytest.raises(ValueError, match="pose model with 17 keypoints"):
        scorer.setup()


def test_another_file_on_the_worker_is_refused(models, tmp_path):
    file = tmp_path / "pose.onnx"
    file.write_bytes(b"one")
    scorer = YoloPersonScorer(config(file))
    scorer.check()
    travelled = pickle.loads(pickle.dumps(scorer))
    file.write_bytes(b"two")
    with pytest.raises(MissingWeightsError, match="on the driver"):
        travelled.setup()


def test_nothing_is_written_beside_the_run(models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(YoloPersonScorer(config(models / "pose.pt")), pictures(2))
    assert list(tmp_path.iterdir()) == []


def test_identity_is_the_content_not_the_place(models, tmp_path):
    copy = tmp_path / "elsewhere.pt"
    copy.write_bytes((models / "pose.pt").read_bytes())
    here, there = config(models / "pose.pt"), config(copy, batch_size=3)
    assert here.identity() == there.identity()
    assert here.identity() != config(copy, conf=0.5).identity()


def test_joints_decide_framing_face_and_truncation(models):
    """From poses to persons, with made-up joints."""

    class Told(YoloPersonScorer):
        def predict(self, pictures):
            points = np.zeros((2, 17, 3), np.float32)
            points[0, :13] = (50, 40, 0.9)  # down to the hips
            points[1] = (50, 40, 0.1)
            boxes = np.array([[10, 0.1, 90, 99.9], [40, 20, 60, 60]], np.float32)
            return [Poses(boxes, np.array([0.9, 0.8], np.float32), points)]

        def setup(self):
            pass

    columns = run(Told(config(models / "pose.pt")), [np.zeros((100, 100, 3), np.uint8)])
    assert columns["person_count"] == [2]
    assert columns["face_count"] == [1]
    assert columns["person_framing"] == ["half"]
    assert columns["person_truncation"] == [2 | 8]
    assert columns["person_keypoint_visibility"] == [pytest.approx(13 / 17, abs=1e-4)]
    assert columns["person_keypoints"][0][:3] == [150, 120, pytest.approx(0.9)]
    assert columns["person_short_side"] == [240]
