"""What was downloaded is kept: one container per chunk, so that a URL is asked once and export copies what was scored.

work/fetched/chunk-00000000-<random>.bin  the bodies, one after the other
work/fetched/chunk-00000000.parquet       one row per input: offset, size, reason; written last, it marks the
                                          chunk as fetched
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from curation.reasons import Reason
from curation.records import Locator, Payload
from curation.sources.base import READ_COLUMNS, Source
from pipeline.storage import Storage

_BODY = b"body"

_INDEX = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("size", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        *(pa.field(name, type_) for name, type_ in READ_COLUMNS.items()),
    ]
)


@dataclass(frozen=True)
class Reader:
    """Reads the rows of a chunk: straight from the source, or from what was fetched of it."""

    storage: Storage
    source: Source

    def read(self, chunk: int, rows: Sequence[int], locators: Sequence[Locator]) -> Iterator[Payload]:
        """Payloads of some rows of a chunk, in order.

        Args:
            rows: their positions in the chunk, ascending.
            locators: their locators.
        """
        if self.source.fetches:
            return self._read_fetched(chunk, rows)
        return self.source.read(locators)

    def fetch(self, chunk: int, locators: Sequence[Locator], retry: Collection[str] = ()) -> None:
        """Download a chunk, unless that was done before.

        Args:
            retry: rows that failed with one of these reason codes are asked for again; the others are kept.
        """
        name = _name(chunk)
        again: list[int] = list(range(len(locators)))
        kept: dict[int, Payload] = {}
        if self.storage.exists(f"{name}.parquet"):
            reasons = self.storage.read_table(f"{name}.parquet", ["reason"]).column("reason").to_pylist()
            again = [row for row, reason in enumerate(reasons) if reason in retry]
            if not again:
                return
            others = sorted(set(range(len(locators))) - set(again))
            kept = dict(zip(others, self._read_fetched(chunk, others), strict=True))
        # A new generation of the container: the old one stays whole until the index points to this one.
        fresh = zip(again, self.source.read([locators[row] for row in again]), strict=True)
        index: dict[str, list[object]] = {field: [] for field in _INDEX.names}
        body = f"{name}-{uuid.uuid4().hex[:8]}.bin"
        offset = 0
        with self.storage.open_write(body) as file:
            for row in range(len(locators)):
                payload = kept.pop(row) if row in kept else next(fresh)[1]
                size = len(payload.data) if payload.data is not None else None
                index["offset"].append(offset if size is not None else None)
                index["size"].append(size)
                index["reason"].append(None if payload.reason is None else str(payload.reason))
                index["detail"].append(payload.detail)
                for column in READ_COLUMNS:
                    index[column].append(payload.columns.get(column))
                if payload.data is not None:
                    file.write(payload.data)
                    offset += len(payload.data)
        table = pa.table(index, schema=_INDEX).replace_schema_metadata({_BODY: body.encode()})
        old = self._body(chunk) if self.storage.exists(f"{name}.parquet") else None
        self.storage.write_table(f"{name}.parquet", table)
        if old is not None:
            self.storage.remove(old)

    def _body(self, chunk: int) -> str:
        with self.storage.open_read(f"{_name(chunk)}.parquet") as file:
            return str(pq.read_schema(file).metadata[_BODY].decode())

    def _read_fetched(self, chunk: int, rows: Sequence[int]) -> Iterator[Payload]:
        index = self.storage.read_table(f"{_name(chunk)}.parquet").to_pylist()
        with self.storage.open_read(self._body(chunk)) as file:
            for row in rows:
                entry = index[row]
                columns = {name: entry[name] for name in READ_COLUMNS}
                if entry["reason"] is not None:
                    yield Payload(None, Reason(entry["reason"]), entry["detail"], columns)
                    continue
                file.seek(entry["offset"])
                yield Payload(file.read(entry["size"]), columns=columns)


def _name(chunk: int) -> str:
    return f"work/fetched/chunk-{chunk:08d}"
