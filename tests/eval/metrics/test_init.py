from __future__ import annotations

import math

import numpy as np
import pytest

from eval.metrics import METRICS, TaskMetric


def figures(task: TaskMetric, error: float) -> dict[str, float]:
    """What a task's metric says of a prediction that is off by an error of 0 to 1."""
    random = np.random.Generator(np.random.Philox(key=1))
    shape = (16, 16, 3)
    noise = error * random.normal(size=shape)
    if task is METRICS["pose"]:
        metric = task.metric(task.config(sigmas=(0.05,) * 5))
        points = random.uniform(0, 100, (1, 5, 2))
        truth = np.concatenate([points, np.ones((1, 5, 1))], axis=2)
        metric.update("a", points + noise[0, :5, :2] * 10, [1.0], truth, [8000], [[0, 0, 100, 100]])
    elif task is METRICS["segmentation"]:
        metric = task.metric(task.config())
        truth = random.integers(0, 29, shape[:2])
        metric.update(np.where(random.random(shape[:2]) < error, 0, truth), truth)
    else:
        metric = task.metric(task.config())
        truth = random.uniform(0.2, 1, shape)
        metric.update(truth + noise, truth)
    return metric.compute()


@pytest.mark.parametrize("name", METRICS)
def test_the_primary_figure_exists_and_ranks_predictions(name: str) -> None:
    task = METRICS[name]
    good, middling, bad = (figures(task, error)[task.primary] for error in (0.0, 0.5, 0.9))
    assert task.better(good, None)
    assert task.better(good, middling)
    assert task.better(middling, bad)
    assert not task.better(bad, good)
    assert not task.better(good, good)
    assert not task.better(math.nan, None)
    assert task.better(bad, math.nan)
