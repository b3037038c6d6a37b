"""The pointmap task from depth and camera to metres, through frames of every kind."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from training.data.labelled import Picture, pointmap
from training.models import create
from training.tasks import frames, warp
from training.tasks.dense_losses import total_loss
from training.tasks.pointmap import Pointmap, PointmapConfig


def slope(height: int, width: int, focal: float = 80.0) -> Picture:
    """A plane that leans away, 2 to 3 m from the camera, in the middle of the picture."""
    rows, columns = np.indices((height, width))
    mask = (np.abs(columns - width / 2) < 0.4 * width) & (np.abs(rows - height / 2) < 0.4 * height)
    # 1 / z is linear in the pixel for a plane.
    depth = np.where(mask, 1 / (0.4 + 0.1 * (rows / height - 0.5) + 0.06 * (columns / width - 0.5)), 0)
    k = np.array([[focal, 0, width / 2 - 1.2], [0, focal, height / 2 + 0.7], [0, 0, 1]])
    return Picture(
        np.zeros((height, width, 3), np.uint8),
        mask,
        np.where(mask, 0, -1).astype(np.int16),
        depth=depth.astype(np.float32),
        intrinsics=k,
        id="slope",
    )


def batched(picture: Picture) -> dict[str, torch.Tensor]:
    return {name: value[None] for name, value in Pointmap().targets(picture).items()}


def test_targets_are_canonical_and_mask_what_is_unknown() -> None:
    picture = slope(20, 16)
    assert picture.depth is not None
    assert picture.intrinsics is not None
    picture.depth[10, 8], picture.depth[10, 9] = np.nan, 0.0
    targets = Pointmap().targets(picture)
    expected = picture.mask.copy()
    expected[10, 8:10] = False
    assert (targets["mask"][0].numpy() == expected).all()
    assert float(targets["scale"]) == pytest.approx(16 / 80)
    metric = pointmap(np.where(expected, picture.depth, 0).astype(np.float32), picture.intrinsics)
    found = (targets["points"] / targets["scale"]).permute(1, 2, 0).numpy()
    np.testing.assert_allclose(found, metric, rtol=1e-5, atol=1e-6)
    assert float(targets["mean_depth"]) == pytest.approx(float(targets["points"][2][targets["mask"][0]].mean()))
    for missing in ("depth", "intrinsics"):
        with pytest.raises(ValueError, match=f"no {missing}"):
            Pointmap().targets(dataclasses.replace(picture, **{missing: None}))


def test_rejects_by_the_mask_and_by_the_nearest_canonical_depth() -> None:
    picture = slope(20, 16)
    assert picture.depth is not None
    assert Pointmap().rejection(picture) is None
    near = picture.depth.copy()
    near[10, 8] = 0.19  # canonical: 0.19 * 16 / 80 = 0.038
    assert "min_canonical_depth" in str(Pointmap().rejection(dataclasses.replace(picture, depth=near)))
    assert "min_pixels" in str(Pointmap().rejection(dataclasses.replace(picture, mask=np.zeros_like(picture.mask))))


def test_a_perfect_prediction_costs_nothing_and_another_does() -> None:
    targets = batched(slope(20, 16))
    perfect = Pointmap().loss((targets["points"], targets["scale"][:, None]), targets)
    assert set(perfect) == {
        f"loss_{name}" for name in ("l1", "multiscale", "silog", "intrinsics", "shift_invariant", "normal", "scale")
    }
    for name, value in perfect.items():
        assert float(value) == pytest.approx(0, abs=2e-5), name
    worse = Pointmap().loss((targets["points"].flip(2) + 0.01, targets["scale"][:, None] + 0.5), targets)
    assert all(float(value) > 1e-3 for value in worse.values())
    assert float(worse["loss_scale"]) == pytest.approx(4 * 0.5)
    paper = Pointmap(PointmapConfig.paper()).loss((targets["points"], targets["scale"][:, None]), targets)
    assert set(paper) == {"loss_scale", "loss_l2", "loss_gradient"}


def test_terms_on_normalised_points_do_not_change_with_the_units() -> None:
    targets = batched(slope(20, 16))
    output = targets["points"] * (1 + 0.3 * torch.linspace(-1, 1, 16).sin())
    scale = targets["scale"][:, None]
    one = Pointmap().loss((output, scale), targets)
    larger = targets | {"points": 7 * targets["points"], "mean_depth": 7 * targets["mean_depth"]}
    other = Pointmap().loss((7 * output, scale), larger)
    for name in ("loss_l1", "loss_multiscale", "loss_shift_invariant", "loss_silog"):
        assert float(one[name]) == pytest.approx(float(other[name]), rel=1e-4)


def test_three_terms_are_capped_after_weighting() -> None:
    targets = batched(slope(20, 16))
    far = targets["points"] * 100
    far[..., ::2] *= -1
    capped = Pointmap().loss((far, targets["scale"][:, None]), targets)
    assert [float(capped[f"loss_{name}"]) for name in ("l1", "multiscale", "shift_invariant")] == [4.0, 4.0, 4.0]
    free = Pointmap(PointmapConfig(cap=None)).loss((far, targets["scale"][:, None]), targets)
    assert float(free["loss_l1"]) > 100


@pytest.mark.parametrize("term", ["l1", "multiscale", "silog", "intrinsics", "shift_invariant", "normal"])
def test_gradients_are_finite_where_nothing_is_known(term: str) -> None:
    picture = slope(20, 16)
    targets = batched(dataclasses.replace(picture, mask=np.zeros_like(picture.mask)))
    config = PointmapConfig.paper(**{f"{term}_weight": 1.0})
    points = torch.zeros(1, 3, 20, 16, requires_grad=True)
    losses = Pointmap(config).loss((points, torch.ones(1, 1)), targets)
    assert float(losses[f"loss_{term}"].detach()) == 0.0
    total_loss(losses).backward()
    assert points.grad is not None
    assert bool(points.grad.isfinite().all())


@pytest.mark.parametrize(
    "frame",
    [
        frames.letterbox((60, 90), (64, 48)),
        frames.letterbox((60, 90), (64, 48)).mirrored(),
        frames.stretch((60, 90), (64, 48)),
        frames.crop_around((20, 15, 70, 50), (64, 48), (60, 90), rotation=20, flip=True),
    ],
)
def test_decode_gives_metres_at_the_pictures_pixels(frame: frames.Frame) -> None:
    picture = slope(60, 90)
    seen = warp.move(picture, frame)
    targets = Pointmap().targets(seen)
    assert seen.intrinsics is not None
    # What a perfect network would say of the frame, also outside of the mask.
    rows, columns = np.indices((60, 90))
    plane = 1 / (0.4 + 0.1 * (rows / 60 - 0.5) + 0.06 * (columns / 90 - 0.5))
    whole = dataclasses.replace(seen, depth=warp.warp(plane.astype(np.float32), frame, "linear", None))
    output = Pointmap().targets(dataclasses.replace(whole, mask=np.ones_like(seen.mask)))["points"]
    found = Pointmap().decode((output[None], targets["scale"][None, None]), frame)
    assert found.points.dtype == np.float32
    assert found.focal == pytest.approx(80.0, rel=1e-5)
    pixels = frame.points(np.stack([columns, rows], -1))
    edge = np.array(frame.size[::-1]) - 3
    inner = picture.mask & (pixels > 2).all(-1) & (pixels < edge).all(-1)
    assert inner.sum() > 800
    expected = pointmap(picture.depth, picture.intrinsics)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.points[inner], expected[inner], atol=0.02)


def test_an_untrained_scale_is_floored_and_nan_refused() -> None:
    frame = frames.identity((4, 4))
    found = Pointmap().decode((torch.ones(3, 4, 4), torch.tensor([-2.0])), frame)
    assert found.scale == 0.01
    assert float(found.points[0, 0, 2]) == pytest.approx(100)
    with pytest.raises(ValueError, match="nan"):
        Pointmap().decode((torch.ones(3, 4, 4), torch.tensor([math.nan])), frame)
    with pytest.raises(ValueError, match="pair"):
        Pointmap().decode(torch.ones(3, 4, 4), frame)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one scale per image"):
        Pointmap().decode((torch.ones(1, 3, 4, 4), torch.ones(2, 1)), frame)


def test_only_enlarged_predictions_are_smoothed() -> None:
    points = torch.ones(3, 8, 8)
    points[2, 4, 4] = 5
    scale = torch.ones(1)
    same = Pointmap().decode((points, scale), frames.identity((8, 8))).points
    assert float(same[4, 4, 2]) == 5
    larger = frames.stretch((16, 16), (8, 8))
    peaks = [Pointmap(PointmapConfig(smoothing=n)).decode((points, scale), larger).points[..., 2].max() for n in (0, 4)]
    assert peaks[1] < 2.0 < peaks[0]


def test_unflip_undoes_a_mirrored_frame() -> None:
    picture = slope(20, 16)
    task = Pointmap()
    straight = task.targets(picture)
    mirrored = task.targets(warp.move(picture, frames.mirror((20, 16))))
    points, scale = task.unflip((mirrored["points"], mirrored["scale"]))
    torch.testing.assert_close(points, straight["points"])
    assert float(scale) == pytest.approx(float(straight["scale"]))


def test_the_tiny_model_learns_from_it_under_autocast() -> None:
    model = create("tiny_pointmap")
    targets = batched(slope(256, 192))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(torch.zeros(1, 3, 256, 192))
        losses = Pointmap().loss(output, targets)
    assert {value.dtype for value in losses.values()} == {torch.float32}
    total_loss(losses).backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.decode_head.parameters())
    Pointmap().decode(output, frames.stretch((40, 30), (256, 192)))
