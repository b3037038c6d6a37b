"""Statistics of collapse against loops; splits over micro-batches and ranks; collapsed batches are recognised."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from training.objectives.collapse import (
    CollapseStats,
    channel_moments,
    entropies,
    neighbour_distances,
    prototype_counts,
)

PROTOTYPES, WIDTH, GROUP = 9, 6, 4


def _batch(samples: int = 8, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    probs = torch.softmax(torch.randn(2, samples, PROTOTYPES, generator=generator) / 0.3, dim=-1)
    return probs, torch.randn(2, samples, WIDTH, generator=generator)


def _stats(*batches: tuple[Tensor, Tensor]) -> CollapseStats:
    stats = CollapseStats(PROTOTYPES, WIDTH, GROUP)
    for probs, cls in batches:
        stats.update(probs, cls)
    return stats


def _slow(probs: Tensor, cls: Tensor) -> dict[str, float]:
    rows = probs.double().flatten(0, 1).tolist()
    entropy = [-sum(p * math.log(p) for p in row if p > 0) for row in rows]
    unit = cls.double().numpy()
    unit = unit / np.sqrt((unit**2).sum(-1, keepdims=True))
    distances = []
    for view in unit:
        for i in range(len(view)):
            others = [j for j in range(len(view)) if j != i and j // GROUP == i // GROUP]
            if others:
                distances.append(min(math.dist(view[i], view[j]) for j in others))
    return {
        "teacher_entropy": sum(entropy) / len(entropy),
        "active_prototypes": float(len({max(range(PROTOTYPES), key=row.__getitem__) for row in rows})),
        "cls_std": float(np.mean(np.std(unit.reshape(-1, WIDTH), axis=0))),
        "neighbour_distance": sum(distances) / len(distances),
    }


@pytest.mark.parametrize("samples", [8, 7, 5, 2])
def test_equal_the_slow_ones(samples: int) -> None:
    batch = _batch(samples)
    assert _stats(batch).values() == pytest.approx(_slow(*batch), rel=1e-5)


def test_sums_over_micro_batches_and_ranks_give_the_whole() -> None:
    probs, cls = _batch(16)
    whole = _stats((probs, cls)).values()
    parts = list(zip(probs.split(4, dim=1), cls.split(4, dim=1), strict=True))
    assert _stats(*parts).values() == pytest.approx(whole, rel=1e-9)
    ranks = [_stats(*parts[:1]), _stats(*parts[1:])]
    merged = CollapseStats(PROTOTYPES, WIDTH, GROUP)
    merged.sums.copy_(torch.stack([rank.sums for rank in ranks]).sum(dim=0))  # what an all-reduce leaves
    assert merged.values() == pytest.approx(whole, rel=1e-9)
    ranks[0].merge(ranks[1])
    assert ranks[0].values() == pytest.approx(whole, rel=1e-9)


def test_a_constant_cls_is_recognised() -> None:
    probs, _ = _batch(64)
    # With the float32 noise that a network leaves.
    cls = 5 * torch.ones(2, 64, WIDTH) + 1e-6 * _batch(64)[1]
    values = _stats((probs, cls)).values()
    assert values["cls_std"] < 1e-6
    assert values["neighbour_distance"] < 1e-6
    healthy = _stats(_batch(64)).values()
    assert healthy["cls_std"] == pytest.approx(1 / math.sqrt(WIDTH), rel=0.1)
    assert healthy["neighbour_distance"] > 0.5


def test_a_batch_of_one_prototype_is_recognised() -> None:
    _, cls = _batch(64)
    logits = torch.zeros(2, 64, PROTOTYPES)
    logits[..., 4] = 20.0
    values = _stats((torch.softmax(logits, dim=-1), cls)).values()
    assert values["active_prototypes"] == 1.0
    assert values["teacher_entropy"] < 1e-6
    uniform = _stats((torch.full((2, 64, PROTOTYPES), 1 / PROTOTYPES), cls)).values()
    assert uniform["teacher_entropy"] == pytest.approx(math.log(PROTOTYPES))
    assert _stats(_batch(64)).values()["active_prototypes"] == PROTOTYPES


def test_half_precision_inputs_are_measured_at_full_precision() -> None:
    probs, cls = (tensor.bfloat16() for tensor in _batch())
    assert _stats((probs, cls)).values() == pytest.approx(_slow(probs, cls), rel=1e-5)


def test_only_what_has_rows_is_reported_and_reset_forgets() -> None:
    probs, cls = _batch()
    stats = CollapseStats(PROTOTYPES, WIDTH, GROUP)
    assert stats.values() == {}
    stats.update(cls=cls)
    assert set(stats.values()) == {"cls_std", "neighbour_distance"}
    stats.reset()
    stats.update(teacher_probs=probs[0])
    assert set(stats.values()) == {"teacher_entropy", "active_prototypes"}
    stats.reset()
    stats.update(cls=cls[:, :1])
    assert set(stats.values()) == {"cls_std"}  # a lone row has no neighbour


def test_nothing_hangs_on_the_graph() -> None:
    probs, cls = _batch()
    stats = CollapseStats(PROTOTYPES, WIDTH, GROUP)
    stats.update(probs, cls.requires_grad_())
    assert not stats.sums.requires_grad


def test_the_pure_functions() -> None:
    probs = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    assert entropies(probs).tolist() == pytest.approx([math.log(2), 0.0])
    assert prototype_counts(probs[None]).tolist() == [1, 0, 1, 0]
    cls = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    torch.testing.assert_close(channel_moments(cls), torch.tensor([[0.6, 1.8], [0.36, 1.64]]).double())
    assert neighbour_distances(cls, 2).tolist() == pytest.approx([math.hypot(0.6, 0.2)] * 2)


def test_what_does_not_fit_is_refused_and_adds_nothing() -> None:
    probs, cls = _batch()
    stats = CollapseStats(PROTOTYPES, WIDTH, GROUP)
    with pytest.raises(ValueError, match=r"give \[\.\.\., 9\]"):
        stats.update(probs[..., :5], cls)
    with pytest.raises(ValueError, match=r"give \[views, samples, 6\]"):
        stats.update(probs, cls[0])
    assert not stats.sums.any()
    with pytest.raises(ValueError, match="groups of 1"):
        CollapseStats(PROTOTYPES, WIDTH, 1)
    with pytest.raises(ValueError, match="groups of 8 do not add"):
        stats.merge(CollapseStats(PROTOTYPES, WIDTH, 8))
