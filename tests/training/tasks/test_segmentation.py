"""The segmentation task from pictures to labels, with the tiny model and with other class sets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from training.data.labelled import Picture
from training.models import create
from training.tasks import frames, warp
from training.tasks.dense_losses import total_loss
from training.tasks.parts import PartClasses
from training.tasks.segmentation import Segmentation, SegmentationConfig

THREE = PartClasses(names=("none", "left", "right"), flip_pairs=((1, 2),))


def picture(parts: np.ndarray | None, name: str = "p") -> Picture:
    size = (8, 6) if parts is None else parts.shape
    return Picture(
        np.zeros((*size, 3), np.uint8), np.zeros(size, np.bool_), np.full(size, -1, np.int16), parts=parts, id=name
    )


def blocks(height: int, width: int) -> np.ndarray:
    """Left third 1, middle 0, right third 2."""
    labels = np.zeros((height, width), np.uint8)
    labels[:, : width // 3] = 1
    labels[:, -(width // 3) :] = 2
    return labels


def logits(labels: np.ndarray, classes: int = 3) -> torch.Tensor:
    return 10.0 * torch.nn.functional.one_hot(torch.from_numpy(labels).long(), classes).permute(2, 0, 1).float()


def test_targets_are_the_labels_and_unknown_ids_are_named() -> None:
    task = Segmentation(SegmentationConfig(classes=THREE))
    labels = blocks(6, 6)
    labels[0] = 255
    target = task.targets(picture(labels))["labels"]
    assert target.dtype == torch.uint8
    assert (target.numpy() == labels).all()
    labels[1, 1] = 7
    with pytest.raises(ValueError, match=r"'bad'.*\[7\].*0\.\.2"):
        task.targets(picture(labels, "bad"))
    with pytest.raises(ValueError, match="has no parts"):
        task.targets(picture(None))


@pytest.mark.parametrize(("pixels", "fill", "rejected"), [(0, 0, True), (1, 0, False), (0, 255, True)])
def test_frames_with_less_than_a_hundredth_of_parts_do_not_train(pixels: int, fill: int, rejected: bool) -> None:
    labels = np.full((10, 10), fill, np.uint8)
    labels.flat[:pixels] = 5
    assert (Segmentation().rejection(picture(labels)) is not None) == rejected


@pytest.mark.parametrize(
    ("shares", "accepted"),
    [({0: 75, 5: 25}, True), ({0: 76, 5: 24}, False), ({5: 76, 0: 24}, False), ({0: 30, 5: 20, 255: 50}, True),
     ({0: 50, 255: 50}, False), ({255: 100}, False)],
)  # fmt: skip
def test_windows_with_one_class_above_three_quarters_are_drawn_again(shares: dict[int, int], accepted: bool) -> None:
    labels = np.repeat(np.array(list(shares), np.uint8), list(shares.values())).reshape(10, 10)
    assert Segmentation().accepts(labels) is accepted


def test_backgrounds_need_a_background() -> None:
    classes = PartClasses(names=("left", "right"), flip_pairs=((0, 1),), background=None)
    with pytest.raises(ValidationError, match="no background, so that no pixel can be replaced"):
        SegmentationConfig(classes=classes, backgrounds="folder")


def test_loss_follows_the_configuration() -> None:
    labels = torch.from_numpy(blocks(6, 6))[None]
    output = torch.zeros(1, 3, 6, 6)
    both = Segmentation(SegmentationConfig(classes=THREE)).loss(output, {"labels": labels})
    assert set(both) == {"loss_cross_entropy", "loss_dice", "acc_seg"}
    config = SegmentationConfig(classes=THREE, dice_weight=0, cross_entropy_weight=2)
    one = Segmentation(config).loss(output, {"labels": labels})
    assert set(one) == {"loss_cross_entropy", "acc_seg"}
    assert float(one["loss_cross_entropy"]) == pytest.approx(2 * np.log(3), rel=1e-5)
    with pytest.raises(ValueError, match="29"):
        Segmentation().loss(output, {"labels": labels})


def test_smaller_logits_are_resized_and_nan_is_hidden_on_request_only() -> None:
    task = Segmentation(SegmentationConfig(classes=THREE))
    labels = torch.from_numpy(blocks(12, 12))[None]
    losses = task.loss(logits(blocks(6, 6))[None], {"labels": labels})
    assert float(losses["acc_seg"]) == 100.0
    bad = torch.full((1, 3, 6, 6), torch.nan)
    assert bool(total_loss(task.loss(bad, {"labels": labels})).isnan())
    guarded = Segmentation(SegmentationConfig(classes=THREE, guard=True))
    assert float(total_loss(guarded.loss(bad, {"labels": labels}))) == 0.0


def test_unflip_is_an_involution_and_undoes_a_mirrored_frame() -> None:
    task = Segmentation()
    rng = np.random.Generator(np.random.Philox(key=1))
    output = torch.from_numpy(rng.normal(size=(2, 29, 4, 5)))
    assert bool((task.unflip(task.unflip(output)) == output).all())
    three = Segmentation(SegmentationConfig(classes=THREE))
    labels = blocks(6, 6)
    labels[:2] = 1
    mirrored = warp.warp_labels(labels, frames.mirror((6, 6)), THREE.flip)
    assert not (mirrored == labels[:, ::-1]).all()
    assert (three.unflip(logits(mirrored)) == logits(labels)).all()


@pytest.mark.parametrize("mirrored", [False, True])
def test_decode_brings_labels_back_to_the_picture(mirrored: bool) -> None:
    task = Segmentation(SegmentationConfig(classes=THREE))
    labels = blocks(24, 48)
    frame = frames.letterbox((24, 48), (32, 32))
    frame = frame.mirrored() if mirrored else frame
    seen = warp.warp_labels(labels, frame, THREE.flip, border=0)
    found = task.decode(logits(seen)[None], frame)
    assert found.dtype == np.uint8
    assert (found == labels).mean() > 0.95  # pixels at class borders may move by one


def test_decode_leaves_what_a_crop_does_not_show_to_the_background() -> None:
    frame = frames.crop((10, 10), (2, 3, 4, 5))
    labels = Segmentation(SegmentationConfig(classes=THREE)).decode(logits(np.ones((5, 4), np.uint8)), frame)
    assert labels.sum() == 20
    assert (labels[3:8, 2:6] == 1).all()
    no_background = PartClasses(names=("a", "b", "c"), background=None)
    labels = Segmentation(SegmentationConfig(classes=no_background)).decode(logits(np.ones((5, 4), np.uint8)), frame)
    assert (labels == 255).sum() == 80


def test_the_tiny_model_learns_from_it_under_autocast() -> None:
    model = create("tiny_seg")
    labels = torch.from_numpy(blocks(256, 192))[None]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(torch.zeros(1, 3, 256, 192))
        losses = Segmentation().loss(output, {"labels": labels})
    assert output.dtype == torch.bfloat16
    assert {value.dtype for value in losses.values()} == {torch.float32}
    total_loss(losses).backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.decode_head.parameters())
    assert Segmentation().decode(output, frames.stretch((64, 80), (256, 192))).shape == (64, 80)
