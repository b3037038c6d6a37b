"""Images behind URLs, downloaded inside the pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field, field_validator

from curation.reasons import Reason
from curation.records import Locator, Payload, record_id
from curation.sources.addresses import AddressPolicy
from curation.sources.base import Source, SourceError, Unit
from curation.sources.containers import Containers
from curation.sources.download import DownloadConfig, Downloader
from curation.sources.failures import with_retries
from curation.sources.metadata import normalise
from curation.sources.ordered import download_in_order
from curation.sources.redact import describe
from curation.sources.storage import StorageConfig
from curation.sources.tables import ParquetReader, choose_metadata, container_failure, require_column
from curation.sources.url_lists import LIST_SUFFIXES, UrlColumn, is_parquet, text_rows


class UrlsConfig(StorageConfig, DownloadConfig):
    """Lists of URLs (Parquet, CSV, JSON lines, or text with one URL a line): a folder, one file, a glob or a range."""

    kind: Literal["urls"] = "urls"
    url_column: str = Field("url", description="column with the URLs (LAION: URL); not used for .txt")
    metadata_columns: tuple[str, ...] | None = Field(
        None, description="columns to carry along; null for all others but binary columns and vectors of numbers"
    )

    @field_validator("allowed_networks")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        AddressPolicy(networks=value)
        return value


class UrlsSource(Source):
    """One unit per list, one input per row; `uri` is the list, `member` the row's index in it.

    What a URL can come to, in the order in which it is found out:

    ==================== ==============================================================================================
    bad_url              no URL, not http(s), no host; also where a redirect leads
    address_refused      a special address, spelled out in any way or found by DNS; also where a redirect leads
    download_failed      no whole response after all tries; `read_error` is timeout, dns, connect, certificate, tls,
                         disconnected, cut_body, bad_encoding, protocol or other
    opted_out            X-Robots-Tag has noai or noimageai, for whatever user agent, on any hop
    http_error           a status that is no success (429 and 5xx after all tries), or too many redirects
    too_many_bytes       the declared or the real length is above max_bytes
    empty                a success without a body
    ==================== ==============================================================================================

    Tried again: connect errors, time-outs, cut bodies, 429 and 5xx. Waits double, with jitter; a Retry-After is kept
    up to its cap. User names, passwords and signatures in URLs are used for the download and never stored.
    """

    fetches: ClassVar[bool] = True
    config: UrlsConfig

    def __init__(self, config: UrlsConfig) -> None:
        super().__init__(config)
        self.containers = Containers(config, LIST_SUFFIXES, "list of URLs")
        self._column: UrlColumn | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_column": None}

    def units(self) -> list[Unit]:
        """One unit per list. The columns are checked on the first list that opens.

        Raises:
            SourceError: nothing there, or no such column.
        """
        units = self.containers.units()
        for unit in units[:8]:
            name = unit.entries[0][0]
            try:
                names = self._column_names(name)
            except SourceError:
                raise
            except Exception:  # noqa: BLE001, S112 - a broken list is accounted for by list_unit
                continue
            require_column(names, self.config.url_column, "source.url_column", name)
            for column in self.config.metadata_columns or ():
                require_column(names, column, "source.metadata_columns", name)
            break
        return units

    def ignored(self) -> dict[str, int]:
        """Files beside the lists, by extension."""
        return self.containers.ignored

    def list_unit(self, unit: Unit) -> Iterator[Locator]:
        """One locator per row; the URL in its metadata is redacted."""
        uri = unit.entries[0][0]
        try:
            for row, values in self._rows(uri):
                yield self._locator(uri, row, values)
        except (OSError, pa.ArrowException) as error:
            payload = container_failure(error)
            if payload.reason is Reason.READ_ERROR and not isinstance(error, PermissionError):
                raise SourceError(f"the list {uri} could not be read: {describe(error)}") from error
            yield Locator(record_id(uri, ""), uri, problem=payload.reason, problem_detail=payload.detail)
        except SourceError as error:
            yield Locator(record_id(uri, ""), uri, problem=Reason.BAD_CONTAINER, problem_detail=str(error))

    def read(self, locators: Sequence[Locator]) -> Iterator[Payload]:
        """Download, in order; see `DownloadConfig` for the limits."""
        config = self.config
        refused: dict[int, Payload] = {}
        urls: list[str | None] = [None] * len(locators)
        usable = [number for number, locator in enumerate(locators) if locator.problem is None]
        for number, locator in enumerate(locators):
            if locator.problem is not None:
                refused[number] = Payload(None, locator.problem, locator.problem_detail)
        for uri, run in groupby(usable, key=lambda number: locators[number].uri):
            numbers = list(run)
            try:
                found = self._lookup(uri, [int(locators[number].member) for number in numbers])
            except Exception as error:  # noqa: BLE001 - the list itself is gone or broken: these rows' reason
                refused.update(dict.fromkeys(numbers, container_failure(error)))
                continue
            for number, url in zip(numbers, found, strict=True):
                urls[number] = url
        wanted = [number for number in usable if number not in refused]
        payloads = download_in_order(
            [urls[number] for number in wanted],
            lambda: Downloader(config, config.max_bytes),
            config.max_buffered_bytes,
            config.concurrency,
        )
        for number in range(len(locators)):
            yield refused[number] if number in refused else next(payloads)
        payloads.close()

    def _lookup(self, uri: str, rows: Sequence[int]) -> list[str | None]:
        if self._column is None:
            self._column = UrlColumn(self.containers.files, self.config.url_column)
        column = self._column
        return with_retries(lambda: column.lookup(uri, rows))

    def _locator(self, uri: str, row: int, values: dict[str, Any]) -> Locator:
        wanted = self.config.metadata_columns
        url = values.get(self.config.url_column)
        kept = {key: value for key, value in values.items() if wanted is None or key in (*wanted, "metadata_error")}
        kept.pop(self.config.url_column, None)
        if url is not None:
            kept["url"] = url
        return Locator(record_id(uri, str(row)), uri, str(row), metadata=normalise(kept))

    def _rows(self, uri: str) -> Iterator[tuple[int, dict[str, Any]]]:
        files, column = self.containers.files, self.config.url_column
        if not is_parquet(uri):
            yield from text_rows(files, uri, column)
            return
        with with_retries(lambda: ParquetReader(files, uri)) as reader:
            names = reader.schema.names
            require_column(names, column, "source.url_column", uri)
            wanted = self.config.metadata_columns
            present = wanted if wanted is None else [name for name in wanted if name in names]
            yield from enumerate(reader.rows([column, *choose_metadata(reader.schema, present, column, uri)]))

    def _column_names(self, uri: str) -> list[str]:
        if is_parquet(uri):
            with ParquetReader(self.containers.files, uri) as reader:
                return list(reader.schema.names)
        first = next(text_rows(self.containers.files, uri, self.config.url_column), None)
        return list(first[1]) if first else [self.config.url_column, *(self.config.metadata_columns or ())]
