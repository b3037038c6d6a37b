"""The values that flow through curation: where an input is, its bytes, and a batch for a scorer."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curation.reasons import Reason

Pixels = npt.NDArray[np.uint8]
"""RGB, uint8 [height, width, 3], EXIF orientation applied."""

LOCATOR_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("uri", pa.string(), nullable=False),
        pa.field("member", pa.string(), nullable=False),
        pa.field("offset", pa.int64()),
        pa.field("size", pa.int64()),
        pa.field("metadata", pa.string()),
        pa.field("problem", pa.string()),
        pa.field("problem_detail", pa.string()),
    ]
)
"""How a listing is stored; one row per input, in source order."""


def record_id(uri: str, member: str) -> str:
    """The stable 128-bit id of an input, as 32 hex characters.

    `uri` is relative to the source's root, so that a pool can be moved or mounted elsewhere without new ids.
    """
    return hashlib.blake2b(f"{uri}\0{member}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Locator:
    """Where one input lives.

    Attributes:
        id: `record_id(uri, member)`.
        uri: file or container, relative to the source's root, with `/` separators.
        member: tar member name or Parquet row index; empty for a plain file. Unique within `uri`.
        offset: first byte inside `uri`, or None when the source has no byte addressing.
        size: encoded bytes, or None when unknown before reading.
        metadata: JSON object of sidecar values (caption, licence, url, ...), or None.
        problem: set at listing when the input is known to be unreadable (a broken container, a link).
    """

    id: str
    uri: str
    member: str = ""
    offset: int | None = None
    size: int | None = None
    metadata: str | None = None
    problem: Reason | None = None
    problem_detail: str | None = None


@dataclass(frozen=True, slots=True)
class Payload:
    """The bytes of one input, or the reason why there are none.

    `columns` carries what reading itself learned (HTTP status, final URL, error code): see
    `curation.sources.base.READ_COLUMNS`.
    """

    data: bytes | None
    reason: Reason | None = None
    detail: str | None = None
    columns: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Batch:
    """Rows for one call of a scorer, in input order. Every list has one entry per row.

    Attributes:
        ids: record ids.
        pixels: working-size pictures, or empty when the scorer does not need pixels.
        columns: the earlier columns that the scorer declared in `needs`; None marks a missing value.
    """

    ids: list[str]
    pixels: list[Pixels]
    columns: dict[str, list[Any]]

    def __len__(self) -> int:
        return len(self.ids)

    def slice(self, start: int, stop: int) -> Batch:
        """Rows [start, stop)."""
        return Batch(
            self.ids[start:stop],
            self.pixels[start:stop],
            {name: values[start:stop] for name, values in self.columns.items()},
        )
