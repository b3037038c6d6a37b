"""Users rely on: faces partly outside the picture keep small negative coordinates; a missing package is explained."""

import importlib.util

import numpy as np
import pytest

from curation.scorers.base import MissingWeightsError
from curation.scorers.person_yuface import YufacePersonConfig, YufacePersonScorer, embedded_library, signed


@pytest.mark.parametrize("dtype", [np.uint16, np.int16])
def test_wrapped_coordinates_are_undone(dtype):
    wrapped = np.array([0, 5, 32767, 65531, 65535], np.uint16).view(np.uint16).astype(dtype)
    assert signed(wrapped).tolist() == [0, 5, 32767, -5, -1]


def test_a_missing_package_is_an_error_that_names_the_fix():
    with pytest.raises(MissingWeightsError, match=r"pip install no_such_face_package.*cascade"):
        embedded_library("no_such_face_package")


def test_a_face_cut_by_the_left_border():
    pytest.importorskip("yuface")
    data = pytest.importorskip("skimage.data")
    scorer = YufacePersonScorer(YufacePersonConfig())
    cut = np.ascontiguousarray(data.astronaut()[100:300, 215:500])
    (face,) = [face for face in scorer.detect(cut) if face.score >= 0.7]
    assert -20 < face.box[0] < 0
    assert face.box[2] < 100


def test_weights_are_hashed_without_loading_them():
    if importlib.util.find_spec("yuface") is None:
        pytest.skip("yuface is not installed")
    (weights,) = YufacePersonScorer(YufacePersonConfig()).check()
    assert weights.name == "yuface/libfacedetection.so"
    assert weights.bytes > 100_000
    assert len(weights.sha256) == 64
