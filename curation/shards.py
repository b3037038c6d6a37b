"""The deterministic WebDataset writer: original image bytes and a JSON sidecar per sample, in plain USTAR tars.

The same samples in the same order give the same bytes: header fields that vary elsewhere (time, user, mode) are fixed,
and JSON is canonical. Offsets of every image and sidecar go into an index, so that training reads by `pread` and never
parses a tar. Keys hold no dots, because readers take everything after the first dot for the extension.

A shard should hold one image format (`plan_shards(groups=...)`). Mixed formats are legal WebDataset, but Hugging Face
`datasets` infers columns from the first five samples and fails on, or loses, the other formats, and Ray's default
decoder fails on a block that lacks a column in some rows.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curation.parquet_files import write_parquet

EXTENSIONS: dict[str, str] = {
    "JPEG": "jpg",
    "PNG": "png",
    "WEBP": "webp",
    "GIF": "gif",
    "BMP": "bmp",
    "TIFF": "tif",
    "AVIF": "avif",
    "JPEG2000": "jp2",
    "PPM": "ppm",
}
"""Decoded format (`curation.codecs.base.Format`) -> file extension, whatever the source called the file."""

INDEX_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("shard", pa.string(), nullable=False),
        pa.field("extension", pa.string(), nullable=False),
        pa.field("image_offset", pa.int64(), nullable=False),
        pa.field("image_size", pa.int64(), nullable=False),
        pa.field("json_offset", pa.int64(), nullable=False),
        pa.field("json_size", pa.int64(), nullable=False),
        pa.field("sha256", pa.string(), nullable=False),
    ]
)
"""One row per sample, in tar order. Offsets are of the first data byte in the tar; `sha256` is of the image bytes."""

TAR_FORMAT = 1
INDEX_FORMAT = 1
"""Raised when the same samples would give another tar, or another index: finished exports are then written anew."""

_BLOCK = 512
_END = 2 * _BLOCK  # two zero blocks end a tar
_MAX_NAME = 100  # the name field of a USTAR header
_MAX_MEMBER = 8**11 - 1  # 11 octal digits of size
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_EXTENSION = re.compile(r"[a-z0-9]{1,8}")


@dataclass(frozen=True, slots=True)
class Sample:
    """What one sample of a shard is made of.

    Attributes:
        id: record id, for the index.
        key: WebDataset key (`check_key`).
        extension: of the image member, one of `EXTENSIONS`' values.
        data: the encoded image, as it was in the source.
        sidecar: JSON object stored beside it.
    """

    id: str
    key: str
    extension: str
    data: bytes
    sidecar: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ShardResult:
    """What was written.

    Attributes:
        shard: name without extension.
        samples: number of samples.
        bytes: size of the tar.
        sha256: of the tar, hex.
        index: `INDEX_SCHEMA` rows in tar order.
    """

    shard: str
    samples: int
    bytes: int
    sha256: str
    index: pa.Table


def shard_name(number: int) -> str:
    """`shard-000000`; numbers beyond six digits simply get longer."""
    return f"shard-{number:06d}"


def safe_key(text: str) -> str:
    """A valid key from any text: the text itself where it is one, else its safe part and a hash of the whole."""
    if _KEY.fullmatch(text) and len(text) <= _MAX_NAME - 9:
        return text
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    stem = re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:48].strip("-")
    return f"{stem}-{digest}" if stem else digest


def check_key(key: str, extension: str) -> None:
    """Raise unless `<key>.<extension>` and `<key>.json` are safe member names.

    Raises:
        ValueError: characters other than ASCII letters, digits, `-` and `_` (dots split names, slashes make folders,
            a leading `_` marks metadata), an unknown form of extension, or a name longer than 100 bytes.
    """
    if not _KEY.fullmatch(key):
        raise ValueError(
            f"key {key!r} is not safe for WebDataset: use ASCII letters, digits, '-' and '_', starting with a letter "
            "or digit, or pass it through safe_key()"
        )
    if not _EXTENSION.fullmatch(extension) or extension == "json":
        raise ValueError(f"extension {extension!r} of key {key!r} must be 1-8 lower-case letters or digits, not json")
    if len(key) + 1 + max(len(extension), len("json")) > _MAX_NAME:
        raise ValueError(f"key {key!r} is too long: name and extension must fit {_MAX_NAME} bytes; use safe_key()")


def canonical_json(value: Mapping[str, Any]) -> bytes:
    """A JSON object as canonical bytes: sorted keys, no spaces, UTF-8.

    Values that JSON or UTF-8 cannot hold come from hostile sidecars and must not stop an export: NaN and infinities
    become null, lone surrogates become U+FFFD.

    Raises:
        TypeError: a value is not a JSON type (convert NumPy and Arrow scalars first).
    """
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def write_shard(file: IO[bytes], samples: Iterable[Sample], shard: str) -> ShardResult:
    """Write one tar.

    Args:
        file: binary file open for writing; only `write` is called, in order.
        samples: in the order to be stored; consumed one at a time.
        shard: name without extension, for the index.

    Returns:
        Counts, SHA-256 and index of what was written.

    Raises:
        ValueError: an unsafe or repeated key, or a member of 8 GiB or more.
        TypeError: a sidecar that is not JSON.
    """
    digest = hashlib.sha256()
    position = 0
    seen: set[str] = set()
    columns: dict[str, list[Any]] = {name: [] for name in INDEX_SCHEMA.names}

    def put(data: bytes) -> None:
        nonlocal position
        file.write(data)
        digest.update(data)
        position += len(data)

    def member(name: str, data: bytes) -> int:
        put(_header(name, len(data)))
        offset = position
        put(data)
        put(bytes(-len(data) % _BLOCK))
        return offset

    for sample in samples:
        check_key(sample.key, sample.extension)
        if sample.key in seen:
            raise ValueError(f"key {sample.key!r} appears twice in {shard}: keys must be unique")
        seen.add(sample.key)
        sidecar = canonical_json(sample.sidecar)
        row = {
            "key": sample.key,
            "id": sample.id,
            "shard": shard,
            "extension": sample.extension,
            "image_offset": member(f"{sample.key}.{sample.extension}", sample.data),
            "image_size": len(sample.data),
            "json_offset": member(f"{sample.key}.json", sidecar),
            "json_size": len(sidecar),
            "sha256": hashlib.sha256(sample.data).hexdigest(),
        }
        for name, value in row.items():
            columns[name].append(value)
    put(bytes(_END))
    return ShardResult(shard, len(seen), position, digest.hexdigest(), pa.table(columns, schema=INDEX_SCHEMA))


def _header(name: str, size: int) -> bytes:
    """A USTAR header written out, so that it depends on no version of a tar library. Only name and size vary."""
    if size > _MAX_MEMBER:
        raise ValueError(f"member {name} has {size} bytes; a tar member holds at most {_MAX_MEMBER}")
    fields = (
        name.encode("ascii").ljust(_MAX_NAME, b"\0"),
        b"0000644\0",  # mode
        b"0000000\0" * 2,  # uid, gid
        b"%011o\0" % size,
        b"00000000000\0",  # mtime
        b" " * 8,  # checksum, as it counts while it is computed
        b"0",  # a regular file
        bytes(100),  # link name
        b"ustar\x0000",  # magic and version
        bytes(32 + 32),  # names of user and group
        b"0000000\0" * 2,  # device numbers
        bytes(155 + 12),  # prefix, and what is left of the block
    )
    header = b"".join(fields)
    return header[:148] + b"%06o\0 " % sum(header) + header[156:]


def index_bytes(index: pa.Table) -> bytes:
    """The index as a Parquet file; the same bytes for the same rows and version of pyarrow."""
    buffer = io.BytesIO()
    write_parquet(index.cast(INDEX_SCHEMA), buffer)
    return buffer.getvalue()


def sample_ends(sizes: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Bytes in a tar of the first i samples, headers and padding included: int64 [n + 1] from the sizes [n, m] or [n]
    of their members."""
    array = np.asarray(sizes, dtype=np.int64)
    if (array < 0).any():
        raise ValueError("sizes must not be negative")
    members = _BLOCK + -(-array // _BLOCK) * _BLOCK
    return np.concatenate([[0], np.cumsum(members if array.ndim == 1 else members.sum(axis=1))]).astype(np.int64)


def plan_shards(
    sizes: npt.ArrayLike, max_bytes: int, max_samples: int, groups: npt.ArrayLike | None = None
) -> npt.NDArray[np.int64]:
    """Cut samples, in order, into shards: each shard takes samples until the next would break a limit.

    Args:
        sizes: int64 [n, m], bytes of the m members of each sample: (image, sidecar). [n] means one member.
        max_bytes: largest tar, headers, padding and end marker included. A sample that is larger gets its own shard.
        max_samples: largest number of samples in a shard.
        groups: [n]; no shard holds samples of two different adjacent groups (one image format per shard).

    Returns:
        int64 [k + 1]: shard s holds samples [result[s], result[s + 1]); [0] for no samples.

    Raises:
        ValueError: a limit below 1, a negative size, or lengths that differ.
    """
    ends = sample_ends(sizes)
    n = len(ends) - 1
    if max_bytes < 1 or max_samples < 1:
        raise ValueError(f"max_bytes and max_samples must be at least 1, got {max_bytes} and {max_samples}")
    limits = np.full(n, n, dtype=np.int64)
    if groups is not None:
        group = np.asarray(groups)
        if group.shape != (n,):
            raise ValueError(f"groups must have one entry per sample, got shape {group.shape} for {n} samples")
        changes = np.append(np.flatnonzero(group[1:] != group[:-1]) + 1, n) if n else np.empty(0, dtype=np.int64)
        limits = changes[np.searchsorted(changes, np.arange(n), side="right")] if n else limits
    bounds = [0]
    while bounds[-1] < n:
        start = bounds[-1]
        fitting = int(np.searchsorted(ends, ends[start] + max_bytes - _END, side="right")) - 1
        bounds.append(min(max(fitting, start + 1), start + max_samples, int(limits[start])))
    return np.array(bounds, dtype=np.int64)


def shard_bytes(sizes: npt.ArrayLike, bounds: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Exact sizes of the tars of a plan: int64 [k], from the `sizes` and the result of `plan_shards`."""
    return np.diff(sample_ends(sizes)[np.asarray(bounds, dtype=np.int64)]) + _END
