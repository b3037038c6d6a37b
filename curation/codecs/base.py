"""The values of decoding: its configuration, what a header says, a decoded picture, and a problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from curation.config import Config
from curation.reasons import Reason

if TYPE_CHECKING:
    from curation.records import Pixels  # which loads Arrow: the decoding child does without

Format = Literal["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM"]
ALL_FORMATS: tuple[Format, ...] = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM")


class DecodeConfig(Config):
    """The decode policy's parameters. The policy itself is in the docstring of `curation.decode`."""

    work_side: int = Field(
        640, ge=32, description="long side, in pixels, of the picture that scorers see; never enlarged"
    )
    max_pixels: int = Field(
        178_956_970,
        ge=1,
        description="width * height above which a picture is refused; the default is where Pillow refuses",
    )
    max_memory: int = Field(
        512 * 1024 * 1024,
        ge=1024 * 1024,
        description="bytes that one decode may take beside the encoded bytes, estimated from the header",
    )
    icc: Literal["ignore", "convert"] = Field(
        "ignore", description="embedded colour profiles: ignore them, or convert RGB profiles to sRGB"
    )
    background: tuple[int, int, int] = Field(
        (255, 255, 255), description="RGB, 0..255, that transparent pictures are laid on"
    )
    formats: tuple[Format, ...] = Field(ALL_FORMATS, description="formats that are decoded; others are refused")


@dataclass(frozen=True, slots=True)
class Problem:
    """Why there is no picture."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Header:
    """What the header says. Nothing has been decoded, so nothing is promised about the pixels.

    Attributes:
        format: one of `ALL_FORMATS`.
        width, height: pixels, after the orientation has been applied.
        orientation: EXIF 1..8; absent and invalid values are 1.
        mode: as Pillow names it, with ";16" for 16-bit samples; of the first frame.
        frames: pictures in the file, or None when it cannot be told without decoding.
        pixel_bytes: bytes that the decoder needs for each pixel of the stored picture.
        buffer_bytes: bytes that the decoder needs besides, at any scale (progressive coefficients, TIFF tiles).
        ends_early: the container says that more bytes should follow.
        blocks: 8 x 8 blocks that each scan of a JPEG of several scans may go over; 0 for those of one scan.
    """

    format: Format
    width: int
    height: int
    orientation: int = 1
    mode: str = "RGB"
    frames: int | None = 1
    pixel_bytes: int = 4
    buffer_bytes: int = 0
    ends_early: bool = False
    blocks: int = 0

    @property
    def stored_size(self) -> tuple[int, int]:
        """Width and height as stored, before the orientation."""
        return (self.height, self.width) if self.orientation >= 5 else (self.width, self.height)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A picture.

    Attributes:
        pixels: RGB, uint8 [height, width, 3], contiguous, orientation applied.
        scale: its long side divided by the original's, 0 < scale <= 1.
    """

    pixels: Pixels
    scale: float


def working_size(width: int, height: int, max_side: int | None) -> tuple[int, int]:
    """The exact (width, height) that `decode` returns: the long side at most `max_side`, the short side
    round-half-up of its exact share and at least 1. None, or a picture that fits, leaves the size alone.
    """
    long = max(width, height)
    if max_side is None or long <= max_side:
        return width, height
    return (
        max(1, (2 * width * max_side + long) // (2 * long)),
        max(1, (2 * height * max_side + long) // (2 * long)),
    )
