"""Encoded files of arrays: PNG index masks, NPY, 16-bit PNG, JPEG, EXR, PLY; and how the coded ones are read back."""

from __future__ import annotations

import importlib.util
import io
import tempfile
from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image as PillowImage

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

MILLIMETRES = 1000.0
_VERTEX = np.dtype([("xyz", "<f4", 3), ("rgb", "u1", 3)])


def index_png(labels: Pixels, palette: Pixels) -> bytes:
    """Classes uint8 [H, W] as a palette PNG: its values are the classes, its colours only for the eye.

    Args:
        labels: class ids.
        palette: uint8 [classes, 3] RGB, by class; other ids are white.
    """
    colours = np.full((256, 3), 255, np.uint8)
    colours[: len(palette)] = palette
    picture = PillowImage.fromarray(labels, "P")
    picture.putpalette(colours.tobytes())
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def npy(array: npt.NDArray[np.generic]) -> bytes:
    """As `np.load` reads it."""
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def rgb_png(values: npt.NDArray[np.uint8] | npt.NDArray[np.uint16]) -> bytes:
    """uint8 or uint16 [H, W, 3] RGB, or [H, W]."""
    return _encoded(".png", values)


def jpeg(image: Pixels, quality: int) -> bytes:
    """uint8 [H, W, 3] RGB."""
    return _encoded(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])


def require_exr() -> None:
    """See that EXR files can be written.

    Raises:
        ValueError: the package is absent.
    """
    if importlib.util.find_spec("OpenEXR") is None:
        raise ValueError("EXR files need the package OpenEXR: pip install 'populace[exr]', or choose npy or png")


def exr(channels: Mapping[str, Floats]) -> bytes:
    """Float32 channels of one size, compressed without loss (ZIP).

    Args:
        channels: "RGB": [H, W, 3], which becomes R, G and B; or any other name: [H, W].

    Raises:
        ValueError: see `require_exr`.
    """
    require_exr()
    import OpenEXR  # type: ignore[import-not-found]

    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    arrays = {name: np.ascontiguousarray(values, np.float32) for name, values in channels.items()}
    with tempfile.TemporaryDirectory() as folder:  # the package writes to paths only
        path = Path(folder, "values.exr")
        OpenEXR.File(header, arrays).write(str(path))
        return path.read_bytes()


def _encoded(extension: str, values: npt.NDArray[np.generic], options: list[int] | None = None) -> bytes:
    array = np.ascontiguousarray(values[..., ::-1] if values.ndim == 3 else values)
    done, data = cv2.imencode(extension, array, options or [])
    if not done:
        raise ValueError(f"OpenCV cannot write {values.shape} {values.dtype} as {extension}")
    return data.tobytes()


def coded_normals(normals: Floats) -> npt.NDArray[np.uint16]:
    """Unit vectors [H, W, 3] -> (n + 1) / 2 x 65535; 0 (no normal) becomes 32768 three times."""
    return np.floor((normals.astype(np.float64).clip(-1, 1) + 1) * (65535 / 2) + 0.5).astype(np.uint16)


def decoded_normals(coded: npt.NDArray[np.uint16]) -> Floats:
    """The inverse, to 1.6e-5; three times 32768 is 0."""
    normals = coded.astype(np.float64) / (65535 / 2) - 1
    return np.where((coded == 32768).all(axis=-1, keepdims=True), 0, normals).astype(np.float32)


def coded_depth(depth: Floats) -> npt.NDArray[np.uint16]:
    """Metres [H, W] -> whole millimetres; 0 where there is no finite depth above 0, at most 65535."""
    valid = np.isfinite(depth) & (depth > 0)
    return np.rint(np.where(valid, depth, 0).astype(np.float64) * MILLIMETRES).clip(0, 65535).astype(np.uint16)


def ply(points: Floats, image: Pixels, mask: npt.NDArray[np.bool_] | None = None) -> bytes:
    """A coloured point cloud, binary little-endian PLY: x, y, z float, red, green, blue uchar.

    Args:
        points: float32 [H, W, 3], metres in camera axes.
        image: uint8 [H, W, 3] RGB.
        mask: bool [H, W], the foreground; None: everything. Points that are not finite or not before the camera
            (z <= 0) are left out in any case.
    """
    valid = np.isfinite(points).all(axis=-1) & (points[..., 2] > 0)
    if mask is not None:
        valid &= mask
    vertices = np.empty(int(valid.sum()), _VERTEX)
    vertices["xyz"], vertices["rgb"] = points[valid], image[valid]
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {len(vertices)}"]
    lines += [f"property float {axis}" for axis in "xyz"]
    lines += [f"property uchar {colour}" for colour in ("red", "green", "blue")]
    return ("\n".join([*lines, "end_header"]) + "\n").encode() + vertices.tobytes()
