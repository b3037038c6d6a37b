"""Users rely on: the body estimate follows the stated proportions, in original pixels, clipped."""

import numpy as np
import pytest

from curation.records import Batch
from curation.scorers.person_columns import ESTIMATED_FROM_FACE, FACE5, TRUNCATED_BOTTOM, TRUNCATED_TOP
from curation.scorers.person_face import (
    Face,
    FaceDetectorConfig,
    FacePersonScorer,
    body_box,
    framing_from_face,
    person_from_face,
    shrink,
)


def test_body_is_seven_and_a_half_heads_high_and_centred():
    x1, y1, x2, y2 = body_box((90, 100, 170, 200))
    head = 100 * 1.25
    assert (y1, y2) == (200 - head, 200 - head + 7.5 * head)
    assert (x1 + x2) / 2 == 130
    assert x2 - x1 == pytest.approx(2.05 * head)


@pytest.mark.parametrize(
    ("height", "framing"),
    [(1200, "full"), (800, "three_quarter"), (600, "half"), (300, "head_shoulders"), (240, "face")],
)
def test_framing_from_how_much_is_below_the_face(height, framing):
    assert framing_from_face((100, 100, 180, 200), height) == framing


def test_person_at_the_border_is_clipped_and_its_landmarks_outside_are_not_visible():
    landmarks = np.array([[-3.0, 10], [20, 10], [10, 20], [0, 30], [18, 30]])
    person = person_from_face(Face((-10, -5, 30, 45), 0.9, landmarks), 60, 200)
    assert person.box[:2] == (0, 0)
    assert person.truncation & TRUNCATED_TOP
    assert person.truncation & TRUNCATED_BOTTOM
    assert person.face_box == (0, 0, 30, 45)
    assert person.keypoints[:, 2].tolist() == [0, 1, 1, 1, 1]
    assert person_from_face(Face((-40, 0, -5, 45), 0.9), 60, 200) is None


def test_shrink_never_enlarges_and_is_contiguous():
    picture = np.arange(30 * 20 * 3, dtype=np.uint8).reshape(30, 20, 3)
    assert shrink(picture, 64) is picture
    turned = shrink(picture.transpose(1, 0, 2), 64)
    assert turned.flags.c_contiguous
    assert shrink(np.zeros((1000, 500, 3), np.uint8), 640).shape == (640, 320, 3)
    assert shrink(np.zeros((3000, 1, 3), np.uint8), 640).shape == (640, 1, 3)


class Fixed(FacePersonScorer):
    """Reports one face that fills the middle of whatever it is given."""

    def detect(self, pixels):
        height, width = pixels.shape[:2]
        box = (width * 0.4, height * 0.1, width * 0.6, height * 0.3)
        landmarks = np.array([[0.45, 0.15], [0.55, 0.15], [0.5, 0.2], [0.46, 0.25], [0.54, 0.25]]) * (width, height)
        return [Face(box, 0.9, landmarks), Face(box, 0.3, landmarks)]


def test_coordinates_are_original_pixels_and_low_scores_are_left_out():
    scorer = Fixed(FaceDetectorConfig(kind="fixed"))
    small = np.zeros((240, 320, 3), np.uint8)
    batch = Batch(["a", "b"], [small, small], {"width": [3200, 320], "height": [2400, 240]})
    columns = scorer.score(batch)
    assert columns["person_count"] == [1, 1]
    assert columns["face_box"] == [[1280, 240, 1920, 720], [128, 24, 192, 72]]
    assert columns["person_keypoints"][0][:3] == [1440, 360, 1]
    assert columns["person_keypoint_layout"] == [FACE5, FACE5]
    assert columns["person_box_source"] == [ESTIMATED_FROM_FACE] * 2
    assert columns["person_short_side"][0] == pytest.approx(10 * columns["person_short_side"][1])
