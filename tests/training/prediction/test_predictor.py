"""Weights in, pictures in, results out: whatever the batches, the mirror, and the people."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.prediction import Boxes, Predictor, PredictorConfig
from training.tasks.pose import Pose, PoseConfig

Image = npt.NDArray[np.uint8]
Photo = Callable[..., Image]
Weights = Callable[[str], Path]
DENSE = {"seg": "labels", "normal": "normals", "pointmap": "points", "albedo": "albedo"}


def same(task: str, one: npt.NDArray[np.generic], other: npt.NDArray[np.generic]) -> None:
    """Classes but for ties at borders; numbers to float32 rounding through a network."""
    if task == "seg":
        assert (one != other).mean() < 2e-3
    else:
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-3)


@pytest.mark.parametrize("task", DENSE)
def test_batches_of_pictures_of_any_size_give_what_each_gives_alone(task: str, weights: Weights, photo: Photo) -> None:
    predictor = Predictor.load(task, weights(task), device="cpu", config=PredictorConfig(batch_size=2))
    images = [photo(1), photo(2, 90, 200), photo(3, 300, 110)]
    together = predictor(images)
    for image, found in zip(images, together, strict=True):
        (alone,) = predictor(image)
        assert getattr(found, DENSE[task]).shape[:2] == image.shape[:2]
        same(task, getattr(found, DENSE[task]), getattr(alone, DENSE[task]))
    assert not np.array_equal(getattr(together[0], DENSE[task]), getattr(predictor(photo(9))[0], DENSE[task]))


@pytest.mark.parametrize("task", DENSE)
def test_with_the_flip_test_a_mirrored_picture_has_the_mirrored_prediction(
    task: str, weights: Weights, photo: Photo
) -> None:
    predictor = Predictor.load(task, weights(task), device="cpu", config=PredictorConfig(flip=True))
    plain = Predictor.load(task, weights(task), device="cpu")
    assert not plain.flip
    image = photo(4)
    found, mirrored = (getattr(result, DENSE[task]) for result in predictor([image, image[:, ::-1].copy()]))
    wanted = found[:, ::-1].copy()
    if task == "seg":
        wanted = np.array(predictor.task.config.classes.flip, np.uint8)[wanted]
    if task in ("normal", "pointmap"):
        wanted[..., 0] *= -1
    same(task, mirrored, wanted)
    assert np.abs(found.astype(float) - getattr(plain(image)[0], DENSE[task])).max() > 1e-3, "the flip test did nothing"


def test_a_letterbox_sees_the_whole_picture_in_its_shape_and_a_stretch_does_not(weights: Weights) -> None:
    """Of a striped picture that is twice as wide as the network's input, only a letterbox keeps the stripes' width."""
    seen: list[Tensor] = []
    image = np.zeros((96, 144, 3), np.uint8)
    image[:, 72:] = 255
    for fit in (None, "stretch"):
        predictor = Predictor.load("normal", weights("normal"), device="cpu", config=PredictorConfig(fit=fit))
        predictor.model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
        assert predictor(image)[0].normals.shape == (96, 144, 3)
    black = [(images[0, 0] < images[0, 0].mean()).float() for images in seen]
    assert [float(rows[0].std()) for rows in black] == pytest.approx([0, 0.5], abs=0.01), "padding, or picture"
    boxed = seen[0][0, 0]
    assert (boxed[128, :96] < 0).all()
    assert (boxed[128, 96:] > 0).all()
    assert int((boxed[:, 191] > 0).sum()) == 128, "192 x 128 of 192 x 256"
    predictor = Predictor.load("normal", weights("normal"), device="cpu")
    predictor.model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    predictor(np.full((99, 151, 3), 255, np.uint8))
    assert int((seen[-1][0, 0, :, 96] > 0).sum()) == 125, "99 / 151 x 192 = 125.9, truncated as released inference does"


def test_pose_in_batches_of_people_and_mirrored(weights: Weights, photo: Photo) -> None:
    predictor = Predictor.load("pose", weights("pose"), device="cpu", config=PredictorConfig(batch_size=3))
    assert predictor.flip, "released: the flip test is on for pose"
    image, other = photo(5, 120, 160), photo(6)
    boxes = np.array([[10, 5, 70, 110], [60, 20, 150, 118]], np.float32)
    first, second, nobody = predictor([image, other, image], [boxes, None, np.zeros((0, 4))])
    assert first.keypoints.shape == (2, 308, 2)
    assert second.boxes.tolist() == [[0, 0, 96, 128]], "without boxes the whole picture is one person"
    assert nobody.keypoints.shape == (0, 308, 2)
    (alone,) = predictor([image], [boxes[1:]])
    np.testing.assert_allclose(first.scores[1], alone.scores[0], atol=1e-4)
    assert (np.abs(first.keypoints[1] - alone.keypoints[0]).max(-1) < 0.05).mean() > 0.95
    flipped = np.stack([160 - boxes[:, 2], boxes[:, 1], 160 - boxes[:, 0], boxes[:, 3]], axis=1)
    (mirrored,) = predictor([image[:, ::-1].copy()], [flipped])
    wanted = first.keypoints[:, predictor.task.set.flip] * (-1, 1) + (159, 0)
    np.testing.assert_allclose(mirrored.scores, first.scores[:, predictor.task.set.flip], atol=0.02)
    assert (np.abs(mirrored.keypoints - wanted).max(-1) < 0.1).mean() > 0.95


class _Spots(nn.Module):
    """A network that sees where its picture is red, green and blue: three keypoints of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))
        self.batches: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        self.batches.append(len(images))
        mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        seen = images * std[:, None, None] + mean[:, None, None]
        return self.gain * F.interpolate(seen, scale_factor=0.25, mode="bilinear", antialias=True)


def test_keypoints_land_where_they_are_in_crowded_pictures_in_bounded_batches(tmp_path: Path) -> None:
    """Many people of many sizes: each one's spots are found, through crop, mirror average and decoding."""
    points = tmp_path / "spots.yaml"
    points.write_text("name: spots\nnames: [red, green, blue]\nsigmas: 0.05\n")
    model = _Spots()
    config = PredictorConfig(batch_size=4, flip=False)
    predictor = Predictor(model, Pose(PoseConfig(keypoints=str(points))), (256, 192), config)
    rng = np.random.Generator(np.random.Philox(key=11))
    image, boxes, wanted = np.zeros((700, 900, 3), np.uint8), [], []
    for cell in range(24):
        x0, y0 = 150 * (cell % 6), 175 * (cell // 6)
        side = float(rng.uniform(60, 110))
        boxes.append([x0 + 10, y0 + 10, x0 + 10 + side * 0.75, y0 + 10 + side])
        spots = np.array([x0 + 10, y0 + 10]) + rng.uniform(0.2, 0.8, (3, 2)) * (side * 0.75, side)
        for channel, (x, y) in enumerate(spots):
            layer = np.zeros(image.shape[:2], np.uint8)
            cv2.circle(layer, (round(x * 16), round(y * 16)), 3 * 16, 255, -1, cv2.LINE_AA, 4)
            image[..., channel] |= cv2.GaussianBlur(layer, (0, 0), 2)
        wanted.append(spots)
    (result,) = predictor([image], [Boxes(np.array(boxes), np.full(24, 0.5))])
    assert np.abs(result.keypoints - np.array(wanted)).max() < 1.0
    assert max(model.batches) <= 4
    assert sum(model.batches) == 24
    np.testing.assert_allclose(result.instance_scores, 0.5 * result.scores.mean(1), rtol=1e-5)


def test_pictures_without_people_do_not_pile_up_behind_one_with_some(weights: Weights, photo: Photo) -> None:
    predictor = Predictor.load("pose", weights("pose"), device="cpu", config=PredictorConfig(batch_size=2, flip=False))
    image, nobody, read = photo(1), np.zeros((0, 4), np.float32), []

    def pictures():  # type: ignore[no-untyped-def]
        for key in range(30):
            read.append(key)
            yield key, image, None if key == 0 else nobody

    stream = predictor.stream(pictures())
    assert next(stream)[0] == 0
    assert len(read) <= 4
    assert [key for key, _, _ in stream] == list(range(1, 30))


def test_a_detector_is_thresholded_suppressed_and_replaced_by_the_whole_picture(weights: Weights, photo: Photo) -> None:
    boxes = np.array([[10, 10, 60, 100], [11, 10, 60, 100], [50, 10, 90, 90], [0, 0, 9, 9]], np.float32)
    answer = Boxes(boxes, np.array([0.6, 0.9, 0.5, 0.2], np.float32))
    predictor = Predictor.load("pose", weights("pose"), device="cpu", detector=lambda image: answer)
    (result,) = predictor([photo(1)])
    assert result.boxes.tolist() == boxes[[1, 2]].tolist()
    empty = Predictor.load(
        "pose", weights("pose"), device="cpu", detector=lambda image: Boxes(np.zeros((0, 4)), np.zeros(0))
    )
    assert empty(photo(1))[0].boxes.tolist() == [[0, 0, 96, 128]]


def test_bfloat16_is_near_float32(weights: Weights, photo: Photo) -> None:
    exact = Predictor.load("normal", weights("normal"), device="cpu")
    half = Predictor.load("normal", weights("normal"), device="cpu", config=PredictorConfig(dtype="bfloat16"))
    assert half.dtype == torch.bfloat16
    cosine = (exact(photo(2))[0].normals * half(photo(2))[0].normals).sum(-1)
    assert 0.98 < float(np.median(cosine)) < 1.0


def test_paths_are_read_upright_and_other_things_are_refused(weights: Weights, photo: Photo, tmp_path: Path) -> None:
    predictor = Predictor.load("normal", weights("normal"), device="cpu")
    cv2.imwrite(str(tmp_path / "p.png"), photo(3)[..., ::-1])
    np.testing.assert_array_equal(predictor(tmp_path / "p.png")[0].normals, predictor([photo(3)])[0].normals)
    with pytest.raises(ValueError, match="give uint8"):
        predictor([photo(3).astype(np.float32)])
    with pytest.raises(ValueError, match="boxes for pose only"):
        predictor([photo(3)], [[[0, 0, 5, 5]]])
    with pytest.raises(ValueError, match="boxes for 2"):
        predictor([photo(3)], [None, None])
    pose = Predictor.load("pose", weights("pose"), device="cpu", config=PredictorConfig(flip=False))
    box = [[5, 5, 50, 100], [20, 20, 90, 110]]
    (single,), (listed,) = pose(photo(3), box), pose([photo(3)], [Boxes(np.array(box), np.ones(2))])
    np.testing.assert_array_equal(single.keypoints, listed.keypoints)
    with pytest.raises(ValueError, match="boxes for one picture"):
        pose([photo(3)], Boxes(np.array(box), np.ones(2)))
    with pytest.raises(ValueError, match="x0 < x1"):
        pose(photo(3), [[5, 5, 5, 9]])
    (tmp_path / "bad.png").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not_an_image"):
        predictor([tmp_path / "bad.png"])


@pytest.mark.parametrize("axes", [1, 2, 4])
def test_other_weights_of_any_tensor_are_another_model(axes: int, weights: Weights) -> None:
    predictor = Predictor.load("seg", weights("seg"))
    before = predictor.description()["weights"]
    assert before == Predictor.load("seg", weights("seg")).description()["weights"]
    parameter = next(value for value in predictor.model.parameters() if value.ndim == axes)
    with torch.no_grad():
        parameter.mul_(1.001).add_(1e-3)
    assert predictor.description()["weights"] != before
