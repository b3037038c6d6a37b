"""Images behind URLs, downloaded inside the pipeline."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from curation.reasons import Reason
from curation.records import Locator, Payload, record_id
from curation.sources.addresses import AddressPolicy
from curation.sources.arrow_values import PROBLEM
from curation.sources.base import Source, SourceError, Unit
from curation.sources.containers import Containers
from curation.sources.download import DownloadConfig, Downloader
from curation.sources.failures import with_retries
from curation.sources.leaves import leaf
from curation.sources.metadata import normalise
from curation.sources.ordered import download_in_order
from curation.sources.redact import describe
from curation.sources.storage import StorageConfig
from curation.sources.tables import ParquetReader, container_failure, problem_row, require_column
from curation.sources.tables_metadata import Columns, TableMetadata, check_columns
from curation.sources.url_lists import LIST_SUFFIXES, UrlColumn, is_parquet, list_columns, list_kind, text_rows

log = logging.getLogger(__name__)


class UrlsConfig(StorageConfig, DownloadConfig):
    """Lists of URLs: a folder, one file, a glob or a range.

    Parquet, CSV, TSV, JSON lines, or text with one URL a line, these also compressed with gzip; one file may be a JSON
    array.
    """

    kind: Literal["urls"] = "urls"
    url_column: str = Field("url", description="column with the URLs (LAION: URL); not used for .txt")
    metadata_columns: tuple[str, ...] | None = Field(
        None,
        description="columns to carry along, whole; null for all others, without vectors of numbers and without binary "
        "values at any depth; columns that may say an opt-out (noai, robots, ...) always come along, whole",
    )

    @field_validator("allowed_networks")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        AddressPolicy(networks=value)
        return value


class UrlsSource(Source):
    """One unit per list, one input per row; `uri` is the list, `member` the row's index in it.

    Every line of a text list is a row, also one that cannot be parsed, which has no URL; in CSV a quoted field may hold
    line breaks (`curation.sources.csv_rows` has the bounds). The rows of a list without the column of URLs get
    bad_container each; where a list cannot be read on, one such row stands for the rest. Folders `name=value` are
    metadata of the rows below them.

    What a URL can come to, in the order in which it is found out:

    ==================== ==============================================================================================
    bad_url              no URL, not UTF-8, not http(s), no host; also where a redirect leads
    address_refused      a special address, spelled out in any way or found by DNS; also where a redirect leads
    download_failed      no whole response after all tries; `read_error` is timeout, dns, connect, certificate, tls,
                         disconnected, cut_body, bad_encoding, protocol or other
    opted_out            X-Robots-Tag has noai, noimageai or noml, for whatever user agent, or TDM-Reservation is 1,
                         on any hop
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
        self.containers = Containers(config, LIST_SUFFIXES, "list of URLs", lake=True)
        self.metadata = TableMetadata(config.metadata_columns, config.url_column)
        self._column: UrlColumn | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_column": None}

    def units(self) -> list[Unit]:
        """One unit per list. Some lists are looked at, until every configured column was found.

        Raises:
            SourceError: nothing there, or a column is in none of them.
        """
        units = self.containers.units()
        names = [unit.entries[0][0] for unit in units]
        if len(names) == 1 and not is_parquet(names[0]):
            list_kind(names[0])
        check_columns(names, self.metadata, self._columns)
        return units

    def _columns(self, uri: str) -> Columns | None:
        names = list_columns(self.containers.files, uri, self.config.url_column)
        if names is None:
            return None
        try:
            require_column(names, self.config.url_column, "source.url_column", uri)
        except SourceError as error:
            return Columns(names, error=error)
        if not is_parquet(uri):
            return Columns(names)
        with ParquetReader(self.containers.files, uri) as reader:
            return Columns(names, self.metadata.select(reader, uri).binary)

    def ignored(self) -> dict[str, int]:
        """Files beside the lists, by extension."""
        return self.containers.ignored

    def list_unit(self, unit: Unit) -> Iterator[Locator]:
        """One locator per row; the URL in its metadata is redacted."""
        uri = unit.entries[0][0]
        try:
            unfit = self._unfit(uri)
            if unfit:
                log.warning("its rows are not downloaded: %s", unfit)
            for row, values in self._rows(uri, bare=bool(unfit)):
                if unfit:
                    yield problem_row(uri, row, Reason.BAD_CONTAINER, unfit)
                else:
                    yield self._locator(uri, row, values)
        except SourceError as error:
            yield problem_row(uri, None, Reason.BAD_CONTAINER, str(error))
        except Exception as error:
            payload = container_failure(error)
            if payload.reason is Reason.READ_ERROR and not isinstance(error, PermissionError):
                raise SourceError(f"the list {uri} could not be read: {describe(error)}") from error
            yield problem_row(uri, None, payload.reason, payload.detail)

    def _unfit(self, uri: str) -> str | None:
        """Why no row of a list has a URL; None when some may. In JSON lines every record has keys of its own."""
        if not is_parquet(uri) and list_kind(uri) == "json":
            return None
        names = with_retries(lambda: list_columns(self.containers.files, uri, self.config.url_column))
        try:
            require_column(names or [self.config.url_column], self.config.url_column, "source.url_column", uri)
        except SourceError as error:
            return str(error)
        return None

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
        url = values.get(self.config.url_column)
        kept = {key: value for key, value in values.items() if key == PROBLEM or self.metadata.carries(key)}
        kept.pop(self.config.url_column, None)
        if url is not None:
            kept["url"] = url
        metadata = normalise({**self.metadata.partitions(uri), **kept})
        return Locator(record_id(uri, str(row)), uri, str(row), metadata=metadata)

    def _rows(self, uri: str, bare: bool) -> Iterator[tuple[int, dict[str, Any]]]:
        """(index, values) of the rows of a list; `bare` when only their number is needed."""
        files, column = self.containers.files, self.config.url_column
        if not is_parquet(uri):
            yield from text_rows(files, uri, column)
            return
        with with_retries(lambda: ParquetReader(files, uri)) as reader:
            chosen: Sequence[int] = ()
            if not bare:
                url = leaf(reader.schema, (column,))
                selected = self.metadata.select(reader, uri).leaves
                chosen = selected if url is None else sorted((*selected, url))
            yield from enumerate(reader.rows(chosen))
