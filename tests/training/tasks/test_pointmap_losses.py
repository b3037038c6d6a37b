"""Pointmap terms against loops in float64, and the identities that their names promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from training.tasks import pointmap_losses as terms

SHAPE = (3, 3, 6, 5)


def maps(key: int) -> tuple[Tensor, Tensor, Tensor]:
    """Prediction and target around z = 2, and a mask whose last image is empty; the target is 0 outside of it."""
    rng = np.random.Generator(np.random.Philox(key=key))
    prediction, target = (torch.from_numpy(rng.normal(scale=0.4, size=SHAPE)) for _ in range(2))
    prediction[:, 2] += 2
    target[:, 2] += 2
    mask = torch.from_numpy(rng.random((SHAPE[0], 1, *SHAPE[2:])) < 0.7)
    mask[-1] = False
    return prediction, torch.where(mask, target, 0.0), mask


def cameras() -> Tensor:
    return torch.tensor(
        [
            [[9.0, 0, 2.2], [0, 8.0, 2.7], [0, 0, 1]],
            [[7, 0, 1.9], [0, 7, 3.1], [0, 0, 1]],
            [[5, 0, 2], [0, 6, 2], [0, 0, 1]],
        ],
        dtype=torch.float64,
    )


def on_rays(depth: Tensor, intrinsics: Tensor) -> Tensor:
    """Points [B, 3, H, W] with these depths [B, H, W] on their pixels' rays."""
    points = torch.zeros(len(depth), 3, *depth.shape[1:], dtype=torch.float64)
    for b, y, x in np.ndindex(*depth.shape):
        ray = torch.linalg.inv(intrinsics[b]) @ torch.tensor([x, y, 1.0], dtype=torch.float64)
        points[b, :, y, x] = depth[b, y, x] * ray
    return points


def slow_multiscale(p: Tensor, t: Tensor, mask: Tensor) -> float:
    def value(maps: Tensor, b: int, c: int, y: int, x: int) -> float:
        total = 0.0
        for row, row_share in corners(y, maps.shape[2]):
            for column, column_share in corners(x, maps.shape[3]):
                total += row_share * column_share * float(maps[b, c, row, column])
        return total

    def corners(index: int, length: int) -> list[tuple[int, float]]:
        position = max((index + 0.5) / 2 - 0.5, 0.0)
        low = math.floor(position)
        return [(low, 1 - position + low), (min(low + 1, length - 1), position - low)]

    total, count = 0.0, 0
    for b in range(len(p)):
        for y, x in np.ndindex(2 * p.shape[2], 2 * p.shape[3]):
            if mask[b, 0, y // 2, x // 2]:
                count += 1
                total += sum(abs(value(p, b, c, y, x) - value(t, b, c, y, x)) for c in range(3))
    return total / max(1, count)


def slow_silog(p: Tensor, t: Tensor, mask: Tensor) -> float:
    total = 0.0
    for b in range(len(p)):
        d = [
            math.log(max(float(t[b, 0, y, x]), 1e-4)) - math.log(max(float(p[b, 0, y, x]), 1e-4))
            for y, x in np.ndindex(*p.shape[2:])
            if mask[b, 0, y, x] and t[b, 0, y, x] > -100
        ]
        count = max(len(d), 1e-4)
        total += math.sqrt(sum(value**2 for value in d) / count - 0.5 * (sum(d) / count) ** 2)
    return total / len(p)


def slow_consistency(p: Tensor, mask: Tensor, k: Tensor) -> float:
    total, count = 0.0, 0
    for b, _, y, x in np.ndindex(*mask.shape):
        if mask[b, 0, y, x]:
            count += 1
            px, py, pz = p[b, :, y, x].tolist()
            total += abs(px - (x - float(k[b, 0, 2])) * pz / float(k[b, 0, 0]))
            total += abs(py - (y - float(k[b, 1, 2])) * pz / float(k[b, 1, 1]))
    return total / max(1, count)


def slow_shift_invariant(p: Tensor, t: Tensor, mask: Tensor) -> float:
    total, count = 0.0, 0
    for b in range(len(p)):
        valid = [(y, x) for y, x in np.ndindex(*p.shape[2:]) if mask[b, 0, y, x]]
        count += len(valid)
        for c in range(3):
            centres = [sum(float(m[b, c, y, x]) for y, x in valid) / (len(valid) + 1e-6) for m in (p, t)]
            total += sum(abs(float(p[b, c, y, x]) - centres[0] - float(t[b, c, y, x]) + centres[1]) for y, x in valid)
    return total / max(1, count)


def slow_normal(maps: Tensor, b: int, y: int, x: int) -> tuple[np.ndarray, bool]:
    """A normal, and whether it is one: longer than 1e-6, and not of two parallel differences."""
    right, below = x + 1 if x + 1 < maps.shape[3] else x - 1, y + 1 if y + 1 < maps.shape[2] else y - 1
    centre = maps[b, :, y, x].numpy()
    dx, dy = (maps[b, :, y, right].numpy() - centre) * 100, (maps[b, :, below, x].numpy() - centre) * 100
    n = np.cross(dx, dy)
    length = float(np.linalg.norm(n))
    parallel = length <= 1e-6 * float(np.linalg.norm(dx) * np.linalg.norm(dy))
    return n / max(length, 1e-6), length / max(length, 1e-6) > 1e-6 and not parallel


def slow_surface(p: Tensor, t: Tensor, mask: Tensor) -> float:
    total, count = 0.0, 0
    for b, _, y, x in np.ndindex(*mask.shape):
        truth, usable = slow_normal(t, b, y, x)
        if mask[b, 0, y, x] and usable:
            count += 1
            normal, _ = slow_normal(p, b, y, x)
            total += 1 - min(max(float(normal @ truth), -1.0), 1.0) + float(np.abs(normal - truth).mean())
    return total / max(1, count)


def test_terms_equal_their_loops() -> None:
    p, t, mask = maps(1)
    k = cameras()
    assert float(terms.multiscale_l1(p, t, mask)) == pytest.approx(slow_multiscale(p, t, mask), rel=1e-10)
    assert float(terms.silog(p[:, 2:], t[:, 2:], mask)) == pytest.approx(
        slow_silog(p[:, 2:], t[:, 2:], mask), rel=1e-10
    )
    assert float(terms.intrinsics_consistency(p, mask, k)) == pytest.approx(slow_consistency(p, mask, k), rel=1e-10)
    assert float(terms.shift_invariant_l1(p, t, mask)) == pytest.approx(slow_shift_invariant(p, t, mask), rel=1e-10)
    assert float(terms.surface_normal(p, t, mask)) == pytest.approx(slow_surface(p, t, mask), rel=1e-10)
    assert float(terms.scale_l1(torch.tensor([1.0, 2.5]), torch.tensor([1.5, 2.0]))) == 0.5


def test_silog_floors_depths_that_have_no_logarithm() -> None:
    p, t, mask = maps(2)
    p[:, 2, 0] = -3.0
    t[:, 2, 1] = torch.where(mask[:, 0, 1], 1e-6, 0.0)
    assert float(terms.silog(p[:, 2:], t[:, 2:], mask)) == pytest.approx(
        slow_silog(p[:, 2:], t[:, 2:], mask), rel=1e-10
    )


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_silog_keeps_half_of_a_wrong_scale(factor: float) -> None:
    _, t, _ = maps(3)
    depth = t[:2, 2:].abs() + 0.5
    mask = torch.ones_like(depth, dtype=torch.bool)
    expected = math.sqrt(0.5) * abs(math.log(factor))
    assert float(terms.silog(factor * depth, depth, mask)) == pytest.approx(expected, rel=1e-9)


def test_consistency_vanishes_on_rays_at_any_depth_and_not_beside_them() -> None:
    p, _, mask = maps(4)
    points = on_rays(p[:, 2], cameras())
    assert float(terms.intrinsics_consistency(points, mask, cameras())) == pytest.approx(0, abs=1e-12)
    points[:, 0] += 0.1
    assert float(terms.intrinsics_consistency(points, mask, cameras())) == pytest.approx(0.1)


def test_shift_invariant_ignores_a_shift_and_sees_a_stretch() -> None:
    _, t, mask = maps(5)
    shift = torch.tensor([3.0, -1.0, 0.5], dtype=torch.float64)[:, None, None]
    assert float(terms.shift_invariant_l1(t + shift, t, mask)) == pytest.approx(0, abs=1e-5)  # count + 1e-6
    assert float(terms.shift_invariant_l1(1.5 * t, t, mask)) > 0.1


def test_normals_of_a_plane() -> None:
    normal = np.array([0.3, -0.2, -0.9])
    normal /= np.linalg.norm(normal)
    k = cameras()[:1]
    depth = torch.zeros(1, *SHAPE[2:], dtype=torch.float64)
    for y, x in np.ndindex(*SHAPE[2:]):
        ray = np.linalg.inv(k[0].numpy()) @ np.array([x, y, 1.0])
        depth[0, y, x] = float(-2.0 / (normal @ ray))  # normal . point = -2
    found = terms.pointmap_normals(on_rays(depth, k))[0, :, :-1, :-1]
    expected = torch.from_numpy(-normal)[:, None, None].expand_as(found)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    assert float(terms.pointmap_normals(on_rays(depth, k))[0, :, 0, -1] @ torch.from_numpy(normal)) > 0.99
    with pytest.raises(ValueError, match="2x2"):
        terms.pointmap_normals(torch.zeros(1, 3, 1, 4))


def test_a_perfect_prediction_gives_zero_and_finite_gradients() -> None:
    _, t, mask = maps(6)
    p = t.clone().requires_grad_()
    losses = [
        terms.multiscale_l1(p, t, mask),
        terms.silog(p[:, 2:], t[:, 2:], mask),
        terms.shift_invariant_l1(p, t, mask),
        terms.surface_normal(p, t, mask),
    ]
    for loss in losses:
        assert float(loss.detach()) == pytest.approx(0, abs=1e-12)
    torch.stack(losses).sum().backward()
    assert p.grad is not None
    assert bool(p.grad.isfinite().all())


def test_an_empty_mask_gives_zero_and_zero_gradients() -> None:
    p, t, mask = maps(7)
    p.requires_grad_()
    nothing = torch.zeros_like(mask)
    total = (
        terms.multiscale_l1(p, t, nothing)
        + terms.silog(p[:, 2:], t[:, 2:], nothing)
        + terms.intrinsics_consistency(p, nothing, cameras())
        + terms.shift_invariant_l1(p, t, nothing)
        + terms.surface_normal(p, t, nothing)
    )
    total.backward()
    assert float(total.detach()) == 0.0
    assert p.grad is not None
    assert bool((p.grad == 0).all())


def test_a_pixel_whose_neighbours_are_unknown_has_no_normal_to_learn() -> None:
    _, t, _ = maps(9)
    mask = torch.zeros(SHAPE[0], 1, *SHAPE[2:], dtype=torch.bool)
    mask[:, :, 2, 2] = True
    target = torch.where(mask, t, 0.0).float()
    assert float(terms.surface_normal(torch.ones_like(target), target, mask)) == 0.0


def test_a_constant_prediction_has_finite_normal_gradients() -> None:
    _, t, mask = maps(8)
    p = torch.ones_like(t).requires_grad_()
    terms.surface_normal(p, t, mask).backward()
    assert p.grad is not None
    assert bool(p.grad.isfinite().all())
