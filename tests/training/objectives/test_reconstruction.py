"""Masked reconstruction against loops over pixels; area averages for 4K; the loss starts near 1; pictures come back."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from training.models.decoder import masked_positions
from training.objectives.reconstruction import (
    ReconstructionConfig,
    denormalise,
    patchify,
    reconstruction_loss,
    target_patches,
    unpatchify,
)


def _images(height: int, width: int, batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(0)) * 0.7 + 0.3


def _slow(images: Tensor, grid: tuple[int, int], pixels: int, normalise: bool, eps: float) -> np.ndarray:
    """Pixel by pixel in float64: rows, then columns, then channels of each square, each an average over its area."""
    pictures = images.double().numpy()
    factor = pictures.shape[2] // grid[0] // pixels
    out = np.zeros((len(pictures), grid[0] * grid[1], pixels * pixels * 3))
    for b, picture in enumerate(pictures):
        for token in range(grid[0] * grid[1]):
            values = []
            for row in range(pixels):
                for column in range(pixels):
                    y = (token // grid[1] * pixels + row) * factor
                    x = (token % grid[1] * pixels + column) * factor
                    for channel in range(3):
                        area = [picture[channel, y + dy, x + dx] for dy in range(factor) for dx in range(factor)]
                        values.append(sum(area) / len(area))
            if normalise:
                mean = sum(values) / len(values)
                variance = sum((value - mean) ** 2 for value in values) / len(values)
                values = [(value - mean) / math.sqrt(variance + eps) for value in values]
            out[b, token] = values
    return out


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize(("size", "pixels"), [((12, 8), 4), ((24, 16), 4), ((36, 24), 4), ((12, 8), 2), ((12, 8), 1)])
def test_targets_equal_the_slow_ones(size: tuple[int, int], pixels: int, normalise: bool) -> None:
    images = _images(*size)
    found = target_patches(images, (3, 2), pixels, normalise=normalise, eps=1e-3)
    assert found.dtype == torch.float32
    expected = _slow(images, (3, 2), pixels, normalise, 1e-3)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_normalised_patches_have_mean_0_and_variance_1_so_that_predicting_0_costs_1() -> None:
    target = target_patches(_images(128, 96), (8, 6), 16)
    assert target.mean(dim=-1).abs().max() < 1e-5
    torch.testing.assert_close(target.square().mean(dim=-1), torch.ones(2, 48), atol=1e-4, rtol=0)
    assert float(reconstruction_loss(torch.zeros_like(target), target)) == pytest.approx(1.0, abs=1e-4)


def test_flat_patches_are_0_and_finite() -> None:
    images = torch.full((1, 3, 32, 32), 2.117)
    images[:, 0] -= 1e-8
    target = target_patches(images, (2, 2), 16)
    assert target.abs().max() < 1e-3
    assert float(reconstruction_loss(torch.zeros_like(target), target)) < 1e-6


def test_half_precision_images_are_normalised_in_float32() -> None:
    # A faint texture on a bright patch: its mean and variance in bfloat16 would be rounding error.
    images = (8 + 0.0625 * torch.randint(0, 2, (1, 3, 32, 32), generator=torch.Generator().manual_seed(1))).bfloat16()
    found = target_patches(images, (2, 2), 16)
    np.testing.assert_allclose(found.numpy(), _slow(images, (2, 2), 16, True, 1e-6), rtol=1e-3, atol=1e-3)


def test_targets_of_masked_tokens_line_up_with_the_decoder() -> None:
    # Each token's pixels are its own number.
    images = torch.arange(6.0).reshape(1, 1, 3, 2).repeat_interleave(4, 2).repeat_interleave(4, 3).expand(1, 3, 12, 8)
    target = target_patches(images, (3, 2), 4, normalise=False)
    masked = masked_positions(torch.tensor([[0, 4]]), 6)
    gathered = target.gather(1, masked[..., None].expand(-1, -1, target.shape[-1]))
    assert gathered[0, :, 0].tolist() == [1.0, 2.0, 3.0, 5.0]


def test_unpatchify_undoes_patchify_and_denormalise_the_normalisation() -> None:
    images = _images(12, 8)
    assert torch.equal(unpatchify(patchify(images, (3, 2), 4), (3, 2), 4), images)
    restored = denormalise(target_patches(images, (3, 2), 4), images, (3, 2), 4)
    torch.testing.assert_close(unpatchify(restored, (3, 2), 4), images, atol=1e-5, rtol=1e-5)
    halves = torch.nn.functional.avg_pool2d(images, 2)
    restored = denormalise(target_patches(images, (3, 2), 2), images, (3, 2), 2)
    torch.testing.assert_close(unpatchify(restored, (3, 2), 2), halves, atol=1e-5, rtol=1e-5)


def test_the_loss_is_the_mean_of_squares_in_float32_with_its_gradient() -> None:
    generator = torch.Generator().manual_seed(2)
    predicted = torch.randn(2, 5, 12, generator=generator).bfloat16().requires_grad_()
    target = torch.randn(2, 5, 12, generator=generator)
    expected = 0.0
    for value, wanted in zip(predicted.detach().flatten().tolist(), target.flatten().tolist(), strict=True):
        expected += (value - wanted) ** 2 / target.numel()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = reconstruction_loss(predicted, target)
    assert loss.dtype == torch.float32
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-6)
    loss.backward()
    assert predicted.grad is not None
    slope = 2 * (predicted.detach().float() - target) / target.numel()
    torch.testing.assert_close(predicted.grad, slope.bfloat16())


def test_what_does_not_fit_is_refused() -> None:
    images = _images(12, 8)
    with pytest.raises(TypeError, match=r"images are torch\.uint8"):
        target_patches(images.to(torch.uint8), (3, 2), 4)
    with pytest.raises(ValueError, match=r"a grid of 3x4 tokens"):
        target_patches(images, (3, 4), 4)
    with pytest.raises(ValueError, match="a multiple of 3"):
        target_patches(images, (3, 2), 3)
    with pytest.raises(ValueError, match="a multiple of 8"):
        target_patches(images, (3, 2), 8)
    with pytest.raises(ValueError, match="at least 1 of each"):
        target_patches(images, (0, 2), 4)
    with pytest.raises(ValueError, match=r"images have shape \(12, 8\)"):
        patchify(images[0, 0], (3, 2), 4)
    with pytest.raises(ValueError, match=r"takes \[batch, 6, 16 \* channels\]"):
        unpatchify(torch.zeros(1, 5, 48), (3, 2), 4)
    with pytest.raises(ValueError, match=r"predictions have shape \(2, 6, 1\) and targets \(2, 6, 48\)"):
        reconstruction_loss(torch.zeros(2, 6, 1), torch.zeros(2, 6, 48))
    with pytest.raises(ValueError, match="predictions have shape"):
        denormalise(torch.zeros(2, 6, 1), images, (3, 2), 4)
    with pytest.raises(ValueError, match="no token is hidden"):
        reconstruction_loss(torch.zeros(2, 0, 48), torch.zeros(2, 0, 48))


def test_the_defaults_are_the_papers() -> None:
    config = ReconstructionConfig()
    assert (config.weight, config.normalise, config.eps) == (1.0, True, 1e-6)
