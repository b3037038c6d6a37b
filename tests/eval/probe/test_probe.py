"""A probe reads what is there, and no more; its numbers are a function of its input."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from eval.probe.config import ProbeConfig
from eval.probe.labelled import Labelled
from eval.probe.probe import linear_probe
from tests.fixtures.probing import Means, coloured, labelled

METHODS = {
    "ridge": ProbeConfig(),
    "softmax": ProbeConfig(method="softmax", steps=200, warmup=10, lr=0.05),
}


@pytest.mark.parametrize("method", METHODS)
def test_features_that_contain_the_answer_linearly_reach_nearly_1(method: str) -> None:
    found = linear_probe(Means(), coloured(40, 1), coloured(30, 2), METHODS[method])
    assert found["miou"] > 0.97
    assert found["r2"] > 0.9
    assert set(found["iou"]) == {"back", "left", "right"}


@pytest.mark.parametrize("method", METHODS)
def test_features_that_know_nothing_stay_at_chance(method: str) -> None:
    found = linear_probe(Means(), labelled(200, 1), labelled(200, 2), METHODS[method])
    assert found["accuracy"] == pytest.approx(1 / 3, abs=0.06)
    assert found["miou"] < 0.25
    assert abs(found["r2"]) < 0.03
    assert found["majority_miou"] == pytest.approx(1 / 9, abs=0.02)


@pytest.mark.parametrize("method", METHODS)
def test_numbers_depend_on_the_input_alone(method: str) -> None:
    config, encoder = METHODS[method], Means().train()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = linear_probe(encoder, coloured(9, 1), labelled(7, 2), config)
    assert torch.equal(torch.get_rng_state(), state)
    assert encoder.training
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    torch.manual_seed(1)
    assert linear_probe(encoder, coloured(9, 1), labelled(7, 2), config) == first
    one = linear_probe(encoder, coloured(9, 1), labelled(7, 2), config.model_copy(update={"encode_batch": 4}))
    assert one["accuracy"] == pytest.approx(first["accuracy"], abs=0.01)


def test_classes_must_be_the_same() -> None:
    train, test = labelled(3, 1), labelled(3, 2)
    with pytest.raises(ValueError, match="give the same"):
        linear_probe(Means(), train, replace(test, classes=("a", "b", "c")))


def test_pictures_of_another_size_can_be_scored() -> None:
    train, test = coloured(20, 1), coloured(20, 2)
    wide = Labelled(
        test.images.repeat_interleave(2, 2).repeat_interleave(2, 3),
        test.labels.repeat_interleave(2, 1).repeat_interleave(2, 2),
        test.classes,
    )
    assert linear_probe(Means(), train, wide)["miou"] > 0.97
