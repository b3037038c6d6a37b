"""Embeddings as arrays: unit rows, exact cosines, equal rows, and the way in from an Arrow column.

A float32 matrix product rounds differently with the number of threads and the shape of the blocks, so here it only
ever filters, with `dot_slack` as its bound of error; what decides is `cosines`, in float64 with a fixed order of
summation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Vectors = npt.NDArray[np.float16] | npt.NDArray[np.float32]
Unit = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

_CELLS = 1 << 20  # components per block: float64 temporaries of 8 MB
_TYPES = (np.dtype(np.float16), np.dtype(np.float32))


def check_vectors(vectors: npt.ArrayLike) -> Vectors:
    """The array itself, if it is float16 or float32 [n, d].

    Raises:
        TypeError: another type.
        ValueError: another number of dimensions.
    """
    array = np.asarray(vectors)
    if array.dtype not in _TYPES:
        raise TypeError(f"vectors must be float16 or float32, got {array.dtype}: convert with .astype(numpy.float32)")
    if array.ndim != 2:
        raise ValueError(f"vectors must be [rows, dimensions], got shape {array.shape}")
    return array


def row_blocks(rows: int, width: int, cells: int = _CELLS) -> Iterator[slice]:
    """Slices of 0..rows-1 whose blocks hold about `cells` values of `width` a row."""
    step = max(1, cells // max(1, width))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def squares(vectors: Vectors) -> npt.NDArray[np.float64]:
    """Squared length of each row [n], exact to float64, in a fixed order of summation; not finite for such a row."""
    out = np.empty(len(vectors), dtype=np.float64)
    with np.errstate(invalid="ignore"):
        for block in row_blocks(*vectors.shape):
            exact = np.ascontiguousarray(vectors[block], dtype=np.float64)
            out[block] = (exact * exact).sum(axis=1)
    return out


def unit_rows(embeddings: npt.ArrayLike) -> tuple[Unit, npt.NDArray[np.bool_]]:
    """Scale rows to length 1.

    Args:
        embeddings: float16 or float32 [n, d].

    Returns:
        unit: float32 [n, d], each component the float64 quotient rounded once; zeros where not usable.
        usable: bool [n], False for rows that are all zero or hold a value that is not finite.

    Raises:
        TypeError, ValueError: see `check_vectors`.
    """
    vectors = check_vectors(embeddings)
    unit = np.zeros(vectors.shape, dtype=np.float32)
    square = squares(vectors)
    usable = np.isfinite(square) & (square > 0)
    for block in row_blocks(*vectors.shape):
        rows = usable[block]
        part = vectors[block][rows]
        unit[block][rows] = part / np.sqrt(square[block][rows])[:, None]
    return unit, usable


def cosines(
    left: Vectors,
    right: Vectors,
    left_squares: npt.NDArray[np.float64] | None = None,
    right_squares: npt.NDArray[np.float64] | None = None,
) -> npt.NDArray[np.float64]:
    """Cosine of each row of `left` with the same row of `right`.

    Float64 with a fixed order of summation: the same bits whatever rows stand beside a pair, in whatever block, on
    however many threads; the same for (a, b) and (b, a); exactly 1 for equal rows.

    Args:
        left, right: float16 or float32 [m, d], of any length.
        left_squares, right_squares: their `squares` [m], where known.

    Returns:
        float64 [m] in -1..1; NaN where a row is all zero or not finite.
    """
    if left.shape != right.shape:
        raise ValueError(f"cosines need two arrays of one shape, got {left.shape} and {right.shape}")
    if left_squares is None:
        left_squares = squares(left)
    if right_squares is None:
        right_squares = squares(right)
    dots = np.empty(len(left), dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        # Not a product of two roots: sqrt(s * s) is exactly s, sqrt(s) * sqrt(s) is not.
        product = left_squares * right_squares
        for block in row_blocks(*left.shape):
            a = np.ascontiguousarray(left[block], dtype=np.float64)
            b = np.ascontiguousarray(right[block], dtype=np.float64)
            a *= b
            dots[block] = a.sum(axis=1)
        result: npt.NDArray[np.float64] = dots / np.sqrt(product)
    result[~np.isfinite(product) | (product <= 0)] = np.nan
    return np.clip(result, -1.0, 1.0, out=result)


def dot_slack(dimensions: int) -> float:
    """Bound on |float32 dot product of two unit rows - cosine of the vectors that they were made from|.

    With u = 2^-24: a dot product of d terms in any order of summation, fused or not, is off by at most
    d u / (1 - d u) times the sum of |a_i b_i|, which is at most 1 for unit rows (Higham, Accuracy and Stability of
    Numerical Algorithms, 2nd ed., section 3.1); rounding the components of both rows to float32 adds 2 u. Six more u
    cover the second order, rows made with one more rounding, and components below the smallest normal float32, up to
    a hundred thousand dimensions.
    """
    return (dimensions + 8) * 2.0**-24


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Rows grouped by equality.

    Attributes:
        rows: int64 [n], row indices group after group, ascending inside a group. The order of the groups depends on
            their vectors only, not on where the rows stand.
        starts: int64 [g], where each group begins in `rows`.
        counts: int64 [g], rows per group.
    """

    rows: Indices
    starts: Indices
    counts: Indices

    @property
    def first(self) -> Indices:
        """The smallest row of each group, int64 [g]."""
        return self.rows[self.starts]


def row_keys(vectors: Vectors, seed: int = 0) -> npt.NDArray[np.uint64]:
    """A seeded 64-bit hash of each row's values: equal rows have equal keys, -0.0 counts as 0.0.

    The rows with the smallest keys are a sample that depends on the seed and on the vectors, not on their order.

    Args:
        vectors: float16 or float32 [n, d].
        seed: 0 or more.

    Returns:
        uint64 [n].
    """
    vectors = check_vectors(vectors)
    words = vectors.dtype.itemsize // 2 * vectors.shape[1]
    factors = np.random.Generator(np.random.PCG64(seed)).integers(0, 2**63, words, dtype=np.uint64) * np.uint64(2)
    factors |= np.uint64(1)
    keys = np.zeros(len(vectors), dtype=np.uint64)
    if words == 0:
        return keys
    for block in row_blocks(len(vectors), words):
        keys[block] = _canonical(vectors[block]).view(np.uint16).astype(np.uint64) @ factors
    # The low bits of a sum of products depend on few bits of the input; the finaliser of splitmix64 spreads them.
    keys ^= keys >> np.uint64(30)
    keys *= np.uint64(0xBF58476D1CE4E5B9)
    keys ^= keys >> np.uint64(27)
    keys *= np.uint64(0x94D049BB133111EB)
    keys ^= keys >> np.uint64(31)
    return keys


def group_rows(vectors: Vectors, seed: int = 0) -> RowGroups:
    """Group rows whose values are all equal (-0.0 equals 0.0; a NaN equals the same NaN).

    Args:
        vectors: float16 or float32 [n, d].
        seed: of the order of the groups, see `row_keys`.
    """
    vectors = check_vectors(vectors)
    n = len(vectors)
    keys = row_keys(vectors, seed)
    rows = np.argsort(keys, kind="stable").astype(np.int64)
    ordered = keys[rows]
    new = np.ones(n, dtype=np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    follow = np.flatnonzero(~new)
    collided = np.zeros(n, dtype=np.bool_)
    for block in row_blocks(len(follow), vectors.shape[1]):
        at = follow[block]
        collided[at] = (_bits(vectors[rows[at]]) != _bits(vectors[rows[at - 1]])).any(axis=1)
    if collided.any():
        bounds = np.append(np.flatnonzero(new), n)
        for run in np.unique(np.searchsorted(bounds, np.flatnonzero(collided), side="right") - 1).tolist():
            _split(vectors, rows, new, slice(int(bounds[run]), int(bounds[run + 1])))
    starts = np.flatnonzero(new).astype(np.int64)
    return RowGroups(rows, starts, np.diff(starts, append=n).astype(np.int64))


def _split(vectors: Vectors, rows: Indices, new: npt.NDArray[np.bool_], run: slice) -> None:
    """Order rows of one key that are not all equal by their bits, and mark where groups begin."""
    members = np.sort(rows[run])
    bits = _bits(vectors[members])
    order = np.lexsort(bits.T[::-1])
    bits = bits[order]
    rows[run] = members[order]
    new[run][1:] = (bits[1:] != bits[:-1]).any(axis=1)


def _bits(vectors: Vectors) -> npt.NDArray[Any]:
    words = _canonical(vectors)
    return words.view(np.uint16 if words.dtype.itemsize == 2 else np.uint32)


def _canonical(vectors: Vectors) -> npt.NDArray[Any]:
    """A contiguous copy as unsigned integers, with -0.0 as 0.0."""
    kind, minus = (np.uint16, 0x8000) if vectors.dtype.itemsize == 2 else (np.uint32, 0x80000000)
    words = np.ascontiguousarray(vectors).view(kind)
    return np.where(words == minus, kind(0), words)


def to_matrix(column: pa.Array | pa.ChunkedArray) -> tuple[npt.NDArray[np.float16], npt.NDArray[np.bool_]]:
    """An Arrow column of embeddings as a matrix.

    Args:
        column: list, large list or fixed-size list of float16, n rows, null where a row has no embedding.

    Returns:
        matrix: float16 [n, d], a missing row all zero; d is 0 where every row is missing.
        present: bool [n].

    Raises:
        TypeError: not lists of float16.
        ValueError: rows of different lengths, an empty list, or a null inside a list.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    n = len(column)
    present = np.zeros(n, dtype=np.bool_)
    if pa.types.is_null(column.type):
        return np.zeros((n, 0), dtype=np.float16), present
    lists = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    if not (lists or pa.types.is_fixed_size_list(column.type)) or column.type.value_type != pa.float16():
        raise TypeError(
            f"an embedding column must hold lists of float16 (halffloat), got {column.type}: cast it when it is written"
        )
    matrix: npt.NDArray[np.float16] | None = None
    begin = 0
    for chunk in chunks:
        valid = chunk.is_valid().to_numpy(zero_copy_only=False)
        rows = begin + np.flatnonzero(valid)
        begin += len(chunk)
        if not len(rows):
            continue
        lengths = pc.list_value_length(chunk).drop_null().to_numpy(zero_copy_only=False)
        if matrix is None:
            matrix = np.zeros((n, int(lengths[0])), dtype=np.float16)
        wrong = np.flatnonzero((lengths != matrix.shape[1]) | (lengths == 0))
        if len(wrong):
            raise ValueError(
                f"row {rows[wrong[0]]} of the embedding column has {lengths[wrong[0]]} values, the first row has "
                f"{matrix.shape[1]}: all embeddings of one run come from one model and have one length, at least 1"
            )
        values = chunk.flatten()
        if values.null_count:
            raise ValueError(
                f"{values.null_count} values inside embeddings are null: a missing embedding is a null row"
            )
        matrix[rows] = values.to_numpy(zero_copy_only=False).reshape(len(rows), -1)
        present[rows] = True
    return np.zeros((n, 0), dtype=np.float16) if matrix is None else matrix, present
