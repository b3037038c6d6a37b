"""Attributes of a picture that strata can be made of and that are not ledger columns: derived from columns.

Occlusion as such is not measured: no scorer sees what covers a person. `occlusion` is what keypoint confidences say
about it, and `truncation` is how the picture's border cuts the person.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curation.scorers.person_columns import (
    COCO17,
    FRAMINGS,
    LAYOUT_LENGTH,
    TRUNCATED_BOTTOM,
    TRUNCATED_LEFT,
    TRUNCATED_RIGHT,
    TRUNCATED_TOP,
)

Floats = npt.NDArray[np.float64]

VISIBLE = 0.5
"""Confidence from which a keypoint counts as visible; the default of `scorers.person.min_visibility`."""

TRUNCATIONS = ("none", "bottom", "side", "top")
"""Values of `truncation`: the first that applies of top, side (left or right), bottom, none."""

# Body joints of COCO17 from the shoulders down, without arms: hands go where they please.
_PAIRS = ((5, 6), (11, 12), (13, 14), (15, 16))


@dataclass(frozen=True)
class Attribute:
    """A derived attribute.

    Attributes:
        columns: ledger columns that it is computed from, with their types.
        compute: from a table with these columns to one column: numbers, or strings out of `values`; null where it
            cannot be told.
        edges: bins of a number where the configuration gives none.
        values: categories where the configuration gives none.
    """

    columns: dict[str, pa.DataType]
    compute: Callable[[pa.Table], pa.Array]
    edges: tuple[float, ...] | None = None
    values: tuple[str, ...] | None = None

    @property
    def type(self) -> pa.DataType:
        """Arrow type of what `compute` gives."""
        return pa.string() if self.edges is None else pa.float64()


def _framing(table: pa.Table) -> pa.Array:
    return _one(table.column("person_framing"))


def _person_height_share(table: pa.Table) -> pa.Array:
    boxes = _fixed(table.column("person_box"), 4)
    height = _numbers(table.column("height"))
    with np.errstate(invalid="ignore", divide="ignore"):
        return _nullable((boxes[:, 3] - boxes[:, 1]) / height)


def _truncation(table: pa.Table) -> pa.Array:
    column = _one(table.column("person_truncation"))
    bits = np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False)).astype(np.int64)
    side = (bits & (TRUNCATED_LEFT | TRUNCATED_RIGHT)) != 0
    which = np.select([(bits & TRUNCATED_TOP) != 0, side, (bits & TRUNCATED_BOTTOM) != 0], [3, 2, 1], 0)
    return pa.array(TRUNCATIONS).take(pa.array(which, mask=np.asarray(column.is_null())))


def _occlusion(table: pa.Table) -> pa.Array:
    coco = np.asarray(pc.equal(_one(table.column("person_keypoint_layout")), COCO17).fill_null(False))
    points = np.full((len(table), 3 * LAYOUT_LENGTH[COCO17]), np.nan)
    rows = np.flatnonzero(coco)
    points[rows] = _fixed(_one(table.column("person_keypoints")).take(pa.array(rows)), points.shape[1])
    seen = points[:, 2::3] >= VISIBLE
    # Down to the lowest pair of which at least one joint is seen: below it the picture or the person may end.
    pairs = np.stack([seen[:, list(pair)].sum(axis=1) for pair in _PAIRS], axis=1)
    expected = 2 * np.max(np.where(pairs > 0, np.arange(1, len(_PAIRS) + 1), 0), axis=1)
    share = 1 - pairs.sum(axis=1) / np.maximum(expected, 1)
    return _nullable(np.where(expected > 0, share, np.nan))


ATTRIBUTES: dict[str, Attribute] = {
    # How much of the body is in the picture: FRAMINGS, as the person scorer tells.
    "framing": Attribute({"person_framing": pa.string()}, _framing, values=FRAMINGS),
    # Height of the largest person's box over the picture's height, 0..1. The edges (far, middle, near, filling the
    # picture) are ours.
    "person_height_share": Attribute(
        {"person_box": pa.list_(pa.float32()), "height": pa.int32()}, _person_height_share, edges=(0.25, 0.5, 0.85)
    ),
    # Which border cuts the largest person's box: TRUNCATIONS.
    "truncation": Attribute({"person_truncation": pa.int8()}, _truncation, values=TRUNCATIONS),
    # Of the joints from the shoulders down to the lowest ones seen, without arms: the share that the detector does not
    # see (confidence below VISIBLE), 0..1. Other things, other people, the border and the person's own body all count;
    # null without COCO17 keypoints and where no such joint is seen. The edges (nothing, little, much) are ours.
    "occlusion": Attribute(
        {"person_keypoints": pa.list_(pa.float32()), "person_keypoint_layout": pa.string()},
        _occlusion,
        edges=(0.01, 0.3),
    ),
}
"""Derived attributes by name; the other names that strata can use are the ledger's columns."""


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _numbers(column: pa.Array | pa.ChunkedArray) -> Floats:
    """float64 [n], NaN where null."""
    return np.asarray(_one(column).cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def _nullable(values: Floats) -> pa.Array:
    return pa.array(values, pa.float64(), mask=~np.isfinite(values))


def _fixed(column: pa.Array | pa.ChunkedArray, width: int) -> Floats:
    """Lists of `width` numbers as float64 [n, width]; rows of NaN where null or of another length."""
    lists = _one(column)
    matrix = np.full((len(lists), width), np.nan)
    rows = np.flatnonzero(np.asarray(pc.equal(pc.list_value_length(lists), width).fill_null(False)))
    if len(rows):
        matrix[rows] = _numbers(pc.list_flatten(lists.take(pa.array(rows)))).reshape(-1, width)
    return matrix
