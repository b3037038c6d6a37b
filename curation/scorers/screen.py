"""The cheap measurements of a picture: one decode at working size, perceptual hashes, exposure and sharpness.

Decoding dominates: everything else is computed on luma at working size or half of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from curation.config import Config, fingerprint
from curation.decode import DecodeConfig, Header, Problem, decode, grey_thumbnail, halve, luma
from curation.records import Pixels
from curation.scorers.flatness import local_entropy
from curation.scorers.frame import content_box, content_share

STATISTICS_SIDE = 320
"""Exposure and entropy are computed on luma of at most this long side, halved from the working size."""
COLOUR_SIDE = 160
DARK, BRIGHT = 8, 247
LAPLACIAN_GAIN = 4
"""OpenCV's 3 x 3 Laplacian (ksize=3) is 4 times the Laplacian of a smooth picture; its variance is divided by 16."""


class ScreenConfig(Config):
    """What the perceptual hash is taken of, and when it says nothing (see `is_degenerate`)."""

    trim_borders: bool = Field(
        True,
        description="hash what is inside uniform borders (letterbox, white frame), so that a padded copy is a near "
        "duplicate of its original",
    )

    degenerate_bits: int = Field(
        8, ge=0, le=31, description="a hash with this many set bits or fewer, or unset bits or fewer, is degenerate"
    )
    degenerate_contrast: float = Field(
        0.02, ge=0, le=1, description="a picture whose luma has a smaller standard deviation (0..1) is degenerate"
    )


def is_degenerate(
    phash: npt.NDArray[np.uint64], contrast: npt.NDArray[Any], config: ScreenConfig | None = None
) -> npt.NDArray[np.bool_]:
    """Which hashes would match unrelated pictures.

    A perceptual hash compares 64 coefficients with their median, so a picture with detail sets exactly 32 bits. Flat
    pictures and plain gradients have coefficients that are all alike: they hash to 8000000000000000, 0, ffff..., or
    to rounding noise.

    Args:
        phash: uint64 [n].
        contrast: standard deviation of luma, 0..1, float [n]; NaN where unknown, which counts as degenerate.
        config: the limits; defaults to `ScreenConfig()`.

    Returns:
        bool [n].
    """
    limits = config or ScreenConfig()
    bits = np.unpackbits(np.asarray(phash, np.uint64).reshape(-1, 1).view(np.uint8), axis=1).sum(axis=1)
    few = (bits <= limits.degenerate_bits) | (bits >= 64 - limits.degenerate_bits)
    return few | ~(np.asarray(contrast, np.float64).reshape(-1) >= limits.degenerate_contrast)


def perceptual_hash(thumbnail: npt.NDArray[np.uint8]) -> int:
    """`imagehash.phash` (64 bits) of a 32 x 32 grey picture, uint8 [32, 32], read as a number, first bit highest.

    The same transforms in the same order, so the same bits, in a third of the time: only the 8 rows of
    coefficients that are used, and no picture object.
    """
    return perceptual_hashes(thumbnail)[0]


def perceptual_hashes(thumbnail: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """`perceptual_hash` of a 32 x 32 grey picture, uint8 [32, 32], and of its mirror image (left and right exchanged).

    Mirroring changes the sign of the coefficients of odd horizontal frequency and nothing else, so one transform serves
    both. The second value equals `perceptual_hash(thumbnail[:, ::-1])` but for bits whose coefficient is within
    rounding of the median: next to none in photographs, many in pictures whose hash is degenerate anyway or that are
    exactly symmetric (half of their coefficients are then 0).
    """
    from scipy.fft import dct

    low = dct(dct(thumbnail.astype(np.float64), axis=0)[:8], axis=1)[:, :8]
    both = (low * _MIRROR).reshape(2, 64)
    ordered = np.partition(both, (31, 32), axis=1)
    bits = np.packbits(both > (ordered[:, 31:32] + ordered[:, 32:33]) / 2, axis=1)
    plain, mirrored = bits.view(">u8").ravel().tolist()
    return plain, mirrored


_MIRROR = np.stack([np.ones((1, 8)), np.where(np.arange(8) % 2, -1.0, 1.0)[None]])
"""float64 [2, 1, 8]: signs of the coefficients by horizontal frequency, as they are and mirrored."""


class ScreenScorer:
    """Decodes once and measures. It works on encoded bytes, so it is not a `Scorer`: those take decoded batches.

    Columns:
        phash: uint64, `imagehash.phash` of `curation.decode.grey_thumbnail` of what is inside uniform borders
            (`curation.scorers.frame`); of the whole image with `trim_borders: false`.
        phash_mirrored: uint64, the same hash of the mirrored picture (`perceptual_hashes`). One picture is a mirrored
            copy of another when its hash is near the mirrored hash of the other.
        phash_degenerate: neither hash may be used to find duplicates (`is_degenerate` of one of them).
        sharpness: variance of the 3 x 3 Laplacian of luma (0..255) at working size, divided by 16, >= 0. Comparable
            between pictures that are at least as large as the working size; smaller ones are measured as they are,
            since enlarging them would make them look blurred.
        brightness, contrast: mean and standard deviation of luma, 0..1.
        entropy: Shannon entropy of the 256-bin luma histogram, bits, 0..8.
        local_entropy: the same where there is most of it: of the image, of what is inside its borders or of the
            richest of its tiles, and 0 where neighbors hardly differ anywhere (`curation.scorers.flatness`). The rule
            `low_entropy` looks at it.
        content_share: share of the image's area inside uniform borders, 0..1; exactly 1 without borders, and with
            `trim_borders: false`.
        dark_share, bright_share: share of pixels with luma <= 8 and >= 247, 0..1.
        colourfulness: Hasler and Suesstrunk, "Measuring colourfulness in natural images", 2003, M^(3): 0 for grey,
            about 15 slightly, 45 averagely and above 80 highly colourful; on pixels sampled from the picture.
    """

    name: ClassVar[str] = "screen"
    version: ClassVar[int] = 3
    columns: ClassVar[Mapping[str, pa.DataType]] = {
        "phash": pa.uint64(),
        "phash_mirrored": pa.uint64(),
        "phash_degenerate": pa.bool_(),
        "sharpness": pa.float32(),
        "brightness": pa.float32(),
        "contrast": pa.float32(),
        "entropy": pa.float32(),
        "local_entropy": pa.float32(),
        "dark_share": pa.float32(),
        "bright_share": pa.float32(),
        "colourfulness": pa.float32(),
        "content_share": pa.float32(),
    }

    def __init__(self, config: ScreenConfig | None = None, decode: DecodeConfig | None = None) -> None:
        self.config = config or ScreenConfig()
        self.decode_config = decode or DecodeConfig()

    def fingerprint(self) -> str:
        """Identity of the columns: the same fingerprint promises the same values for the same bytes."""
        return fingerprint(self.name, self.version, self.config, self.decode_config)

    def measure(self, data: bytes, header: Header) -> tuple[dict[str, Any], Pixels | Problem]:
        """Columns of one input, and its pixels at working size or why there are none (all columns are then None)."""
        decoded = decode(data, header, self.decode_config, self.decode_config.work_side)
        if isinstance(decoded, Problem):
            return dict.fromkeys(self.columns), decoded
        return measure_pixels(decoded.pixels, self.config), decoded.pixels


def measure_pixels(pixels: Pixels, config: ScreenConfig) -> dict[str, Any]:
    """The columns of a decoded picture, RGB uint8 [height, width, 3]."""
    grey = luma(pixels)
    sharpness = _sharpness(grey)
    while max(grey.shape) > STATISTICS_SIDE:
        grey = halve(grey)
    columns = _exposure(grey)
    box = content_box(grey) if config.trim_borders else None
    content, contrast, entropy = grey, columns["contrast"], columns["entropy"]
    if box is not None:
        left, top, right, bottom = box
        content = grey[top:bottom, left:right]
        inside = _exposure(content)
        contrast, entropy = inside["contrast"], max(entropy, inside["entropy"])
    phash, mirrored = perceptual_hashes(grey_thumbnail(content))
    degenerate = is_degenerate(np.array([phash, mirrored], np.uint64), np.full(2, contrast), config)
    return {
        "phash": phash,
        "phash_mirrored": mirrored,
        "phash_degenerate": bool(degenerate.any()),
        "sharpness": sharpness,
        **columns,
        "local_entropy": local_entropy(grey, entropy),
        "colourfulness": _colourfulness(pixels),
        "content_share": content_share(grey.shape, box),
    }


def _sharpness(grey: npt.NDArray[np.uint8]) -> float:
    import cv2

    _, deviation = cv2.meanStdDev(cv2.Laplacian(grey, cv2.CV_16S, ksize=3))
    return float(deviation[0, 0] / LAPLACIAN_GAIN) ** 2


@functools.cache
def _levels() -> npt.NDArray[np.float64]:
    return np.arange(256) / 255.0


def _exposure(grey: npt.NDArray[np.uint8]) -> dict[str, float]:
    import cv2

    share = cv2.calcHist([grey], [0], None, [256], [0, 256]).ravel().astype(np.float64) / grey.size
    levels = _levels()
    mean = float(share @ levels)
    used = share[share > 0]
    return {
        "brightness": mean,
        "contrast": math.sqrt(float(share @ (levels - mean) ** 2)),
        "entropy": abs(float(used @ np.log2(used))),
        "dark_share": float(share[: DARK + 1].sum()),
        "bright_share": float(share[BRIGHT:].sum()),
    }


def _colourfulness(pixels: Pixels) -> float:
    import cv2

    height, width = pixels.shape[:2]
    long = max(height, width)
    if long > COLOUR_SIDE:
        size = max(1, width * COLOUR_SIDE // long), max(1, height * COLOUR_SIDE // long)
        pixels = np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_NEAREST), np.uint8)
    red, green, blue = cv2.split(pixels)
    red_green = cv2.subtract(red, green, dtype=cv2.CV_16S)
    # Twice the paper's yellow-blue, to stay with whole numbers.
    yellow_blue = cv2.subtract(cv2.add(red, green, dtype=cv2.CV_16S), cv2.add(blue, blue, dtype=cv2.CV_16S))
    (mean_rg,), (deviation_rg,) = (value.ravel() for value in cv2.meanStdDev(red_green))
    (mean_yb,), (deviation_yb,) = (value.ravel() / 2 for value in cv2.meanStdDev(yellow_blue))
    return float(math.hypot(deviation_rg, deviation_yb) + 0.3 * math.hypot(mean_rg, mean_yb))
