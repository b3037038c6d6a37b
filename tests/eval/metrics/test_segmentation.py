from __future__ import annotations

import io
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score, confusion_matrix, f1_score, jaccard_score

from eval.metrics import SegmentationMetric, SegmentationMetricConfig

classification = pytest.importorskip("torchmetrics.classification")


def pictures(key: int, count: int, classes: int, absent: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.Generator(np.random.Philox(key=key))
    made = []
    for _ in range(count):
        shape = tuple(random.integers(1, 9, 2))
        truth = random.integers(0, classes - absent, shape).astype(np.uint8)
        prediction = np.where(random.random(shape) < 0.6, truth, random.integers(0, classes, shape))
        truth[random.random(shape) < 0.1] = 255
        made.append((prediction, truth))
    made.append((np.zeros((1, 1), dtype=np.int64), np.zeros((1, 1), dtype=np.uint8)))
    return made


def measured(made: list[tuple[np.ndarray, np.ndarray]], classes: int) -> SegmentationMetric:
    metric = SegmentationMetric(SegmentationMetricConfig(classes=classes))
    for prediction, truth in made:
        metric.update(prediction, truth)
    return metric


@pytest.mark.filterwarnings("ignore:y_pred contains classes")
@pytest.mark.parametrize("absent", [0, 2])
def test_agrees_with_scikit_learn(absent: int) -> None:
    made = pictures(1, 12, 6, absent)
    flat = [np.concatenate([pair[i].ravel() for pair in made]) for i in (1, 0)]
    known = flat[0] != 255
    true, predicted = flat[0][known], flat[1][known]
    metric = measured(made, 6)
    figures = metric.compute()
    assert np.array_equal(metric.counts, confusion_matrix(true, predicted, labels=range(6)))
    present = np.unique(true)
    assert figures["miou"] == pytest.approx(jaccard_score(true, predicted, labels=present, average="macro"), abs=1e-12)
    whole = jaccard_score(true, predicted, labels=range(6), average="macro", zero_division=0)
    assert figures["miou_all"] == pytest.approx(whole, abs=1e-12)
    assert figures["miou_union"] == pytest.approx(jaccard_score(true, predicted, average="macro"), abs=1e-12)
    assert figures["mdice"] == pytest.approx(f1_score(true, predicted, labels=present, average="macro"), abs=1e-12)
    assert figures["mdice_union"] == pytest.approx(f1_score(true, predicted, average="macro"), abs=1e-12)
    assert figures["aacc"] == pytest.approx(accuracy_score(true, predicted), abs=1e-12)
    assert figures["macc"] == pytest.approx(balanced_accuracy_score(true, predicted), abs=1e-12)
    assert figures["macc_all"] == pytest.approx(figures["macc"] * len(present) / 6, abs=1e-12)


def test_agrees_with_torchmetrics() -> None:
    made = pictures(2, 10, 5, absent=1)
    theirs = classification.MulticlassJaccardIndex(5, average="macro", ignore_index=255)
    for prediction, truth in made:
        theirs.update(torch.from_numpy(prediction).long(), torch.from_numpy(truth).long())
    assert measured(made, 5).compute()["miou_union"] == pytest.approx(float(theirs.compute()), abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 7), st.integers(0, 5))
def test_splits_merge_to_the_whole_in_any_order(key: int, classes: int, cut: int) -> None:
    made = pictures(key, 5, classes)
    whole = measured(made, classes)
    first, second = measured(made[:cut], classes), measured(made[cut:][::-1], classes)
    stored = io.BytesIO()
    np.savez(stored, **first.state())
    stored.seek(0)
    second.merge(SegmentationMetric.from_state(np.load(stored)))
    assert second.compute() == whole.compute()
    assert all(0 <= value <= 1 for value in whole.compute().values())


def test_a_perfect_prediction_has_1_everywhere() -> None:
    labels = np.arange(12, dtype=np.uint8).reshape(3, 4) % 5
    figures = measured([(labels, labels)], 5).compute()
    assert set(figures.values()) == {1.0}


def test_state_goes_through_json() -> None:
    metric = measured(pictures(3, 3, 4), 4)
    state = {key: getattr(value, "tolist", lambda value=value: value)() for key, value in metric.state().items()}
    assert SegmentationMetric.from_state(json.loads(json.dumps(state))).compute() == metric.compute()


def test_classes_have_their_own_figures() -> None:
    metric = SegmentationMetric(SegmentationMetricConfig(classes=3, names=("background", "skin", "hair")))
    metric.update([[0, 0, 1, 1]], [[0, 1, 1, 255]])
    table = metric.per_class()
    assert table["skin"] == {"iou": 0.5, "dice": 2 / 3, "accuracy": 0.5, "precision": 1.0, "share": 2 / 3}
    assert np.isnan(table["hair"]["iou"])
    assert metric.compute()["miou"] == 0.5
    assert metric.compute()["miou_all"] == pytest.approx(1 / 3)


def test_mistakes_are_named() -> None:
    metric = SegmentationMetric(SegmentationMetricConfig(classes=3))
    with pytest.raises(ValueError, match=r"the truth .* has class 7"):
        metric.update([[0]], [[7]])
    with pytest.raises(ValueError, match="the prediction has class -1"):
        metric.update([[-1]], [[0]])
    with pytest.raises(ValueError, match="argmax"):
        metric.update([[0.5]], [[0]])
    with pytest.raises(ValueError, match="must be"):
        metric.update([[0, 1]], [[0]])
    metric.update([[0]], [[255]])
    with pytest.raises(ValueError, match="nothing to measure"):
        metric.compute()
    with pytest.raises(ValueError, match="which is a class"):
        SegmentationMetricConfig(classes=300)
    with pytest.raises(ValueError, match="2 different names for 3 classes"):
        SegmentationMetricConfig(classes=3, names=("a", "b", "a"))
    with pytest.raises(ValueError, match="classes differ"):
        metric.merge(SegmentationMetric(SegmentationMetricConfig(classes=4)))
