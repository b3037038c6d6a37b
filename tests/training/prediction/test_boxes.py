"""Boxes of people: COCO files, suppression, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.prediction.boxes import Boxes, BoxFile, as_boxes, non_maximum_suppression, on_picture


def slow_suppression(boxes: np.ndarray, scores: np.ndarray, limit: float) -> list[int]:
    """By the definition, in loops."""
    kept: list[int] = []
    for index in sorted(range(len(boxes)), key=lambda row: -scores[row]):
        clash = False
        for other in kept:
            a, b = boxes[index].astype(float), boxes[other].astype(float)
            width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
            height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
            union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
            clash |= width * height > limit * union
        if not clash:
            kept.append(index)
    return kept


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 12), st.sampled_from([0.0, 0.3, 0.7]))
def test_suppression_is_its_definition(key: int, count: int, limit: float) -> None:
    rng = np.random.Generator(np.random.Philox(key=key))
    corner = rng.uniform(0, 50, (count, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(1, 60, (count, 2))], 1).astype(np.float32)
    scores = np.round(rng.uniform(0, 1, count), 1).astype(np.float32)
    kept = non_maximum_suppression(Boxes(boxes, scores), limit)
    expected = slow_suppression(boxes, scores, limit)
    np.testing.assert_array_equal(kept.boxes, boxes[expected])
    np.testing.assert_array_equal(kept.scores, scores[expected])


def test_a_coco_ground_truth_gives_people_by_file_name(tmp_path: Path) -> None:
    person = {"image_id": 7, "category_id": 1}
    value = {
        "images": [{"id": 7, "file_name": "train/a.jpg"}, {"id": 9, "file_name": "b.jpg"}],
        "annotations": [
            person | {"bbox": [1, 2, 10, 20]},
            person | {"bbox": [5, 5, 3, 3], "category_id": 18},
            person | {"bbox": [5, 5, 0, 3]},
            person | {"bbox": [0, 0, 90, 90], "iscrowd": 1},
        ],
    }
    (tmp_path / "gt.json").write_text(json.dumps(value))
    file = BoxFile(tmp_path / "gt.json")
    for name in ("train/a.jpg", "elsewhere/a.jpg"):
        found = file(name)
        assert found is not None
        assert found.boxes.tolist() == [[1, 2, 11, 22]]
        assert found.scores.tolist() == [1]
        assert file.image_id(name) == 7
    nobody = file("b.jpg")
    assert nobody is not None
    assert len(nobody) == 0, "listed without people: nobody"
    assert file("c.jpg") is None, "not listed: not known"
    assert not file.detections


def test_a_list_of_results_gives_scores(tmp_path: Path) -> None:
    rows = [{"file_name": "a.jpg", "image_id": 3, "category_id": 1, "bbox": [0, 0, 4, 5], "score": 0.25}]
    (tmp_path / "r.json").write_text(json.dumps(rows))
    file = BoxFile(tmp_path / "r.json")
    found = file("a.jpg")
    assert found is not None
    assert found.scores.tolist() == [0.25]
    assert file.detections
    assert file.image_id("a.jpg") == 3


@pytest.mark.parametrize("text", ["{", "{}", '{"images": [], "annotations": [{"image_id": 1, "bbox": [1]}]}', "[1]"])
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=r"boxes .*x\.json"):
        BoxFile(tmp_path / "x.json")


def test_shapes_and_places() -> None:
    with pytest.raises(ValueError, match=r"give \[n, 4\]"):
        Boxes(np.zeros((2, 3), np.float32), np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="finite"):
        as_boxes([[0, 0, np.nan, 1]])
    assert len(as_boxes([])) == 0
    image = np.zeros((10, 20, 3), np.uint8)
    found = on_picture(as_boxes([[-5, -5, 3, 3], [20, 0, 30, 10], [0, 0, 20, 10], [5, 5, 5.5, 9]]), image)
    assert found.boxes.tolist() == [[-5, -5, 3, 3], [0, 0, 20, 10]]
