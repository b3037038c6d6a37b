"""Links: what a search for duplicates found, in the form in which it is stored, merged and resolved.

Rows that are equal in some respect never become pairs: they form a *group*, named by its smallest row, and a search
links groups. A pool with a million equal pictures costs a million links, not half a billion.

Rows are numbered from 0 in source order. Negative numbers are rows of an earlier corpus (`select.against`): they are
always kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class Kind(IntEnum):
    """What a link says of `a` and `b`."""

    SAME_BYTES = 0
    """Row b belongs to the group of equal content that is named a; a < b. value: 0."""
    SAME_HASH = 1
    """Row b belongs to the group of equal perceptual hash that is named a; a < b. value: 0."""
    NEAR_HASH = 2
    """The hash groups named a and b are within the radius; a < b. value: their Hamming distance, bits."""
    SAME_VECTOR = 3
    """Row b belongs to the group of equal embedding that is named a; a < b. value: 1."""
    NEAR_VECTOR = 4
    """The embedding groups named a and b are neighbours; a < b. value: their cosine."""


LINK_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("a", pa.int64(), nullable=False),
        pa.field("b", pa.int64(), nullable=False),
        pa.field("value", pa.float32(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Links:
    """m links as columns.

    Attributes:
        kind: int8 [m], values of `Kind`.
        a, b: int64 [m], rows; a < b. A link may come more than once.
        value: float32 [m], see `Kind`.
    """

    kind: npt.NDArray[np.int8]
    a: npt.NDArray[np.int64]
    b: npt.NDArray[np.int64]
    value: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def of(cls, kind: Kind, a: npt.ArrayLike, b: npt.ArrayLike, value: npt.ArrayLike) -> Links:
        """Links of one kind; the ends may come in either order, `value` may be one number."""
        left, right = np.asarray(a, np.int64), np.asarray(b, np.int64)
        values = np.broadcast_to(np.asarray(value, np.float32), left.shape)
        return cls(np.full(len(left), kind, np.int8), np.minimum(left, right), np.maximum(left, right), values)

    @classmethod
    def none(cls) -> Links:
        """No links."""
        empty = np.empty(0, np.int64)
        return cls(np.empty(0, np.int8), empty, empty, np.empty(0, np.float32))

    @classmethod
    def concat(cls, parts: Iterable[Links]) -> Links:
        """All links of some parts."""
        held = [cls.none(), *parts]
        return cls(
            np.concatenate([part.kind for part in held]),
            np.concatenate([part.a for part in held]),
            np.concatenate([part.b for part in held]),
            np.concatenate([part.value for part in held]),
        )

    def take(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Links:
        """Some of the links, by mask or position."""
        return Links(self.kind[which], self.a[which], self.b[which], self.value[which])

    def to_table(self) -> pa.Table:
        """As Arrow, `LINK_SCHEMA`."""
        return pa.table([self.kind, self.a, self.b, self.value], schema=LINK_SCHEMA)

    @classmethod
    def from_table(cls, table: pa.Table) -> Links:
        """Back from Arrow."""
        return cls(*(table.column(name).to_numpy() for name in LINK_SCHEMA.names))
