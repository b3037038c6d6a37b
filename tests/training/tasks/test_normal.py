"""The normals task from pictures to unit vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from training.data.labelled import Picture
from training.models import create
from training.tasks import frames, warp
from training.tasks.dense_losses import total_loss
from training.tasks.normal import Normal, NormalConfig


def sphere(height: int, width: int) -> Picture:
    """Normals of a sphere that fills most of the picture, facing the camera."""
    rows, columns = np.indices((height, width))
    x, y = (columns - (width - 1) / 2) / (width / 2.2), (rows - (height - 1) / 2) / (height / 2.2)
    mask = x**2 + y**2 < 1
    z = -np.sqrt(np.where(mask, 1 - x**2 - y**2, 1.0))
    normals = np.where(mask[..., None], np.stack([x, y, z], -1), 0).astype(np.float32)
    return Picture(
        np.zeros((height, width, 3), np.uint8), mask, np.where(mask, 0, -1).astype(np.int16), normals=normals, id="ball"
    )


def test_targets_mask_what_is_unknown_and_renormalise() -> None:
    picture = sphere(8, 8)
    assert picture.normals is not None
    picture.normals[4, 4] *= 2
    picture.normals[4, 3] = np.nan
    picture.normals[3, 3] = 0
    targets = Normal().targets(picture)
    mask = targets["mask"][0].numpy()
    expected = picture.mask.copy()
    expected[4, 3] = expected[3, 3] = False
    assert (mask == expected).all()
    assert bool((targets["normals"][:, ~targets["mask"][0]] == -1000).all())
    lengths = targets["normals"].square().sum(0).sqrt()[targets["mask"][0]]
    torch.testing.assert_close(lengths, torch.ones_like(lengths))
    with pytest.raises(ValueError, match="no normals"):
        Normal().targets(Picture(picture.image, picture.mask, picture.person))


def test_rejects_by_the_mask() -> None:
    assert Normal().rejection(sphere(20, 20)) is None
    assert "min_pixels" in str(Normal().rejection(sphere(4, 4)))


def test_released_and_paper_terms() -> None:
    targets = {name: value[None] for name, value in Normal().targets(sphere(8, 8)).items()}
    output = torch.zeros(1, 3, 8, 8)
    output[:, 2] = -1
    released = Normal().loss(output, targets)
    assert set(released) == {"loss_cosine", "loss_l1", "loss_gradient"}
    paper = Normal(NormalConfig.paper(l2_weight=3.0)).loss(output, targets)
    assert set(paper) == {"loss_cosine", "loss_l2", "loss_gradient"}
    assert float(paper["loss_cosine"]) == pytest.approx(float(released["loss_cosine"]) / 10)
    once = Normal(NormalConfig.paper()).loss(output, targets)
    assert float(paper["loss_l2"]) == pytest.approx(3 * float(once["loss_l2"]), rel=1e-6)
    perfect = Normal().loss(targets["normals"], targets)
    assert float(total_loss(perfect)) == pytest.approx(0, abs=1e-4)


def test_smaller_predictions_are_resized_to_the_target() -> None:
    targets = {name: value[None] for name, value in Normal().targets(sphere(16, 12)).items()}
    column = torch.linspace(-1, 1, 6).expand(1, 3, 8, 6).contiguous()
    enlarged = torch.nn.functional.interpolate(column, (16, 12), mode="bilinear", align_corners=False)
    small, large = (Normal().loss(output, targets) for output in (column, enlarged))
    assert all(float(small[name]) == pytest.approx(float(large[name])) for name in large)


def test_unflip_is_an_involution_and_undoes_a_mirrored_frame() -> None:
    picture = sphere(9, 6)
    picture.normals[:, :3] = 0  # type: ignore[index]
    task = Normal()
    mirrored = warp.move(picture, frames.mirror((9, 6)))
    straight, seen = (task.targets(p)["normals"] for p in (picture, mirrored))
    known = (straight != -1000).all(0)
    assert bool((task.unflip(seen)[:, known] == straight[:, known]).all())
    assert bool((task.unflip(task.unflip(straight)) == straight).all())


@pytest.mark.parametrize(
    "frame",
    [
        frames.letterbox((60, 90), (64, 48)),
        frames.letterbox((60, 90), (64, 48)).mirrored(),
        frames.crop_around((20, 10, 70, 50), (64, 48), (60, 90), rotation=25),
    ],
)
def test_decode_gives_unit_vectors_in_the_pictures_camera(frame: frames.Frame) -> None:
    picture = sphere(60, 90)
    seen = warp.move(picture, frame)
    assert seen.normals is not None
    output = torch.from_numpy(3 * seen.normals).permute(2, 0, 1)  # length does not matter
    found = Normal().decode(output, frame)
    assert found.shape == (60, 90, 3)
    assert found.dtype == np.float32
    rows, columns = np.indices((60, 90))
    # In the middle, where neither the sphere nor the frame ends.
    middle = np.hypot((columns - 44.5) / 41, (rows - 29.5) / 27) < 0.7
    inner = middle & frame.contains(frame.points(np.stack([columns, rows], -1)))
    assert inner.sum() > 500
    assert (found[inner] * picture.normals[inner]).sum(-1).min() > 0.99  # type: ignore[index]
    np.testing.assert_allclose(np.linalg.norm(found[inner], axis=-1), 1, atol=1e-5)


def test_the_release_does_not_renormalise() -> None:
    output = torch.zeros(3, 2, 2)
    output[0, :, 0] = 1
    output[1, :, 1] = 1
    frame = frames.stretch((4, 4), (2, 2))
    shortest = [
        np.linalg.norm(Normal(NormalConfig(renormalise=on)).decode(output, frame), axis=-1).min()
        for on in (True, False)
    ]
    assert shortest[0] == pytest.approx(1)
    assert shortest[1] < 0.8


def test_the_tiny_model_learns_from_it_under_autocast() -> None:
    model = create("tiny_normal")
    picture = sphere(256, 192)
    targets = {name: value[None] for name, value in Normal().targets(picture).items()}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(torch.zeros(1, 3, 256, 192))
        losses = Normal().loss(output, targets)
    assert {value.dtype for value in losses.values()} == {torch.float32}
    total_loss(losses).backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.decode_head.parameters())
