"""WebDataset tars, read by byte range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import IO, Literal

from pydantic import Field, field_validator

from curation.codecs.sniff import sniff
from curation.reasons import Reason
from curation.records import Locator, Payload
from curation.sources.base import Source, SourceError, Unit
from curation.sources.containers import Containers
from curation.sources.failures import TooManyBytesError, failure, with_retries
from curation.sources.filesystem import Files, read_ahead, read_at
from curation.sources.names import IMAGE_EXTENSIONS, split_extension
from curation.sources.redact import describe
from curation.sources.sidecars import SIDECARS, is_table
from curation.sources.storage import StorageConfig
from curation.sources.tar_contents import TarContents
from curation.sources.tar_index import Damage, Member, scan
from curation.sources.unused import Unused

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")

MAX_INDEX_BYTES = 1 << 30
MEMBER_BYTES = 300
"""What a member takes in memory beside its name, about."""
SNIFF_BYTES = 1024

MAX_GAP_BYTES = 256 << 10
MAX_SPAN_BYTES = 16 << 20


class WebDatasetConfig(StorageConfig):
    """WebDataset tars: a folder (recursive), one tar, a glob, or a range like `shard-{000000..000099}.tar`."""

    kind: Literal["webdataset"] = "webdataset"
    extensions: tuple[str, ...] = Field(
        IMAGE_EXTENSIONS,
        description="member extensions that are inputs, any case",
    )

    sniff: bool = Field(
        False,
        description="look into members of every other extension (photo.jpg?w=300, photo.jpg_large, photo.jpg.1): "
        "those with the content of an image are inputs too; sidecars stay sidecars",
    )

    @field_validator("extensions")
    @classmethod
    def _without_dots(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(item.lower().lstrip(".") for item in value)


class WebDatasetSource(Source):
    """Every image member of every tar is an input of its own; nothing is ever extracted or merged.

    =================================== ==========================================================================
    In the tar                          Outcome
    =================================== ==========================================================================
    `img.v2.jpg`, `img.v3.jpg`          two inputs; sidecars by the order in `curation.sources.sidecars`
    `set.v1/a.jpg`                      an input; dots in folders mean nothing
    a.jpg b.jpg a.json b.json           two inputs, each with its metadata: members need not be adjacent
    `0.jpg` and `0.png`                 two inputs that share the sidecars of `0`
    a name twice                        two inputs, the second with member `name#2`; n-th sidecar to n-th image
    the same name in several tars       inputs of their own (the id hashes tar and member)
    link or device named `.jpg`         a row with reason unsafe_member
    GNU sparse file named `.jpg`        a row with reason bad_container
    `._a.jpg`, `__MACOSX/`              not inputs (macOS litter)
    no extension, folders, other files  not inputs; `.json`, `.txt`, `.cls`, ..., `metadata.jsonl` become metadata
    `photo.jpg?w=300`, `photo.jpg.1`    not inputs; with `sniff` inputs when their content is an image
    `../../etc/a.jpg`, `/a.jpg`         an input; the name is only ever a name
    names that are not UTF-8            an input; the name is escaped (`curation.sources.names`)
    `.jpg` (empty key)                  an input
    zero bytes long image               a row with reason empty
    zero-byte tar, HTML named `.tar`    one row, member empty, reason bad_container
    truncated tar                       the complete members, then one row, member empty, truncated_container
    damage in the middle                the members before it, then one row, member empty, bad_container
    no end-of-archive blocks            taken as whole, as GNU tar does
    several tars concatenated           read through to the end
    `.tar.gz`, `.tgz`, ...              one row, bad_container: decompress it, members have no byte address
    no images at all                    no inputs
    a tar that a range names, absent    one row, member empty, reason missing
    =================================== ==========================================================================
    """

    config: WebDatasetConfig

    def __init__(self, config: WebDatasetConfig) -> None:
        super().__init__(config)
        self.containers = Containers(config, TAR_SUFFIXES, "tar")
        self._unused = Unused()

    def units(self) -> list[Unit]:
        """One unit per tar."""
        return self.containers.units()

    def ignored(self) -> dict[str, int]:
        """Files beside the tars, by extension. Members are counted in `ignored_in_unit`."""
        return self.containers.ignored

    def ignored_in_unit(self) -> Unused:
        """Members of the tar that was listed last that are neither images nor metadata of one."""
        return self._unused

    def list_unit(self, unit: Unit) -> Iterator[Locator]:
        """Scan the tar's headers, and read its sidecars on the way.

        Raises:
            SourceError: the storage failed, after retries.
        """
        uri = unit.entries[0][0]
        try:
            index = with_retries(lambda: self._scan(uri))
        except Exception as error:
            payload = failure(error)
            if payload.reason is Reason.READ_ERROR and not isinstance(error, PermissionError):
                raise SourceError(f"the tar {uri} could not be read: {describe(error)}") from error
            damage = Damage(payload.reason or Reason.READ_ERROR, payload.detail or "")
            index = TarContents(uri, (), partial(self.containers.files.read_range, uri), damage=damage)
        yield from index.locators()
        self._unused = index.unused

    def read(self, locators: Sequence[Locator]) -> Iterator[Payload]:
        """Byte ranges. Locally one open file per tar; remotely neighbouring ranges become one request."""
        files = self.containers.files
        if files.local:
            return self._read_local(files, locators)
        return self._read_remote(files, locators)

    def _scan(self, uri: str) -> TarContents:
        files = self.containers.files
        index = TarContents(uri, self.config.extensions, partial(files.read_range, uri))
        with files.open(uri) as file:
            try:
                self._fill(index, file, files.size(uri))
            except OSError:
                raise
            except (ArithmeticError, LookupError, MemoryError, RecursionError, ValueError) as error:
                # Whatever a tar holds, it is one tar, and its rows so far stay. Errors of the storage pass.
                index.damage = Damage(Reason.BAD_CONTAINER, f"cannot be listed further: {describe(error)}")
        return index

    def _fill(self, index: TarContents, file: IO[bytes], size: int) -> None:
        for item in scan(file, size):
            if isinstance(item, Damage):
                index.damage = item
                return
            base = item.name.rpartition("/")[2]
            if base.startswith("._") or "__MACOSX" in item.name.split("/"):
                continue
            extension = split_extension(item.name)[1]
            if extension in self.config.extensions:
                index.images.append(item)
            elif item.problem is None and is_table(item.name):
                index.tables.append(item)
            elif item.problem is None and extension in SIDECARS:
                index.add_sidecar(item, file)
            elif self.config.sniff and _has_image_content(item, file):
                index.images.append(item)
            else:
                index.pass_over(item.name)
                continue
            index.name_bytes += len(item.name) + MEMBER_BYTES
            if index.name_bytes > MAX_INDEX_BYTES:
                detail = f"its list of members takes more than {MAX_INDEX_BYTES} bytes; those from here on are left out"
                index.damage = Damage(Reason.BAD_CONTAINER, detail)
                return

    def _refused(self, locator: Locator) -> Payload | None:
        """The payload of a locator that needs no reading."""
        if locator.problem is not None:
            return Payload(None, locator.problem, locator.problem_detail)
        if locator.size == 0:
            return Payload(None, Reason.EMPTY, "the member has zero bytes")
        if (locator.size or 0) > self.config.max_bytes:
            return failure(TooManyBytesError(f"{locator.size} bytes, the cap is {self.config.max_bytes}"))
        return None

    def _read_local(self, files: Files, locators: Sequence[Locator]) -> Iterator[Payload]:
        opened: IO[bytes] | None = None
        uri = None
        try:
            for locator in locators:
                payload = self._refused(locator)
                if payload is None:
                    try:
                        if opened is None or uri != locator.uri:
                            if opened is not None:
                                opened.close()
                            opened, uri = None, locator.uri
                            opened = files.open(uri)
                        file = opened
                        payload = _sized(locator, with_retries(lambda: read_at(file, *_range(locator))))  # noqa: B023
                    except Exception as error:  # noqa: BLE001 - one row's reason
                        payload = failure(error)
                yield payload
        finally:
            if opened is not None:
                opened.close()

    def _read_remote(self, files: Files, locators: Sequence[Locator]) -> Iterator[Payload]:
        spans = self._spans(locators)
        jobs = ((stop - start, partial(self._read_span, files, run, start, stop)) for run, start, stop in spans)
        for payloads in read_ahead(jobs):
            yield from payloads

    def _spans(self, locators: Sequence[Locator]) -> Iterator[tuple[list[Locator], int, int]]:
        """Runs of locators with the byte range that covers them; (0, 0) when none of them needs a read."""
        run: list[Locator] = []
        uri, start, stop = None, 0, 0
        for locator in locators:
            if self._refused(locator) is None:
                offset, size = _range(locator)
                joins = uri == locator.uri and stop <= offset <= stop + MAX_GAP_BYTES
                if uri is not None and not (joins and offset + size - start <= MAX_SPAN_BYTES):
                    yield run, start, stop
                    run, uri = [], None
                if uri is None:
                    uri, start = locator.uri, offset
                stop = offset + size
            run.append(locator)
        if run:
            yield run, start, stop

    def _read_span(self, files: Files, run: Sequence[Locator], start: int, stop: int) -> list[Payload]:
        data, failed = b"", None
        uri = next((item.uri for item in run if self._refused(item) is None), None)
        if uri is not None:
            try:
                data = files.read_range(uri, start, stop - start)
            except Exception as error:  # noqa: BLE001 - the reason of the rows of this range
                failed = failure(error)
        payloads = []
        for locator in run:
            payload = self._refused(locator) or failed
            if payload is None:
                offset, size = _range(locator)
                payload = _sized(locator, data[offset - start : offset - start + size])
            payloads.append(payload)
        return payloads


def _range(locator: Locator) -> tuple[int, int]:
    return locator.offset or 0, locator.size or 0


def _sized(locator: Locator, data: bytes) -> Payload:
    if len(data) == locator.size:
        return Payload(data)
    return Payload(None, Reason.READ_ERROR, "the tar is shorter than when it was listed")


def _has_image_content(item: Member, file: IO[bytes]) -> bool:
    """Whether a member is an image by its content; links and the like are none."""
    if item.problem is not None:
        return False
    file.seek(item.offset)
    return sniff(file.read(min(item.size, SNIFF_BYTES))) is not None
