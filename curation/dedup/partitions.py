"""The kernel of the neighbour search: exact search among the rows of one k-means partition, in tiles.

Two rows are compared where one is at home and the other at home or visiting (`curation.dedup.neighbours`). A tile of
float32 products lets through what may reach the threshold, by `dot_slack`; each such pair is decided in float64: one by
one, or where a tile is full of pairs (a cloud of near copies) by a float64 product, which leaves only the pairs whose
cosine is within its error of the threshold, or of a step of float32, to be taken one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from curation.dedup.links import Kind, Links
from curation.vectors import (
    Indices,
    Unit,
    Vectors,
    check_vectors,
    cosines,
    dot_slack,
    group_rows,
    row_blocks,
    squares,
    unit_rows,
)

_TILE = 2048
_CACHED_TILES = 64  # of 4 MB at 512 dimensions
_PAIRS = 1 << 20
_DENSE = 0.03  # share of a tile's pairs from which a float64 product is faster than one by one


def check_threshold(threshold: float) -> None:
    """Raise unless the threshold is a cosine."""
    if not -1 <= threshold <= 1:
        raise ValueError(f"threshold must be a cosine from -1 to 1, got {threshold}")


def partition_links(
    vectors: npt.ArrayLike, rows: npt.ArrayLike, assigned: npt.ArrayLike, partition: int, threshold: float
) -> Iterator[Links]:
    """The links that one partition finds.

    Args:
        vectors: float16 or float32 [n, d]: all rows that have `partition` among theirs. Rows all zero or not finite
            take no part.
        rows: int64 [n], distinct row numbers, in any order; negative ones are rows of an earlier corpus.
        assigned: int32 [n, m] `nearest` of each row; column 0 is its home. Equal rows have equal entries.
        partition: this partition.
        threshold: cosine, -1..1.

    Yields:
        SAME_VECTOR links of groups at home here, and NEAR_VECTOR links with the exact cosine rounded to float32. Over
        all partitions each link comes once. No link joins two negative rows, nor two groups that both hold one: their
        other rows are duplicates of those. The links do not depend on the order of the rows.

    Raises:
        TypeError, ValueError: wrong types, shapes, or a threshold out of range.
    """
    given = check_vectors(vectors)
    check_threshold(threshold)
    numbers = np.asarray(rows, dtype=np.int64)
    places = np.asarray(assigned, dtype=np.int32)
    if numbers.shape != (len(given),) or places.ndim != 2 or len(places) != len(given):
        raise ValueError(
            f"vectors, rows and assigned must have one entry per row, got shapes {given.shape}, {numbers.shape} and "
            f"{places.shape}"
        )
    return _partition_links(given, numbers, places, partition, threshold)


def _partition_links(
    vectors: Vectors, rows: Indices, assigned: npt.NDArray[np.int32], partition: int, threshold: float
) -> Iterator[Links]:
    square = squares(vectors)
    groups = group_rows(vectors)
    # In ascending order of row numbers a group's first row is its name.
    order = groups.rows[np.lexsort([rows[groups.rows], np.repeat(np.arange(len(groups.starts)), groups.counts)])]
    first = order[groups.starts]
    usable = np.isfinite(square[first]) & (square[first] > 0)
    at_home = usable & (assigned[first, 0] == partition)

    member = np.repeat(at_home, groups.counts) & (rows[order] >= 0)
    member[groups.starts] = False
    if member.any():
        yield Links.of(Kind.SAME_VECTOR, rows[np.repeat(first, groups.counts)[member]], rows[order[member]], 1.0)

    by_name = first[usable]
    by_name = by_name[np.argsort(rows[by_name])]
    home = by_name[assigned[by_name, 0] == partition]
    visiting = by_name[assigned[by_name, 0] != partition]
    search = _Search(vectors, square, rows, assigned, partition, threshold)
    yield from search.run(home, home, triangle=True)
    yield from search.run(visiting, home, triangle=False)


class _Search:
    """Blocked search among some rows of one partition."""

    def __init__(
        self,
        vectors: Vectors,
        square: npt.NDArray[np.float64],
        rows: Indices,
        assigned: npt.NDArray[np.int32],
        partition: int,
        threshold: float,
    ) -> None:
        self._vectors, self._squares, self._rows, self._assigned = vectors, square, rows, assigned
        self._partition = partition
        self._threshold = threshold
        self._filter = np.nextafter(np.float32(threshold - dot_slack(vectors.shape[1])), np.float32(-np.inf))
        # As `dot_slack` with float64 for float32, for the product and for the cosine that it stands for.
        self._product_error = 4 * dot_slack(vectors.shape[1]) * 2.0**-29
        self._buffer = np.empty(0, dtype=np.float32)

    def run(self, left: Indices, right: Indices, triangle: bool) -> Iterator[Links]:
        """Links between `left` and `right`, with `triangle` between the members of one list."""
        column_tile = lru_cache(_CACHED_TILES)(lambda start: self._unit(right[start : start + _TILE]))
        # Both lists ascend by row number: rows of an earlier corpus come first, and are not compared with one another.
        own = int(np.searchsorted(self._rows[right], 0)) // _TILE * _TILE
        for top in range(0, len(left), _TILE):
            block = left[top : top + _TILE]
            tile = column_tile(top) if triangle else self._unit(block)
            begin = top if triangle else 0
            if self._rows[block[-1]] < 0:
                begin = max(begin, own)
            for start in range(begin, len(right), _TILE):
                other = column_tile(start)
                scores = np.matmul(tile, other.T, out=self._scores(len(tile), len(other)))
                hits = np.flatnonzero(scores >= self._filter)
                right_block = right[start : start + _TILE]
                products = self._products(block, right_block) if len(hits) > _DENSE * scores.size else None
                for part in range(0, len(hits), _PAIRS):
                    hit = hits[part : part + _PAIRS]
                    i, j = np.divmod(hit, len(other))
                    if triangle and start == top:
                        hit, i, j = hit[i < j], i[i < j], j[i < j]
                    links = self._decide(block[i], right_block[j], None if products is None else products[hit])
                    if len(links):
                        yield links

    def _products(self, left: Indices, right: Indices) -> npt.NDArray[np.float64]:
        """Cosines of all pairs, flat, to `_product_error`."""
        a = self._vectors[left].astype(np.float64) / np.sqrt(self._squares[left])[:, None]
        b = self._vectors[right].astype(np.float64) / np.sqrt(self._squares[right])[:, None]
        products: npt.NDArray[np.float64] = (a @ b.T).ravel()
        return np.clip(products, -1.0, 1.0, out=products)

    def _unit(self, which: Indices) -> Unit:
        return unit_rows(self._vectors[which])[0]

    def _scores(self, height: int, width: int) -> npt.NDArray[np.float32]:
        if len(self._buffer) < height * width:
            self._buffer = np.empty(height * width, dtype=np.float32)
        return self._buffer[: height * width].reshape(height, width)

    def _decide(self, i: Indices, j: Indices, products: npt.NDArray[np.float64] | None) -> Links:
        """The links among candidate pairs of positions; j is at home here."""
        wanted = (self._rows[i] >= 0) | (self._rows[j] >= 0)
        # Where j visits i's home too, both partitions see the pair, and the smaller one reports it.
        i_home = self._assigned[i, 0]
        wanted &= (i_home >= self._partition) | (self._assigned[j] != i_home[:, None]).all(axis=1)
        i, j = i[wanted], j[wanted]
        if products is None:
            cosine = _cosines(self._vectors, self._squares, i, j)
        else:
            cosine = products[wanted]
            low, high = cosine - self._product_error, np.minimum(cosine + self._product_error, 1.0)
            open_pairs = np.flatnonzero(
                (low.astype(np.float32) != high.astype(np.float32))
                | (low < self._threshold) & (high >= self._threshold)
            )
            cosine[open_pairs] = _cosines(self._vectors, self._squares, i[open_pairs], j[open_pairs])
        near = cosine >= self._threshold
        return Links.of(Kind.NEAR_VECTOR, self._rows[i[near]], self._rows[j[near]], cosine[near])


def _cosines(vectors: Vectors, square: npt.NDArray[np.float64], i: Indices, j: Indices) -> npt.NDArray[np.float64]:
    """`cosines` of rows i and j of one matrix with known `squares`, in blocks."""
    out = np.empty(len(i), dtype=np.float64)
    for block in row_blocks(len(i), vectors.shape[1]):
        p, q = i[block], j[block]
        out[block] = cosines(vectors[p], vectors[q], square[p], square[q])
    return out
