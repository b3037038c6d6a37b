"""A source in, a folder out: files read back equal, bad pictures are reported, running again goes on."""

from __future__ import annotations

import contextlib
import io
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image as PillowImage
from pycocotools.coco import COCO
from torch.nn import functional as F

from training.prediction import (
    BoxFile,
    InputConfig,
    OutputConfig,
    Predictor,
    PredictorConfig,
    folder_masks,
    predict_to_folder,
    predicted_masks,
    read_image,
)
from training.tasks.pose import Pose, PoseConfig

Weights = Callable[[str], Path]


def load(task: str, weights: Weights, **config: object) -> Predictor:
    return Predictor.load(task, weights(task), device="cpu", config=PredictorConfig(batch_size=2, flip=False, **config))


def test_parts_of_a_folder_with_bad_pictures_then_again(weights: Weights, folder: Path, tmp_path: Path) -> None:
    predictor, output, seen = load("seg", weights), tmp_path / "out", []
    summary = predict_to_folder(predictor, folder, output, progress=seen.append)
    assert (summary.predicted, summary.skipped, summary.bad.total) == (3, 0, 2)
    assert seen[-1] == 5
    for name in ("a", "b", "sub/c"):
        (result,) = predictor(folder / f"{name}.png")
        read = np.asarray(PillowImage.open(output / "parts" / f"{name}.png"))
        assert (read != result.labels).mean() < 2e-3
        assert read_image(output / "overlays" / f"{name}.jpg").shape == (128, 96, 3)
    record = json.loads((output / "summary.json").read_text())
    assert record["bad"] == {"not_an_image": 1, "truncated": 1}
    assert {bad["name"] for bad in record["bad_pictures"]} == {"cut", "text"}
    page = (output / "index.html").read_text()
    assert page.count("<img ") == 3
    assert "truncated" in page
    assert not list(output.rglob("*.part"))

    (output / "parts/b.png").unlink()
    stamp = (output / "parts/a.png").stat().st_mtime_ns
    again = predict_to_folder(predictor, folder, output)
    assert (again.predicted, again.skipped) == (1, 2)
    assert (output / "parts/a.png").stat().st_mtime_ns == stamp
    assert (output / "parts/b.png").is_file()
    assert (output / "index.html").read_text().count("<img ") == 3
    assert predict_to_folder(predictor, folder, output, outputs=OutputConfig(overwrite=True)).predicted == 3

    with pytest.raises(ValueError, match="results of another run"):
        predict_to_folder(load("normal", weights), folder, output)
    with pytest.raises(ValueError, match=r"another run \(max_side differ\)"):
        predict_to_folder(predictor, folder, output, inputs=InputConfig(max_side=64))
    with pytest.raises(ValueError, match="lies in the input"):
        predict_to_folder(predictor, folder, folder / "sub/out")

    # Of another model nothing stays, and what somebody else put there does.
    (output / "notes.txt").write_text("mine")
    only_a = OutputConfig(overwrite=True, gallery=0)
    predict_to_folder(load("normal", weights), folder / "a.png", output, outputs=only_a)
    left = {path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file()}
    assert left == {"normals/a.npy", "overlays/a.jpg", "run.json", "summary.json", "notes.txt"}


def test_boxes_that_are_off_the_picture_or_not_listed_are_told(weights: Weights, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "boxes.json"
    rows = [
        {"file_name": "a.png", "bbox": [1e9, 2, 1e9, 4]},
        {"file_name": "b.png", "bbox": [-1e9, -1e9, 2e9, 2e9]},
        {"file_name": "b.png", "bbox": [10, 10, 40, 60]},
    ]
    file.write_text(json.dumps(rows))
    summary = predict_to_folder(load("pose", weights), folder, tmp_path / "out", boxes=BoxFile(file))
    assert (summary.predicted, summary.people, summary.unlisted) == (3, 3, 1)  # none, two, and sub/c.png whole
    assert (summary.off_image, summary.beyond, summary.weak) == (1, 1, 0)
    written = json.loads((tmp_path / "out/summary.json").read_text())
    assert (written["unlisted"], written["off_image"], written["beyond"]) == (1, 1, 1)


def test_normals_in_both_formats_inside_of_masks(weights: Weights, folder: Path, tmp_path: Path) -> None:
    predictor = load("normal", weights)
    masks = tmp_path / "masks"
    masks.mkdir()
    mask = np.zeros((128, 96), np.uint8)
    mask[30:90, 20:60] = 255
    cv2.imwrite(str(masks / "a.png"), mask)
    (wanted,) = predictor(folder / "a.png")
    config = InputConfig(limit=1)
    masked = predict_to_folder(predictor, folder, tmp_path / "npy", inputs=config, foreground=folder_masks(masks))
    assert masked.unmasked == 0
    without = predict_to_folder(predictor, folder / "b.png", tmp_path / "b", foreground=folder_masks(masks))
    assert without.unmasked == 1
    assert json.loads((tmp_path / "b/summary.json").read_text())["unmasked"] == 1
    read = np.load(tmp_path / "npy/normals/a.npy")
    assert read.dtype == np.float32
    np.testing.assert_allclose(read, np.where(mask[..., None] > 0, wanted.normals, 0), atol=1e-6)
    outputs = OutputConfig(normals="png", overlays=False, gallery=0)
    predict_to_folder(predictor, folder / "a.png", tmp_path / "png", outputs=outputs)
    png = cv2.imread(str(tmp_path / "png/normals/a.png"), cv2.IMREAD_UNCHANGED)[..., ::-1]
    np.testing.assert_allclose(png / 32767.5 - 1, wanted.normals, atol=2e-5)
    assert sorted(item.name for item in (tmp_path / "png").iterdir()) == ["normals", "run.json", "summary.json"]


def test_a_damaged_mask_is_passed_over_as_a_damaged_picture_is(weights: Weights, folder: Path, tmp_path: Path) -> None:
    masks, output = tmp_path / "masks", tmp_path / "out"
    (masks / "sub").mkdir(parents=True)
    mask = np.full((128, 96), 255, np.uint8)
    cv2.imwrite(str(masks / "a.png"), mask[:50])
    (masks / "b.png").write_bytes(cv2.imencode(".png", mask)[1].tobytes()[:60])
    cv2.imwrite(str(masks / "sub/c.png"), mask)
    seen: list[int] = []
    summary = predict_to_folder(
        load("normal", weights), folder, output, foreground=folder_masks(masks), progress=seen.append
    )
    assert (summary.predicted, summary.unmasked) == (1, 0)
    assert summary.bad.counts == {"bad_mask": 2, "truncated": 1, "not_an_image": 1}
    assert seen[-1] == 5
    details = {bad.name: bad.detail for bad in summary.bad.first}
    assert "give one of the same shape" in details["a"]
    assert f"mask {masks / 'b.png'} cannot be read" in details["b"]
    assert [path.name for path in (output / "normals").rglob("*.npy")] == ["c.npy"]
    mask = np.full((128, 96), 255, np.uint8)
    for name in ("a", "b"):
        cv2.imwrite(str(masks / f"{name}.png"), mask)
    again = predict_to_folder(load("normal", weights), folder, output, foreground=folder_masks(masks))
    assert (again.predicted, again.skipped) == (2, 1), "mended masks are all that it takes"


def test_boxes_of_another_size_are_refused_and_ids_stay_what_they_are(
    weights: Weights, folder: Path, tmp_path: Path
) -> None:
    images = [
        {"id": "x-1", "file_name": "a.png", "width": 96, "height": 128},
        {"id": 8.0, "file_name": "b.png", "width": 128.0, "height": 96},
        {"id": 9, "file_name": "sub/c.png", "width": 48, "height": 64},
    ]
    rows = [{"image_id": image["id"], "bbox": [5, 6, 30, 40], "score": 0.9} for image in images]
    rows.append({"image_id": "x-1", "bbox": [60, 60, 30, 40], "score": 0.2})
    (tmp_path / "boxes.json").write_text(json.dumps({"images": images, "annotations": rows}))
    boxes = BoxFile(tmp_path / "boxes.json")
    summary = predict_to_folder(load("pose", weights), folder, tmp_path / "out", boxes=boxes)
    assert (summary.predicted, summary.people, summary.weak) == (1, 1, 1)
    assert summary.bad.counts["box_size"] == 2
    details = {bad.name: bad.detail for bad in summary.bad.first if bad.reason == "box_size"}
    assert details["b"] == (
        "is 96 x 128 pixels upright, its boxes were made on 128 x 96 without its EXIF orientation: give boxes of the "
        "upright image"
    )
    assert details["sub/c"].endswith(
        "made on 48 x 64: give boxes in pixels of this image, or the images that they were made on"
    )
    (entry,) = json.loads((tmp_path / "out/results.json").read_bytes())
    assert entry["image_id"] == "x-1"
    predict_to_folder(load("pose", weights), [folder / "b.png"], tmp_path / "b")
    assert json.loads((tmp_path / "b/results.json").read_bytes())[0]["image_id"] == 1
    without = [{key: image[key] for key in ("id", "file_name")} for image in images]
    (tmp_path / "boxes.json").write_text(json.dumps({"images": without, "annotations": rows}))
    summary = predict_to_folder(load("pose", weights), folder, tmp_path / "out", boxes=BoxFile(tmp_path / "boxes.json"))
    assert (summary.predicted, summary.skipped) == (2, 1)
    found = json.loads((tmp_path / "out/results.json").read_bytes())
    assert [one["image_id"] for one in found] == ["x-1", 8, 9]


def test_damaged_files_of_an_earlier_run_are_no_traceback(weights: Weights, folder: Path, tmp_path: Path) -> None:
    predictor, output = load("pose", weights), tmp_path / "out"
    predict_to_folder(predictor, folder, output)
    before = json.loads((output / "results.json").read_bytes())
    journal = (output / "results.jsonl").read_bytes().splitlines(keepends=True)
    (output / "results.jsonl").write_bytes(journal[0] + b"\x00{\n" + journal[2])
    (output / "overlays/sub/c.jpg").write_bytes(b"")
    summary = predict_to_folder(predictor, folder, output)
    assert (summary.predicted, summary.skipped) == (1, 2)
    after = json.loads((output / "results.json").read_bytes())
    assert sorted(one["file_name"] for one in after) == ["a.png", "b.png", "sub/c.png"]
    assert {one["file_name"]: one["keypoints"] for one in after} == {
        one["file_name"]: one["keypoints"] for one in before
    }
    (output / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"results of another run.*run\.json \(damaged\)"):
        predict_to_folder(predictor, folder, output)


def test_depth_and_point_cloud_of_predicted_foreground(weights: Weights, folder: Path, tmp_path: Path) -> None:
    predictor, people = load("pointmap", weights), load("seg", weights)
    image = folder / "a.png"
    predict_to_folder(predictor, image, tmp_path / "o", foreground=predicted_masks(people))
    (wanted,), (parts,) = predictor(image), people(image)
    mask = parts.labels > 0
    depth = np.load(tmp_path / "o/depth/a.npy")
    np.testing.assert_allclose(depth, np.where(mask, wanted.depth, 0), atol=1e-5)
    header = (tmp_path / "o/points/a.ply").read_bytes().split(b"end_header")[0].decode()
    assert f"element vertex {(mask & (wanted.depth > 0)).sum()}\n" in header
    assert (mask & (wanted.depth > 0)).sum() > 100
    outputs = OutputConfig(depth="png", points=False)
    predict_to_folder(predictor, image, tmp_path / "p", outputs=outputs)
    png = cv2.imread(str(tmp_path / "p/depth/a.png"), cv2.IMREAD_UNCHANGED)
    np.testing.assert_allclose(png / 1000, wanted.depth.clip(0, 65.535), atol=6e-4)
    with pytest.raises(ValueError, match="segmentation model"):
        predicted_masks(predictor)


@pytest.mark.parametrize(("task", "name"), [("normal", "normals"), ("pointmap", "depth")])
def test_exr_is_written_or_refused_before_any_work(
    task: str, name: str, weights: Weights, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    openexr = pytest.importorskip("OpenEXR")
    predictor, outputs = load(task, weights), OutputConfig(normals="exr", depth="exr", overlays=False, gallery=0)
    predict_to_folder(predictor, folder / "a.png", tmp_path / "o", outputs=outputs)
    (wanted,) = predictor(folder / "a.png")
    with openexr.File(str(tmp_path / f"o/{name}/a.exr")) as file:
        (channel,) = file.channels().values()
        np.testing.assert_allclose(channel.pixels, getattr(wanted, name), atol=1e-5)
    assert predict_to_folder(predictor, folder / "a.png", tmp_path / "o", outputs=outputs).skipped == 1
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="need the package OpenEXR"):
        predict_to_folder(predictor, folder / "b.png", tmp_path / "p", outputs=outputs)


def test_albedo_as_png(weights: Weights, folder: Path, tmp_path: Path) -> None:
    predictor = load("albedo", weights)
    predict_to_folder(predictor, [folder / "a.png"], tmp_path / "o")
    (wanted,) = predictor(folder / "a.png")
    read = cv2.imread(str(tmp_path / "o/albedo/a.png"))[..., ::-1]
    np.testing.assert_allclose(read / 255, wanted.albedo, atol=0.502 / 255)
    assert np.ptp(read) > 20
    assert read_image(tmp_path / "o/overlays/a.jpg").shape == (128, 192, 3), "side by side"


def test_pose_with_boxes_of_a_coco_file_read_by_pycocotools(weights: Weights, folder: Path, tmp_path: Path) -> None:
    predictor, output = load("pose", weights), tmp_path / "out"
    images = [{"id": 40, "file_name": "a.png"}, {"id": 41, "file_name": "b.png"}]
    rows = [
        {"image_id": 40, "bbox": [5, 6, 50, 100], "score": 0.9},
        {"image_id": 40, "bbox": [40, 0, 50, 120], "score": 0.8},
        {"image_id": 40, "bbox": [5, 6, 50, 99], "score": 0.7},
        {"image_id": 40, "bbox": [50, 60, 30, 30], "score": 0.1},
    ]
    (tmp_path / "boxes.json").write_text(json.dumps({"images": images, "annotations": rows}))
    boxes = BoxFile(tmp_path / "boxes.json")
    summary = predict_to_folder(predictor, folder, output, boxes=boxes)
    assert (summary.predicted, summary.people) == (3, 3), "two of a, none of b, the whole of c"
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(output / "images.json"))
        found = coco.loadRes(str(output / "results.json"))
    assert {image["file_name"]: image["id"] for image in coco.imgs.values()} == {
        "a.png": 40,
        "b.png": 41,
        "sub/c.png": 42,
    }
    assert len(coco.cats[1]["keypoints"]) == 308
    (wanted,) = predictor([folder / "a.png"], [boxes("a.png").selected(np.array([0, 1]))])
    people = found.loadAnns(found.getAnnIds(imgIds=[40]))
    np.testing.assert_allclose([person["score"] for person in people], wanted.instance_scores, rtol=1e-3)
    triples = np.array([person["keypoints"] for person in people]).reshape(2, 308, 3)
    np.testing.assert_allclose(triples[..., 2], wanted.scores, atol=1e-3)
    assert (np.abs(triples[..., :2] - wanted.keypoints).max(-1) < 0.05).mean() > 0.97
    entry = json.loads((output / "results.json").read_text())[0]
    assert entry["bbox"] == [5, 6, 50, 100]
    assert (entry["file_name"], entry["image_size"]) == ("a.png", [128, 96])
    with pytest.raises(ValueError, match="leave max_side out"):
        predict_to_folder(predictor, folder, output, boxes=boxes, inputs=InputConfig(max_side=64))


class _Middle(torch.nn.Module):
    """Every keypoint in the middle of its crop."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(()))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.gain * F.avg_pool2d(images[:, :1], 4).mul(0).add(self._spot).expand(-1, 17, -1, -1)

    _spot = torch.exp(-((torch.arange(64)[:, None] - 31.5) ** 2 + (torch.arange(48)[None] - 23.5) ** 2) / 8)


def test_a_crowd_takes_no_more_memory_than_its_results(tmp_path: Path) -> None:
    """240 people in one picture: their crops would be 35 MB at once."""
    image = np.full((240, 320, 3), 128, np.uint8)
    cv2.imwrite(str(tmp_path / "crowd.png"), image)
    predictor = Predictor(_Middle(), Pose(PoseConfig(keypoints="coco17")), (256, 192), PredictorConfig(flip=False))
    rows = [{"file_name": "crowd.png", "bbox": [number % 25 * 12, number // 25 * 11, 12, 16]} for number in range(240)]

    def peak(people: int) -> int:
        (tmp_path / "boxes.json").write_text(json.dumps(rows[:people]))
        boxes, output = BoxFile(tmp_path / "boxes.json"), tmp_path / f"out-{people}"
        tracemalloc.start()
        try:
            summary = predict_to_folder(
                predictor, tmp_path / "crowd.png", output, boxes=boxes, outputs=OutputConfig(overlays=False, gallery=0)
            )
            assert summary.people == people
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = peak(20), peak(240)
    assert many - few < 220 * 16 * 1024, "a crop is 144 KiB, a person's keypoints a few"
    found = json.loads((tmp_path / "out-240/results.json").read_bytes())
    assert len(found) == 240
    for entry, row in zip(found, rows, strict=True):
        x, y, width, height = row["bbox"]
        middle = np.array(entry["keypoints"]).reshape(17, 3)[:, :2]
        np.testing.assert_allclose(middle, np.tile((x + (width - 1) / 2, y + (height - 1) / 2), (17, 1)), atol=0.2)


def test_pose_goes_on_after_a_torn_line(weights: Weights, folder: Path, tmp_path: Path) -> None:
    predictor, output = load("pose", weights), tmp_path / "out"
    outputs = OutputConfig(overlays=False, gallery=0)
    predict_to_folder(predictor, folder, output, outputs=outputs)
    whole = (output / "results.json").read_bytes()
    journal = (output / "results.jsonl").read_bytes()
    (output / "results.jsonl").write_bytes(journal[: len(journal) - 50])
    (output / "results.json").unlink()
    summary = predict_to_folder(predictor, folder, output, outputs=outputs)
    assert (summary.predicted, summary.skipped) == (1, 2)
    assert predict_to_folder(predictor, folder, output, outputs=outputs).skipped == 3, "the torn line is gone"
    before, after = json.loads(whole), json.loads((output / "results.json").read_bytes())
    assert [entry["image_id"] for entry in before] == [entry["image_id"] for entry in after] == [1, 2, 3]
    assert [entry["file_name"] for entry in after] == ["a.png", "b.png", "sub/c.png"]
