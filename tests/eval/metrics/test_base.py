from __future__ import annotations

import numpy as np
import pytest
import torch

from eval.metrics.base import as_array, dense_pair, load_config, same_config
from eval.metrics.pointmap import PointmapMetricConfig


def test_tensors_are_taken_too() -> None:
    array = as_array(torch.ones(2, 3, requires_grad=True), "x", (None, 3))
    assert array.tolist() == [[1.0] * 3] * 2
    with pytest.raises(ValueError, match=r"x is \[2, 3\], must be \[any, 4\]"):
        as_array(torch.ones(2, 3), "x", (None, 4))


def test_a_prediction_of_another_size_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="undo the letterbox"):
        dense_pair(np.zeros((8, 6, 3)), np.zeros((9, 6, 3)), None)


def test_pixels_without_truth_do_not_count_and_broken_predictions_are_refused() -> None:
    prediction, truth = np.zeros((2, 2, 3)), np.zeros((2, 2, 3))
    truth[0, 0, 1] = np.nan
    prediction[0, 0] = np.inf
    assert dense_pair(prediction, truth, None)[2].tolist() == [[False, True], [True, True]]
    prediction[1, 1, 2] = np.nan
    mask = np.array([[True, True], [True, False]])
    assert dense_pair(prediction, truth, mask)[2].sum() == 2
    with pytest.raises(ValueError, match="NaN or infinite in 1 of 3 pixels"):
        dense_pair(prediction, truth, None)


def test_configurations_must_agree() -> None:
    median = PointmapMetricConfig(alignment="median")
    assert load_config(PointmapMetricConfig, {"config": median.model_dump_json()}) == median
    same_config(median, PointmapMetricConfig(alignment="median"))
    with pytest.raises(ValueError, match="alignment differ"):
        same_config(median, PointmapMetricConfig())
