"""Cross entropy and Dice against loops over pixels, and in images that hold nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from training.tasks.segmentation_losses import Divisor, accuracy, cross_entropy, dice

CLASSES = 4
WEIGHTS = torch.tensor([0.1, 10.0, 3.0, 2.0], dtype=torch.float64)


def batch(key: int) -> tuple[Tensor, Tensor]:
    """Logits and labels: a mixed image, one of background only, one all ignored, one without background."""
    rng = np.random.Generator(np.random.Philox(key=key))
    logits = torch.from_numpy(rng.normal(size=(4, CLASSES, 3, 5)))
    labels = torch.from_numpy(rng.integers(0, CLASSES - 1, (4, 3, 5)))  # class 3 is in no target
    labels[0, 0, :2] = 255
    labels[1] = 0
    labels[2] = 255
    labels[3] = 1
    return logits, labels


def slow_cross_entropy(logits: Tensor, labels: Tensor, divisor: Divisor) -> float:
    total = count = weight = 0.0
    for b, y, x in np.ndindex(*labels.shape):
        label = int(labels[b, y, x])
        if label == 255:
            continue
        values = logits[b, :, y, x].tolist()
        total += float(WEIGHTS[label]) * (math.log(sum(map(math.exp, values))) - values[label])
        count += 1
        weight += float(WEIGHTS[label])
    return total / {"all": labels.numel(), "labelled": count, "weights": weight}[divisor]


def slow_dice(logits: Tensor, labels: Tensor, background: int | None, naive: bool) -> float:
    losses = []
    for b in range(len(labels)):
        scores = []
        for c in range(CLASSES):
            overlap = first = second = 0.0
            for y, x in np.ndindex(*labels.shape[1:]):
                if int(labels[b, y, x]) == 255:
                    continue
                exponentials = [math.exp(value) for value in logits[b, :, y, x].tolist()]
                p, g = exponentials[c] / sum(exponentials), float(labels[b, y, x] == c)
                overlap += p * g
                first += p if naive else p * p
                second += g
            if second > 0 and c != background:
                scores.append((2 * overlap + 1e-3) / (first + second + 1e-3))
        losses.append(1 - sum(scores) / len(scores) if scores else 0.0)
    return sum(losses) / len(losses)


@pytest.mark.parametrize("divisor", ["all", "labelled", "weights"])
def test_cross_entropy_equals_the_loop(divisor: Divisor) -> None:
    logits, labels = batch(1)
    loss = cross_entropy(logits.log_softmax(1), labels, WEIGHTS, 255, divisor)
    assert float(loss) == pytest.approx(slow_cross_entropy(logits, labels, divisor), rel=1e-12)


def test_cross_entropy_is_torchs_with_reduction_none_averaged_over_all_pixels() -> None:
    logits, labels = batch(2)
    theirs = F.cross_entropy(logits, labels, WEIGHTS, ignore_index=255, reduction="none").mean()
    torch.testing.assert_close(cross_entropy(logits.log_softmax(1), labels, WEIGHTS), theirs)


@pytest.mark.parametrize("background", [0, 2, None])
@pytest.mark.parametrize("naive", [False, True])
def test_dice_equals_the_loop(background: int | None, naive: bool) -> None:
    logits, labels = batch(3)
    loss = dice(logits.log_softmax(1), labels, background, 255, naive)
    assert float(loss) == pytest.approx(slow_dice(logits, labels, background, naive), rel=1e-12)


def test_both_vanish_for_a_certain_and_right_prediction() -> None:
    _, labels = batch(4)
    logits = 200.0 * F.one_hot(torch.where(labels == 255, 0, labels), CLASSES).movedim(-1, 1).double()
    log_probabilities = logits.log_softmax(1)
    assert float(cross_entropy(log_probabilities, labels, WEIGHTS)) == pytest.approx(0, abs=1e-12)
    assert float(dice(log_probabilities, labels)) == pytest.approx(0, abs=1e-12)
    assert float(accuracy(log_probabilities, labels)) == 100.0


@pytest.mark.parametrize("fill", [0, 255])
@pytest.mark.parametrize("divisor", ["all", "labelled", "weights"])
def test_images_without_parts_or_labels_give_finite_losses_and_gradients(fill: int, divisor: Divisor) -> None:
    logits, labels = batch(5)
    logits.requires_grad_()
    labels = torch.full_like(labels, fill)
    log_probabilities = logits.log_softmax(1)
    overlap = dice(log_probabilities, labels)
    entropy = cross_entropy(log_probabilities, labels, WEIGHTS, 255, divisor)
    assert float(overlap.detach()) == 0.0
    assert (float(entropy.detach()) == 0.0) == (fill == 255)
    (overlap + entropy).backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


def test_accuracy_counts_labelled_pixels_only() -> None:
    labels = torch.tensor([[[0, 1, 255, 2]]])
    best = torch.tensor([0, 2, 1, 2])
    log_probabilities = F.one_hot(best, CLASSES).T[None, :, None].double().log_softmax(1)
    assert float(accuracy(log_probabilities, labels)) == pytest.approx(200 / 3)
    assert float(accuracy(log_probabilities, torch.full_like(labels, 255))) == 0.0


def test_an_unknown_divisor_names_the_valid_ones() -> None:
    logits, labels = batch(6)
    with pytest.raises(ValueError, match='"labelled"'):
        cross_entropy(logits.log_softmax(1), labels, WEIGHTS, 255, "mean")  # type: ignore[arg-type]
