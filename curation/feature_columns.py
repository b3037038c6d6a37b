"""The columns of a feature table, from the types that people store them in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_EXPONENTS = (-9, 1)  # of the largest value of a vector whose length is about 1, which float16 holds well as it is


class BadValueError(ValueError):
    """A value that its column cannot have: `row` is its position, `what` completes "the column ..."."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(what)
        self.row, self.what = row, what


@dataclass(frozen=True, slots=True)
class Column:
    """How a column is taken.

    Attributes:
        allows: whether a type is taken.
        convert: an array of such a type as the column's own; raises `BadValueError`.
        allowed: the types in words.
    """

    allows: Callable[[pa.DataType], bool]
    convert: Callable[[pa.Array], pa.Array]
    allowed: str


def _to_ids(array: pa.Array) -> pa.Array:
    return array.cast(pa.string())


def _to_sha256(array: pa.Array) -> pa.Array:
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        texts = [None if value is None else value.hex() for value in array.to_pylist()]
        array = pa.array(texts, pa.string())
    lower = pc.utf8_lower(array.cast(pa.string()))
    _require(lower, "^[0-9a-f]{64}$", "is no SHA-256: give 64 hex characters")
    return lower


def _to_hash(array: pa.Array) -> pa.Array:
    if pa.types.is_uint64(array.type):
        return array
    if pa.types.is_int64(array.type):
        return array.view(pa.uint64())
    lower = pc.utf8_lower(array.cast(pa.string()))
    _require(lower, "^[0-9a-f]{16}$", "is no 64-bit hash: give 16 hex characters")
    data = bytes.fromhex("".join(pc.fill_null(lower, "0" * 16).to_pylist()))
    values = np.frombuffer(data, dtype=">u8").astype(np.uint64)
    return pa.array(values, pa.uint64(), mask=np.asarray(lower.is_null()))


def _require(texts: pa.Array, pattern: str, what: str) -> None:
    good = pc.fill_null(pc.match_substring_regex(texts, pattern), True)
    if not pc.all(good).as_py() and len(good):
        raise BadValueError(pc.index(good, False).as_py(), what)


def _to_embedding(array: pa.Array) -> pa.Array:
    lengths = pc.list_value_length(array)
    missing = np.asarray(lengths.is_null())
    counts = np.asarray(pc.fill_null(lengths, 0)).astype(np.int64)
    width = int(counts[~missing][0]) if not missing.all() else 0
    uneven = np.flatnonzero(~missing & ((counts != width) | (counts == 0)))
    if len(uneven):
        row = int(uneven[0])
        what = f"has {counts[row]} values and an earlier row has {width}" if counts[row] else "is an empty list"
        raise BadValueError(row, f"{what}: all embeddings must be of one length, and null where there is none")
    flat = array.flatten()
    if flat.null_count:
        row = int(np.flatnonzero(~missing)[pc.index(flat.is_null(), True).as_py() // width])
        raise BadValueError(row, "has a null among its values: make the whole embedding null")
    values = np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(-1, max(width, 1))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), pa.int32())
    data = pa.array(_to_half(values).reshape(-1), pa.float16())
    return pa.ListArray.from_arrays(offsets, data, type=pa.list_(pa.float16()), mask=pa.array(missing, pa.bool_()))


def _to_half(values: npt.NDArray[Any]) -> npt.NDArray[np.float16]:
    """float16 of vectors [n, d]. Those too long or too short for it are scaled by a power of two, which is exact and
    changes no cosine."""
    if values.dtype == np.float16 or not len(values):
        return values.astype(np.float16)
    peak = np.abs(values).max(axis=1)
    exponent = np.frexp(peak)[1]
    outside = ((exponent < _EXPONENTS[0]) | (exponent > _EXPONENTS[1])) & np.isfinite(peak) & (peak > 0)
    with np.errstate(over="ignore"):  # a value that is not finite stays so, and its row is not used
        return np.ldexp(values, np.where(outside, -exponent, 0)[:, None]).astype(np.float16)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _is_id(type_: pa.DataType) -> bool:
    return _is_text(type_) or bool(pa.types.is_integer(type_))


def _is_sha256(type_: pa.DataType) -> bool:
    binary = pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_)
    return _is_text(type_) or bool(binary)


def _is_hash(type_: pa.DataType) -> bool:
    return _is_text(type_) or bool(pa.types.is_uint64(type_) or pa.types.is_int64(type_))


def _is_embedding(type_: pa.DataType) -> bool:
    lists = pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)
    return bool(lists and pa.types.is_floating(type_.value_type))


_HASH_TYPES = "uint64, int64 with the same bits, or string of 16 hex characters"
COLUMNS: dict[str, Column] = {
    "id": Column(_is_id, _to_ids, "string or a whole number"),
    "sha256": Column(_is_sha256, _to_sha256, "string of 64 hex characters, or binary of 32 bytes"),
    "phash": Column(_is_hash, _to_hash, _HASH_TYPES),
    "phash_mirrored": Column(_is_hash, _to_hash, _HASH_TYPES),
    "phash_degenerate": Column(pa.types.is_boolean, lambda array: array, "bool"),
    "embedding": Column(_is_embedding, _to_embedding, "list or fixed-size list of float16, float32 or float64"),
}
