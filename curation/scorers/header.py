"""What the encoded bytes say before any pixel is decoded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from curation.codecs.rights import data_mining
from curation.config import fingerprint
from curation.decode import DecodeConfig, Header, Problem, read_header


class HeaderScorer:
    """Measures encoded bytes, so it is not a `Scorer`: those take decoded batches.

    Columns: `format` and `mode` (see `curation.decode.Header`); `width`, `height`, `short_side`, `long_side` in
    pixels, orientation applied; `aspect` = long / short >= 1; `orientation` EXIF 1..8; `frames`; `bytes`;
    `data_mining`, what the image says of it (`curation.codecs.rights`), None when nothing; `sha256`, 64 hex characters.
    `bytes` and `sha256` are there for every row, the rest is None without a header.
    """

    name: ClassVar[str] = "header"
    version: ClassVar[int] = 2
    columns: ClassVar[Mapping[str, pa.DataType]] = {
        "format": pa.string(),
        "mode": pa.string(),
        "width": pa.int32(),
        "height": pa.int32(),
        "short_side": pa.int32(),
        "long_side": pa.int32(),
        "aspect": pa.float32(),
        "orientation": pa.int8(),
        "frames": pa.int32(),
        "data_mining": pa.string(),
        "bytes": pa.int64(),
        "sha256": pa.string(),
    }

    def __init__(self, decode: DecodeConfig | None = None) -> None:
        self.decode_config = decode or DecodeConfig()

    def fingerprint(self) -> str:
        """Identity of the columns and problems: the same fingerprint promises the same for the same bytes."""
        return fingerprint(self.name, self.version, self.decode_config)

    def measure(self, data: bytes) -> tuple[dict[str, Any], Header | Problem]:
        """Columns of one input, and its header or why it is refused. Never raises on the bytes."""
        header = read_header(data, self.decode_config)
        columns: dict[str, Any] = dict.fromkeys(self.columns)
        columns["bytes"] = len(data)
        columns["sha256"] = hashlib.sha256(data).hexdigest()
        if isinstance(header, Header):
            short, long = sorted((header.width, header.height))
            columns.update(
                format=header.format,
                mode=header.mode,
                width=header.width,
                height=header.height,
                short_side=short,
                long_side=long,
                aspect=long / short,
                orientation=header.orientation,
                frames=header.frames,
                data_mining=data_mining(data, header.format),
            )
        return columns, header
