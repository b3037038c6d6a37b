from typing import Any

import numpy as np
import pytest

from training.data.labelled import Picture, pointmap

H, W = 5, 7


def picture(**labels: Any) -> Picture:
    plain = {
        "image": np.zeros((H, W, 3), np.uint8),
        "mask": np.zeros((H, W), np.bool_),
        "person": np.full((H, W), -1, np.int16),
    }
    return Picture(**{**plain, **labels})


def test_a_picture_may_lack_every_label() -> None:
    bare = picture()
    assert bare.size == (H, W)
    assert bare.parts is None
    assert bare.keypoints is None
    assert bare.intrinsics is None


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("image", np.zeros((H, W, 3), np.float32), TypeError),
        ("mask", np.zeros((H, W + 1), np.bool_), ValueError),
        ("person", None, TypeError),
        ("depth", np.zeros((H, W), np.float64), TypeError),
        ("normals", np.zeros((3, H, W), np.float32), ValueError),
        ("intrinsics", np.eye(4), ValueError),
        ("keypoints", np.zeros((2, 17, 2), np.float32), ValueError),
        ("boxes", [[0, 0, 1, 1]], TypeError),
    ],
)
def test_a_label_of_another_shape_or_type_is_named(name: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=name):
        picture(**{name: value})


def test_keypoints_boxes_and_areas_list_the_same_people() -> None:
    labels = {"keypoints": np.zeros((2, 17, 3), np.float32), "boxes": np.zeros((2, 4), np.float32)}
    assert picture(**labels).areas is None
    with pytest.raises(ValueError, match="the same people"):
        picture(**labels, areas=np.zeros(3, np.float32))


def test_pointmap_inverts_the_projection() -> None:
    rng = np.random.default_rng(0)
    depth = rng.uniform(0.5, 9, (H, W)).astype(np.float32)
    depth[1, 2] = 0
    k = np.array([[80.0, 0, 2.5], [0, 90.0, 2.0], [0, 0, 1]])
    points = pointmap(depth, k)
    assert points.dtype == np.float32
    assert points.shape == (H, W, 3)
    assert (points[1, 2] == 0).all()
    for v in range(H):
        for u in range(W):
            if depth[v, u]:
                projected = k @ points[v, u].astype(np.float64)
                np.testing.assert_allclose(projected / projected[2], [u, v, 1], atol=1e-4)
                assert points[v, u, 2] == depth[v, u]


def test_pointmap_refuses_what_it_cannot_unproject() -> None:
    depth = np.ones((H, W), np.float32)
    with pytest.raises(ValueError, match="depth"):
        pointmap(depth[None], np.eye(3))
    with pytest.raises(ValueError, match="positive focal"):
        pointmap(depth, np.diag([1.0, 0.0, 1.0]))
    with pytest.raises(ValueError, match="skew"):
        pointmap(depth, np.array([[1.0, 0.1, 0], [0, 1, 0], [0, 0, 1]]))
