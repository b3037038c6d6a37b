"""A JPEG taken apart at its markers, to be put together again without what says nothing about its pixels.

libjpeg tells the first of its warnings only, so one about the header hides all those about the scans. A file that
is put together from its tables, its frame header and its scans alone leaves a strict decoder nothing to warn about
but the coded data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from curation.codecs.base import Problem
from curation.reasons import Reason

MAX_SEGMENTS = 1 << 16
"""Markers outside the coded data. An ICC profile has at most 255 of them, and 4 GB of extended XMP this many."""

MAX_SCANS = 100
"""More scans than any encoder writes (mozjpeg's optimized scripts stay under 64). An image of a few kilobytes and
hundreds of scans costs minutes; libjpeg-turbo's own fuzzing limit is 500."""

MAX_RESTARTS = 1 << 17
"""Restart intervals that are looked at one by one, where the decoder does not tell of each. About 30 us each."""

_FILL = re.compile(rb"\xff++")
_END_OF_SCAN = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")
_START, _END = b"\xff\xd8", b"\xff\xd9"
_PROBE = b"\xb5\x6a\xd2\xa9" * 16
_SEQUENTIAL = (0xC0, 0xC1)
_TAIL = bytes(1 << 13)
_LARGEST_SIDE = 65_500  # libjpeg's

Change = Callable[[memoryview], Iterable[bytes | memoryview]]
Stray = Callable[[bytes], "int | Problem"]
"""Decodes a JPEG strictly: the stray bytes before its end marker, or what else is wrong with it."""


def next_marker(data: bytes, position: int) -> tuple[int, int]:
    """The code after the next 0xff bytes, and the place behind it; -1 when the data end first. 0 is no marker."""
    start = data.find(b"\xff", position)
    if 0 <= start < len(data) - 1 and data[start + 1] != 0xFF:  # the usual case, fast
        return data[start + 1], start + 2
    found = _FILL.match(data, start) if start >= 0 else None
    return (data[found.end()], found.end() + 1) if found and found.end() < len(data) else (-1, len(data))


def is_frame(marker: int) -> bool:
    """Whether the marker code is one of a frame header (SOF0..SOF15)."""
    return 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC)


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan.

    Attributes:
        tables: the segments since the scan before; for the first one the frame header too.
        header: the SOS segment, its marker included.
        coded: the entropy-coded data with the restart markers.
    """

    tables: tuple[bytes, ...]
    header: bytes
    coded: memoryview

    @property
    def components(self) -> bytes:
        """The identifiers of the components in the scan."""
        return self.header[5 : 5 + 2 * self.header[4] : 2]


@dataclass(frozen=True, slots=True)
class Parts:
    """What a decoder needs of a JPEG.

    Attributes:
        marker: the code of the frame header, which says how the scans are coded.
        frame: its body: precision, height, width, and three bytes for each component.
        scans: at least one, in the order of the file.
        ended: there is an end marker after the last scan.
    """

    marker: int
    frame: bytes
    scans: tuple[Scan, ...]
    ended: bool

    def joined(self, change: Change = lambda coded: [coded], tail: bytes = b"") -> bytes:
        """The file without stray bytes and application data; `change` gives the coded data of each scan in pieces.
        `tail` follows the end marker."""
        pieces: list[bytes | memoryview] = [_START]
        for scan in self.scans:
            pieces += (*scan.tables, scan.header, *change(scan.coded))
        return b"".join([*pieces, _END, tail] if self.ended else pieces)

    @property
    def factors(self) -> dict[int, tuple[int, int]]:
        """The horizontal and the vertical sampling factor of each component, by its identifier."""
        each = (self.frame[6 + 3 * i : 8 + 3 * i] for i in range(self.frame[5]))
        return {name: (factor >> 4, factor & 15) for name, factor in each}

    def units(self, scan: Scan) -> tuple[int, int]:
        """Columns and rows of the units that a scan is coded in: MCUs, or the blocks of its only component."""
        height, width = int.from_bytes(self.frame[1:3], "big"), int.from_bytes(self.frame[3:5], "big")
        across, down = max(h for h, _ in self.factors.values()), max(v for _, v in self.factors.values())
        if len(scan.components) > 1:
            return -(-width // (8 * across)), -(-height // (8 * down))
        h, v = self.factors.get(scan.components[0], (1, 1))
        return -(-width * h // (8 * across)), -(-height * v // (8 * down))

    def block_visits(self) -> int:
        """How many times a decoder goes over an 8 x 8 block: the scans times the blocks of their components."""
        total = 0
        for scan in self.scans:
            columns, rows = self.units(scan)
            factors = [self.factors.get(name, (1, 1)) for name in scan.components]
            total += columns * rows * (sum(h * v for h, v in factors) if len(factors) > 1 else 1)
        return total

    def missing(self) -> Problem | None:
        """Whether the end marker or a component is missing."""
        if not self.ended:
            return Problem(Reason.TRUNCATED, "the JPEG has no end marker")
        if set(self.factors) - {name for scan in self.scans for name in scan.components}:
            return Problem(Reason.TRUNCATED, "the JPEG has no scan of one of its components")
        return None

    def missing_intervals(self) -> Problem | None:
        """Whether the restart markers are other than those of the size, in their order."""
        interval = total = 0
        for scan in self.scans:
            interval = next((int.from_bytes(t[4:6], "big") for t in reversed(scan.tables) if t[1] == 0xDD), interval)
            columns, rows = self.units(scan)
            due = -(-columns * rows // interval) - 1 if interval else 0
            total += due
            if total > MAX_RESTARTS:
                return Problem(Reason.CORRUPT, "an odd JPEG of too many restart intervals to look at each")
            places = islice(_RESTART.finditer(scan.coded), due + 2)  # one at the end is harmless
            found = [scan.coded[place.start() + 1] & 7 for place in places]
            if len(found) < due:
                return Problem(Reason.TRUNCATED, "the JPEG has restart intervals missing")
            if len(found) > due + 1 or found != [index % 8 for index in range(len(found))]:
                return Problem(Reason.CORRUPT, "the JPEG has restart markers that do not match its size")
        return None


def take_apart(data: bytes) -> Parts | Problem:
    """Find the segments and the scans, up to the end marker. Reads every byte once, at the speed of a search.

    `data` is a JPEG whose header `jpeg.read_header` has accepted.
    """
    view = memoryview(data)
    marker, frame = 0, b""
    tables: list[tuple[int, bytes]] = []
    scans: list[Scan] = []
    position, ended = 2, False
    for _ in range(MAX_SEGMENTS):
        code, position = next_marker(data, position)
        if code < 0:
            break
        if code == 0xD9:
            ended = True
            break
        if code <= 0x01 or 0xD0 <= code <= 0xD7:
            continue  # no marker, or one without length and meaning
        if code < 0xC0 or code == 0xD8:
            return Problem(Reason.CORRUPT, f"the JPEG has a marker 0x{code:02x} between its segments")
        end = position + int.from_bytes(data[position : position + 2], "big")
        if end > len(data):
            break
        if end < position + 2:
            return Problem(Reason.CORRUPT, f"a JPEG segment of {end - position} bytes")
        body = data[position + 2 : end]
        if is_frame(code):
            if frame:
                return Problem(Reason.CORRUPT, "the JPEG has two frame headers")
            marker, frame = code, body
        if code == 0xDA:
            if len(scans) == MAX_SCANS:
                return Problem(Reason.CORRUPT, f"JPEG with more than {MAX_SCANS} scans")
            if end < position + 6:
                return Problem(Reason.CORRUPT, "the JPEG has a scan without components")
            if marker in _SEQUENTIAL:
                body = body[:-3] + b"\x00\x3f\x00"  # all coefficients at once: the only possible values
            stop = _END_OF_SCAN.search(data, end)
            position = stop.start() if stop else len(data)
            needed = (_needed(kind, content, frame) for kind, content in tables)
            scans.append(Scan(tuple(s for s in needed if s), _segment(code, body), view[end:position]))
            tables = []
            continue
        tables.append((code, body))
        position = end
    else:
        return Problem(Reason.CORRUPT, f"JPEG with more than {MAX_SEGMENTS} segments")
    if not scans or not frame:
        return Problem(Reason.TRUNCATED, "the JPEG ends before its first scan")
    return Parts(marker, frame, tuple(scans), ended)


def _segment(code: int, body: bytes) -> bytes:
    return bytes((0xFF, code)) + (len(body) + 2).to_bytes(2, "big") + body


def _needed(code: int, body: bytes, frame: bytes) -> bytes:
    """A segment that decoding needs, with values that libjpeg takes for the same; empty for the others."""
    if code == 0xE0 and body.startswith(b"JFIF\x00") and len(body) >= 14:
        body = body[:5] + b"\x01" + body[6:14]  # another revision is read like the first
    elif code == 0xEE and body.startswith(b"Adobe") and len(body) >= 12:
        # An unknown color transform is read as YCbCr, or as YCCK where there are four components.
        known, usual = ((0, 2), 2) if frame[5:6] == b"\x04" else ((0, 1), 1)
        body = body[:11] + bytes([body[11] if body[11] in known else usual])
    elif 0xE0 <= code <= 0xEF or code == 0xFE:
        return b""
    return _segment(code, body)


def loss_behind_stray_bytes(parts: Parts, stray: Stray, max_visits: int) -> Problem | None:
    """What else is wrong with a file for which libjpeg tells stray bytes before a marker other than the end.

    Args:
        parts: the file.
        stray: decodes a file strictly; the stray bytes before its end marker, or what else is wrong.
        max_visits: bound of the work, in blocks that are decoded.

    The scans are judged one by one: a file that ends after a scan has been decoded whole when libjpeg comes to its
    end marker, and what it tells there concerns the last scan alone.
    """
    problem = parts.missing() or parts.missing_intervals()
    if problem is not None:
        return problem
    if len(parts.scans) == 1:
        return _loss_in_intervals(parts, stray)
    if (len(parts.scans) + 1) * parts.block_visits() > 2 * max_visits:
        return Problem(Reason.CORRUPT, "stray bytes between the scans of a JPEG that is too large to look for more")
    scans: list[Scan] = []
    for scan in parts.scans:
        # How far libjpeg reads ahead depends on how much follows: more than it looks at, as in the file itself.
        found = stray(replace(parts, scans=(*scans, scan)).joined(tail=_TAIL))
        if isinstance(found, Problem):
            return found
        coded = _without_fill(scan.coded)
        scans.append(replace(scan, coded=coded[: len(coded) - found]))
    return None


def _loss_in_intervals(parts: Parts, stray: Stray) -> Problem | None:
    """Each restart interval is an image of its own: nothing but the tables carries over from one to the next. libjpeg
    adds up what it leaves of several, so that its number says nothing of one."""
    scan = parts.scans[0]
    columns, rows = parts.units(scan)
    interval = next((int.from_bytes(t[4:6], "big") for t in reversed(scan.tables) if t[1] == 0xDD), 0)
    interval = interval or columns * rows
    across, down = map(max, zip(*parts.factors.values(), strict=True)) if len(scan.components) > 1 else (1, 1)
    restarts = [found.start() for found in _RESTART.finditer(scan.coded)]
    starts, ends = [0, *(place + 2 for place in restarts)], [*restarts, len(scan.coded)]
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        units = min(interval, columns * rows - index * interval)
        if units <= 0:
            break  # after a restart marker at the end
        wide = columns if units % columns == 0 else units
        size = 8 * down * (units // wide), 8 * across * wide
        if max(size) > _LARGEST_SIDE or parts.marker not in _SEQUENTIAL:
            return Problem(Reason.CORRUPT, "stray bytes in restart intervals that cannot be looked at one by one")
        frame = parts.frame[:1] + size[0].to_bytes(2, "big") + size[1].to_bytes(2, "big") + parts.frame[5:]
        tables = [_segment(t[1], frame) if is_frame(t[1]) else t for t in scan.tables if t[1] != 0xDD]
        alone = Scan(tuple(tables), scan.header, scan.coded[start:end])
        found = stray(replace(parts, frame=frame, scans=(alone,)).joined())
        if isinstance(found, Problem):
            return found
    return None


def _without_fill(coded: memoryview) -> memoryview:
    """Coded data without fill bytes at its end: a coded 0xff is followed by a zero."""
    size = len(coded)
    while size and coded[size - 1] == 0xFF:
        size -= 1
    return coded[:size]


def lengthened(coded: memoryview) -> Iterator[bytes | memoryview]:
    """Coded data with bytes after every restart interval and at the end. Where all blocks are there no decoder comes
    to see them; where some are missing it decodes these instead of the zeros that libjpeg puts in silently."""
    start = 0
    for found in _RESTART.finditer(coded):
        yield from (_without_fill(coded[start : found.start()]), _PROBE, found[0])
        start = found.end()
    yield from (_without_fill(coded[start:]), _PROBE)


def altered(coded: memoryview, count: int) -> Iterator[bytes | memoryview]:
    """Coded data with its last `count` bytes changed: a decoder that gives the same image has not used them."""
    whole = _without_fill(coded)
    yield _without_fill(whole[: max(0, len(whole) - count)])
    yield bytes(0x33 if value in (0xAA, 0xFF) else value ^ 0x55 for value in whole[-count:])
