"""The fitted hierarchy: assignment, the way up, sizes, and a file that survives the way to disk and back."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from curation.balance import NO_LEAF, Hierarchy

AXES = np.eye(4, dtype=np.float32)
TREE = Hierarchy(
    (AXES, AXES[:2], AXES[:1]),
    (np.array([0, 1, 1, 0], np.int32), np.array([0, 0], np.int32)),
)


def test_rows_go_to_the_nearest_leaf_at_any_length() -> None:
    rows = np.array([[0, 9, 1, 0], [0.1, 0, 0, 0.2], [0, 0, 0, 0], [np.nan, 1, 0, 0], [5, 5, 0, 0]], np.float32)
    assert TREE.assign(rows).tolist() == [1, 3, NO_LEAF, NO_LEAF, 0]
    assert TREE.assign(rows.astype(np.float16)).dtype == np.int32
    assert TREE.assign(np.empty((0, 4), np.float32)).tolist() == []


def test_assignment_does_not_depend_on_the_other_rows() -> None:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((50, 32)).astype(np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    tree = Hierarchy((centres,), ())
    rows = rng.standard_normal((300, 32)).astype(np.float16)
    whole = tree.assign(rows)
    assert np.array_equal(
        np.concatenate([tree.assign(rows[:1]), tree.assign(rows[1:200]), tree.assign(rows[200:])]), whole
    )


def test_the_way_up() -> None:
    assert TREE.path(2).tolist() == [2, 1, 0]
    assert TREE.path([3, NO_LEAF, 1]).tolist() == [[3, 0, 0], [NO_LEAF] * 3, [1, 1, 0]]
    assert TREE.path(np.empty(0, np.int32)).shape == (0, 3)
    with pytest.raises(ValueError, match=r"-1\.\.3"):
        TREE.path([4])
    with pytest.raises(ValueError, match="integers"):
        TREE.path([0.5])


def test_sizes_add_up_at_each_level() -> None:
    assert [part.tolist() for part in TREE.sizes([5, 2**60, 1, 0])] == [[5, 2**60, 1, 0], [5, 2**60 + 1], [2**60 + 6]]
    with pytest.raises(ValueError, match="4 leaves"):
        TREE.sizes([1, 2])


def test_to_a_file_and_back(tmp_path: Path) -> None:
    path = tmp_path / "tree"  # no suffix is added
    TREE.save(path)
    TREE.save(str(tmp_path / "again.npz"))
    assert path.read_bytes() == (tmp_path / "again.npz").read_bytes() == TREE.to_bytes()
    for back in (Hierarchy.load(path), Hierarchy.from_bytes(path.read_bytes())):
        assert back.to_bytes() == TREE.to_bytes()
        assert all(np.array_equal(a, b) for a, b in zip(back.centroids, TREE.centroids, strict=True))
        assert all(np.array_equal(a, b) for a, b in zip(back.parents, TREE.parents, strict=True))
    with np.load(path, allow_pickle=False) as plain:
        assert set(plain.files) == {"format", "centroids_0", "centroids_1", "centroids_2", "parents_0", "parents_1"}


def test_an_empty_hierarchy_keeps_its_dimensions() -> None:
    tree = Hierarchy((np.empty((0, 7), np.float32),) * 2, (np.empty(0, np.int32),))
    back = Hierarchy.from_bytes(tree.to_bytes())
    assert back.assign(np.ones((2, 7), np.float32)).tolist() == [NO_LEAF, NO_LEAF]
    with pytest.raises(ValueError, match="7 dimensions"):
        back.assign(np.ones((2, 6), np.float32))


def archive(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def test_other_files_are_errors() -> None:
    whole = TREE.to_bytes()
    plain = io.BytesIO()
    np.save(plain, AXES)
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}], object), allow_pickle=True)
    for data in (
        b"",
        b"no such thing",
        whole[: len(whole) // 2],
        plain.getvalue(),
        pickled.getvalue(),
        archive(x=AXES),
    ):
        with pytest.raises(ValueError, match="not a hierarchy"):
            Hierarchy.from_bytes(data)
    objects = archive(format=np.array(1), centroids_0=np.array([{}], object))
    with pytest.raises(ValueError, match="not a hierarchy"):
        Hierarchy.from_bytes(objects)
    later = archive(format=np.array(2), centroids_0=AXES)
    with pytest.raises(ValueError, match="format 1"):
        Hierarchy.from_bytes(later)
    damaged = bytearray(whole)
    damaged[len(damaged) // 4] ^= 1
    with pytest.raises((ValueError, zipfile.BadZipFile)):
        Hierarchy.from_bytes(bytes(damaged))


@pytest.mark.parametrize(
    ("centroids", "parents", "what"),
    [
        ((), (), "levels of centroids"),
        ((AXES, AXES), (), "parents for each level"),
        ((AXES.astype(np.float64),), (), "float32"),
        ((AXES, AXES[:, :2]), (np.zeros(4, np.int32),), "level 1"),
        ((AXES, AXES[:2]), (np.zeros(3, np.int32),), "int32 \\[4\\]"),
        ((AXES, AXES[:2]), (np.full(4, 2, np.int32),), "0..1"),
        ((AXES, AXES[:2]), (np.zeros(4, np.int64),), "int64"),
    ],
)
def test_arrays_that_do_not_fit_are_errors(centroids, parents, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Hierarchy(centroids, parents)
