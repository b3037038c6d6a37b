"""Fit a linear layer to frozen features of some pictures, and score it on others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from eval.probe.config import ProbeConfig
from eval.probe.features import class_shares, feature_maps, frozen, labels_of, predictions, rows
from eval.probe.labelled import Encoder, Labelled
from eval.probe.ridge import RidgeSums
from eval.probe.segmentation import Confusion, ShareErrors
from eval.probe.softmax import fit_softmax

Readout = Callable[[Tensor], Tensor]


def linear_probe(
    backbone: Encoder,
    train: Labelled,
    test: Labelled,
    config: ProbeConfig | None = None,
    device: torch.device | None = None,
) -> dict[str, Any]:
    """How well a linear layer reads the classes of pixels out of frozen patch features.

    The encoder is left as it was; no random number generator of the process is touched, and the same input gives the
    same numbers.

    Args:
        backbone: with its weights on `device`.
        train: what the layer is fitted to.
        test: what it is scored on, with the same classes. Sizes of pictures may differ from `train`'s.
        config: None = exact ridge regression.
        device: None = the CPU.

    Returns:
        "miou", "macc", "accuracy" (`Confusion.metrics`), "majority_miou" (what predicting the commonest class
        everywhere would reach), "r2" (`ShareErrors.r2`, of the classes' shares of patches) and "iou": {class: share} of
        the classes present in `test`.

    Raises:
        ValueError: the classes of `train` and `test` differ, or a picture does not divide into tokens.
    """
    config, device = config or ProbeConfig(), device or torch.device("cpu")
    if train.classes != test.classes:
        raise ValueError(f"train has the classes {train.classes}, test {test.classes}: give the same")
    with frozen(backbone):
        fit = _ridge if config.method == "ridge" else _softmax
        readout = fit(backbone, train, config, device)
        confusion, errors = Confusion(len(test.classes)), ShareErrors(len(test.classes))
        maps = feature_maps(backbone, test.images, config.encode_batch, device)
        for features, labels in zip(maps, labels_of(test, config.encode_batch), strict=True):
            logits = readout(features)
            confusion.add(labels, predictions(logits, (labels.shape[1], labels.shape[2])).cpu())
            shares, weights = class_shares(labels.to(device), len(test.classes), (logits.shape[2], logits.shape[3]))
            # Least squares predicts the shares themselves.
            answer = logits if config.method == "ridge" else logits.softmax(1)
            errors.add(rows(shares), rows(answer), weights.flatten())
    iou = {name: float(value) for name, value in zip(test.classes, confusion.iou(), strict=True) if value == value}
    return {**confusion.metrics(), "majority_miou": majority_miou(confusion), "r2": errors.r2(), "iou": iou}


def majority_miou(confusion: Confusion) -> float:
    """The mean intersection over union of answering the commonest class everywhere."""
    truth = confusion.counts.sum(1)
    return float(truth.max() / truth.sum() / (truth > 0).sum())


def _ridge(backbone: Encoder, train: Labelled, config: ProbeConfig, device: torch.device) -> Readout:
    sums: RidgeSums | None = None
    maps = feature_maps(backbone, train.images, config.encode_batch, device)
    for features, labels in zip(maps, labels_of(train, config.encode_batch), strict=True):
        grid = (features.shape[2], features.shape[3])
        shares, weights = class_shares(labels.to(device), len(train.classes), grid)
        sums = sums or RidgeSums(features.shape[1], len(train.classes), device)
        sums.add(rows(features), rows(shares), weights.flatten())
    assert sums is not None
    return sums.solve(config.l2)


def _softmax(backbone: Encoder, train: Labelled, config: ProbeConfig, device: torch.device) -> Readout:
    maps = feature_maps(backbone, train.images, config.encode_batch, device)
    first = next(maps)
    # Filled in place: joining a list would hold everything twice.
    features = first.new_empty(len(train), *first.shape[1:])
    start = 0
    for batch in chain([first], maps):
        features[start : start + len(batch)] = batch
        start += len(batch)
    return fit_softmax(features, train.labels, len(train.classes), config)
