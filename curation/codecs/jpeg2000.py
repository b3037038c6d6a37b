"""The codestream of a JPEG 2000: how many tiles it has, and whether all of them are there.

OpenJPEG gives a picture whose missing tiles are black, and says so in a warning that Pillow does not pass on.
"""

from __future__ import annotations

import struct

from curation.codecs.base import Problem
from curation.reasons import Reason

MAX_TILES = 65_535
"""A tile's number has 16 bits."""
TILE_BYTES = 12 * 1024
"""What OpenJPEG takes for each tile and component beside the samples: 8.3 KB were measured."""


def tiles(data: bytes) -> tuple[int, int, int, int] | Problem:
    """Width, height, number of tiles and of components, once every tile has been found. Decodes nothing."""
    start = data.find(b"\xff\x4f\xff\x51")
    if start < 0 or start + 42 > len(data):
        return Problem(Reason.TRUNCATED, "the JPEG 2000 ends before its codestream")
    x1, y1, x0, y0, across, down, left, top, components = struct.unpack_from(">8IH", data, start + 8)
    if x1 <= x0 or y1 <= y0 or not across or not down or left > x0 or top > y0:
        return Problem(Reason.CORRUPT, "the JPEG 2000 has no valid size")
    grid = -(-(x1 - left) // across) * -(-(y1 - top) // down)
    if grid > MAX_TILES:
        return Problem(Reason.CORRUPT, f"JPEG 2000 of {grid} tiles, more than the {MAX_TILES} that can be numbered")
    position = start + 2
    while data[position : position + 2] != b"\xff\x90":
        if position + 4 > len(data):
            return Problem(Reason.TRUNCATED, "the JPEG 2000 ends inside its header")
        if data[position] != 0xFF:
            return Problem(Reason.CORRUPT, "the JPEG 2000 has no tile")
        position += 2 + max(2, int.from_bytes(data[position + 2 : position + 4], "big"))
    found = _walk(data, position, grid)
    return found if isinstance(found, Problem) else (x1 - x0, y1 - y0, grid, components)


def _walk(data: bytes, position: int, grid: int) -> Problem | None:
    """Go from tile part to tile part."""
    seen: set[int] = set()
    promised: dict[int, int] = {}
    parts: dict[int, int] = {}
    while data[position : position + 2] == b"\xff\x90" and position + 12 <= len(data):
        tile, length, _, of = struct.unpack_from(">HIBB", data, position + 4)
        if length and position + length > len(data):
            return Problem(Reason.TRUNCATED, "the JPEG 2000 ends inside a tile")
        if length and length < 14:
            return Problem(Reason.CORRUPT, f"a JPEG 2000 tile part of {length} bytes")
        seen.add(tile)
        parts[tile] = parts.get(tile, 0) + 1
        promised[tile] = max(promised.get(tile, 0), of)
        if not length:
            position = len(data) if data[-2:] != b"\xff\xd9" else len(data) - 2  # up to the end
            break
        position += length
    missing = grid - len(seen) + sum(parts[tile] < of for tile, of in promised.items())
    if missing > 0:
        return Problem(Reason.TRUNCATED, f"{missing} of {grid} tiles of the JPEG 2000 are missing or cut")
    return None
