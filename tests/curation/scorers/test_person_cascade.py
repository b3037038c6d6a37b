"""Users rely on: rising scores in 0..1, no face reported twice, a clear error without OpenCV's cascades."""

import math

import cv2
import pytest

from curation.scorers.base import MissingWeightsError
from curation.scorers.person_cascade import CascadePersonConfig, CascadePersonScorer, _load, suppress
from curation.scorers.person_face import Face


def test_scores_rise_with_the_stage_sum_and_stay_in_range():
    scorer = CascadePersonScorer(CascadePersonConfig())
    files = [cv2.data.haarcascades + item.name for item in scorer.check()]
    for file in files:
        cascade = _load(file)
        assert math.isfinite(cascade.threshold)
        assert cascade.threshold < cascade.highest
        span = cascade.highest - cascade.threshold
        scores = [cascade.score(cascade.threshold + share * span) for share in (-0.1, 0, 0.05, 0.1, 0.3, 1)]
        assert scores[:2] == [0, 0]
        assert scores[1:] == sorted(set(scores[1:]))
        assert scores[-1] < 1


def test_suppress_keeps_the_best_of_overlapping_faces():
    a, b, c = Face((0, 0, 10, 10), 0.5), Face((1, 1, 11, 11), 0.8), Face((8, 8, 18, 18), 0.4)
    assert suppress([a, b, c]) == [b, c]
    assert suppress([]) == []


def test_check_names_the_fix_when_opencv_has_no_cascades(monkeypatch):
    monkeypatch.delattr(cv2, "CascadeClassifier")
    with pytest.raises(MissingWeightsError, match=r"opencv-python-headless>=4\.10,<5"):
        CascadePersonScorer(CascadePersonConfig()).check()
