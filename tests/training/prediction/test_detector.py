"""A YOLO pose model finds people in the pixels of the picture; what is missing is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from curation.scorers.person_yolo import YoloPersonConfig
from training.prediction.detector import yolo


def model(path: Path, rows: np.ndarray) -> None:
    """An ONNX of 64 x 64 inputs that always finds the same people (x0, y0, x1, y1, score, class, 17 keypoints)."""
    constant = helper.make_node("Constant", [], ["found"], value=numpy_helper.from_array(rows[None]))
    shapes = [
        helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 64, 64]),
        helper.make_tensor_value_info("found", TensorProto.FLOAT, [1, *rows.shape]),
    ]
    graph = helper.make_graph([constant], "people", shapes[:1], shapes[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_boxes_are_in_the_pictures_pixels(tmp_path: Path) -> None:
    rows = np.zeros((2, 57), np.float32)
    rows[0, :6] = 18, 5, 38, 60, 0.75, 0  # a picture of 128 x 96 is halved, and 8 pixels are left of it
    rows[1, :6] = 8, 0, 56, 64, 0.5, 3  # of another class
    model(tmp_path / "m.onnx", rows)
    found = yolo(YoloPersonConfig(weights=str(tmp_path / "m.onnx"), device="cpu"))(np.zeros((128, 96, 3), np.uint8))
    assert found.boxes.tolist() == [[20, 10, 60, 120]]
    assert found.scores.tolist() == [0.75]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"nothing\.onnx"):
        yolo(YoloPersonConfig(weights=str(tmp_path / "nothing.onnx")))
