"""The albedo task from pictures to RGB in 0..1."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from training.data.labelled import Picture
from training.models import create
from training.tasks import frames
from training.tasks.albedo import Albedo, AlbedoConfig
from training.tasks.dense_losses import total_loss


def picture(height: int, width: int, key: int = 1) -> Picture:
    rng = np.random.Generator(np.random.Philox(key=key))
    mask = np.zeros((height, width), np.bool_)
    mask[:, : width // 2] = True
    albedo = np.where(mask[..., None], rng.random((height, width, 3)), 0).astype(np.float32)
    person = np.where(mask, 0, -1).astype(np.int16)
    return Picture(np.zeros((height, width, 3), np.uint8), mask, person, albedo=albedo, id="a")


def test_targets_mask_what_is_unknown_and_name_wrong_ranges() -> None:
    sample = picture(6, 8)
    assert sample.albedo is not None
    sample.albedo[0, 0, 1] = np.nan
    targets = Albedo().targets(sample)
    expected = sample.mask.copy()
    expected[0, 0] = False
    assert (targets["mask"][0].numpy() == expected).all()
    assert (targets["albedo"].numpy()[:, expected] == sample.albedo[expected].T).all()
    assert (targets["albedo"].numpy()[:, ~expected] == 0).all()
    with pytest.raises(ValueError, match="divide 8-bit files by 255"):
        Albedo().targets(dataclasses.replace(sample, albedo=sample.albedo * 255))
    with pytest.raises(ValueError, match="no albedo"):
        Albedo().targets(dataclasses.replace(sample, albedo=None))
    empty = dataclasses.replace(sample, mask=np.zeros_like(sample.mask))
    assert not Albedo().targets(empty)["mask"].any()


def test_rejects_near_constant_albedo_only() -> None:
    sample = picture(10, 10)
    assert Albedo().rejection(sample) is None
    grey = dataclasses.replace(sample, albedo=np.full((10, 10, 3), 0.5, np.float32))
    assert "near-constant" in str(Albedo().rejection(grey))
    grey.albedo[:5, :, 2] = 0.6  # type: ignore[index]
    assert Albedo().rejection(grey) is None
    assert "min_pixels" in str(Albedo().rejection(picture(3, 8)))


def test_terms_follow_the_configuration() -> None:
    targets = {name: value[None] for name, value in Albedo().targets(picture(6, 8)).items()}
    output = targets["albedo"].flip(1) + 0.1
    released = Albedo().loss(output, targets)
    assert set(released) == {"loss_l1", "loss_gradient", "loss_chromaticity"}
    assert set(Albedo(AlbedoConfig.paper()).loss(output, targets)) == {"loss_l2", "loss_gradient", "loss_rgb_mean"}
    extra = Albedo(AlbedoConfig(low_frequency_weight=1, l1_weight=1)).loss(output, targets)
    assert set(extra) - set(released) == {"loss_low_frequency"}
    assert float(extra["loss_l1"]) == pytest.approx(float(released["loss_l1"]) / 2)
    assert float(total_loss(Albedo().loss(targets["albedo"], targets))) == pytest.approx(0, abs=1e-5)


def test_gradient_is_half_the_squared_error_of_slopes() -> None:
    # A ramp of 0.1 per column in one channel against a flat target: 0.1^2 / 2 per pair, weight 2.
    mask = torch.ones(1, 1, 4, 5, dtype=torch.bool)
    output = torch.zeros(1, 3, 4, 5)
    output[0, 0] = 0.1 * torch.arange(5.0)
    losses = Albedo().loss(output, {"albedo": torch.zeros(1, 3, 4, 5), "mask": mask})
    assert float(losses["loss_gradient"]) == pytest.approx(2 * 0.5 * 0.01)


def test_decode_clamps_before_it_interpolates() -> None:
    output = torch.tensor([[[-1.0, 0.5, 3.0]]]).expand(3, 2, 3)
    found = Albedo().decode(output, frames.stretch((2, 6), (2, 3)))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[0, :, 0], [0, 0.125, 0.375, 0.625, 0.875, 1], atol=1e-6)
    crop = Albedo().decode(torch.ones(1, 3, 2, 2), frames.crop((4, 4), (1, 1, 2, 2)))
    assert crop.sum() == 12


def test_unflip_is_an_involution() -> None:
    output = torch.arange(12.0).reshape(3, 2, 2)
    assert Albedo().unflip(output)[0].tolist() == [[1.0, 0.0], [3.0, 2.0]]
    assert bool((Albedo().unflip(Albedo().unflip(output)) == output).all())


def test_the_tiny_model_learns_from_it_under_autocast() -> None:
    model = create("tiny_albedo")
    targets = {name: value[None] for name, value in Albedo().targets(picture(256, 192)).items()}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(torch.zeros(1, 3, 256, 192))
        losses = Albedo().loss(output, targets)
    assert {value.dtype for value in losses.values()} == {torch.float32}
    total_loss(losses).backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.decode_head.parameters())
