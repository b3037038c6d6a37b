"""The fit by AdamW finds what least squares of the same problem cannot miss, and repeats exactly."""

from __future__ import annotations

import pytest
import torch

from eval.probe.config import ProbeConfig
from eval.probe.softmax import fit_softmax

CONFIG = ProbeConfig(method="softmax", steps=150, warmup=10, batch=4, lr=0.05)


def _problem() -> tuple[torch.Tensor, torch.Tensor]:
    maps = torch.randn(10, 5, 3, 3, generator=torch.Generator().manual_seed(1)) * 4 + 2
    labels = (maps[:, 2] > 2).to(torch.uint8)
    return maps, labels


def test_classes_that_a_feature_decides_are_found() -> None:
    maps, labels = _problem()
    probe = fit_softmax(maps, labels, 2, CONFIG)
    assert (probe(maps).argmax(1) == labels).float().mean() > 0.95
    weight = probe.linear.weight.flatten(1)
    assert (weight[1] - weight[0]).abs().argmax() == 2


def test_the_same_seed_repeats_and_another_does_not() -> None:
    maps, labels = _problem()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = fit_softmax(maps, labels, 2, CONFIG).linear.weight
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    assert torch.equal(first, fit_softmax(maps, labels, 2, CONFIG).linear.weight)
    assert not torch.equal(first, fit_softmax(maps, labels, 2, CONFIG.model_copy(update={"seed": 1})).linear.weight)


def test_pixels_to_ignore_do_not_count() -> None:
    maps, labels = _problem()
    wrong = labels.clone()
    wrong[:, 0] = 255
    first = fit_softmax(maps, wrong, 2, CONFIG).linear.weight
    assert torch.isfinite(first).all()
    with pytest.raises(ValueError, match="no pixel has a label"):
        fit_softmax(maps, torch.full_like(labels, 255), 2, CONFIG)
