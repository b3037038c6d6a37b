"""One label file -> an array, as the file has it: what `record.py` makes labels of, and `check.py` looks at.

Every function takes the bytes and the file's name for errors. PNG of 16-bit colour goes through OpenCV, because Pillow
cuts it to 8 bits; index masks go through Pillow, because OpenCV turns palettes into colours. Neither applies EXIF.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from curation.codecs.pillow import guarded
from curation.decode import DecodeConfig, Header, decode, read_header
from curation.decode import Problem as ImageProblem
from training.data.labelled_sets.problem import LabelError

IMAGES = DecodeConfig(max_memory=4 * 1024**3)
"""How images are decoded: the one policy. Labels are of the full size, so a large picture may take its memory."""


def image(data: bytes, name: str) -> npt.NDArray[np.uint8]:
    """uint8 [H, W, 3], sRGB, upright."""
    header = image_header(data, name)
    decoded = decode(data, header, IMAGES, None)
    if isinstance(decoded, ImageProblem):
        raise LabelError(name, f"cannot be decoded: {decoded.reason}, {decoded.detail}", "Replace or remove the image")
    return decoded.pixels


def upright_size(data: bytes, name: str) -> tuple[int, int]:
    """Height and width of the decoded image, from its header."""
    header = image_header(data, name)
    return header.height, header.width


def image_header(data: bytes, name: str) -> Header:
    """What the image's header says; LabelError where it is no image."""
    header = read_header(data, IMAGES)
    if isinstance(header, ImageProblem):
        raise LabelError(name, f"cannot be read: {header.reason}, {header.detail}", "Replace or remove the image")
    return header


def indices(data: bytes, name: str) -> npt.NDArray[np.integer]:
    """Integer [H, W]: class ids or indices of people of a grey, palette, 1-bit or grey-as-RGB PNG."""
    from PIL import Image

    try:
        with guarded(), Image.open(io.BytesIO(data), formats=("PNG",)) as file:
            pixels = np.asarray(file)
    except Exception as error:  # noqa: BLE001 - decoders raise anything on damaged bytes
        raise LabelError(name, f"is no readable PNG: {str(error)[:120]}", "Write it anew as a PNG") from None
    if pixels.ndim == 3:
        if pixels.shape[2] in (2, 4) and pixels[..., -1].min() < pixels[..., -1].max():
            raise LabelError(
                name, "has transparency where ids are expected", "Save one id per pixel, as an 8-bit grey PNG"
            )
        grey = pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., :1]
        if (grey != grey[..., :1]).any():
            raise LabelError(name, "has colours where ids are expected", "Save one id per pixel, as an 8-bit grey PNG")
        pixels = grey[..., 0]
    return pixels.astype(np.uint8) if pixels.dtype == np.bool_ else pixels


def numbers(data: bytes, name: str) -> npt.NDArray[np.floating]:
    """The array of an .npy file, of real numbers; dtype as stored."""
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # noqa: BLE001 - numpy raises anything on damaged bytes
        raise LabelError(
            name, f"is no readable .npy array: {str(error)[:120]}", "Save it anew with numpy.save"
        ) from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
        raise LabelError(name, "holds no real numbers", "Save a float32 array with numpy.save")
    return array


def _png(data: bytes, name: str) -> npt.NDArray[np.floating]:
    """[H, W] or [H, W, 3] of an 8- or 16-bit PNG, RGB, as stored."""
    import cv2

    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error:
        pixels = None
    if pixels is None or pixels.dtype not in (np.uint8, np.uint16):
        raise LabelError(name, "is no readable PNG of 8 or 16 bits", "Write it anew as a PNG, or as .npy")
    return np.asarray(pixels if pixels.ndim == 2 else pixels[..., 2::-1])


def _map(data: bytes, name: str, channels: int | None) -> npt.NDArray[Any]:
    """The array of a .npy or .png by its name, with its dtype and the right number of dimensions."""
    array = numbers(data, name) if name.lower().endswith(".npy") else _png(data, name)
    if array.ndim == 3 and array.shape[2] == 1 and channels is None:
        array = array[..., 0]
    wanted = "[H, W]" if channels is None else f"[H, W, {channels}]"
    if array.ndim != (2 if channels is None else 3) or (channels is not None and array.shape[2] != channels):
        hint = "; move the channels last" if array.ndim == 3 and array.shape[0] == channels else ""
        raise LabelError(name, f"has shape {list(array.shape)} instead of {wanted}", f"Save {wanted}{hint}")
    return array


def normals(data: bytes, name: str, axes: str) -> npt.NDArray[np.float32]:
    """float32 [H, W, 3] in our camera axes (x right, y down, z forward), of any length, nan where the file has nan."""
    array = _map(data, name, 3)
    if array.dtype.kind == "u":
        values = (array / np.float64(np.iinfo(array.dtype).max) * 2 - 1).astype(np.float32)
    else:
        values = array.astype(np.float32)
    return values * np.array((1, -1, -1), np.float32) if axes == "opengl" else values


def depth(data: bytes, name: str, unit: float | None) -> npt.NDArray[np.float32]:
    """float32 [H, W], metres; nan, negative and infinite as in the file."""
    array = _map(data, name, None)
    factor = unit if unit is not None else (1.0 if array.dtype.kind == "f" else 0.001)
    if name.lower().endswith(".png") and array.dtype == np.uint8:
        raise LabelError(
            name, "has 8 bits, which is too coarse for depth", "Save 16-bit millimetres, or metres as .npy"
        )
    if array.dtype == np.float32 and factor == 1:
        return array
    return (array.astype(np.float64) * factor).astype(np.float32)


def albedo(data: bytes, name: str, encoding: str | None) -> npt.NDArray[np.float32]:
    """float32 [H, W, 3], linear RGB; beyond 0..1 where an .npy is."""
    array = _map(data, name, 3)
    stored = array.dtype.kind == "u"
    if stored:
        values = array / np.float64(np.iinfo(array.dtype).max)
    elif array.dtype == np.float32 and encoding != "srgb":
        return array
    else:
        values = array.astype(np.float64)
    if encoding == "srgb" or (encoding is None and stored):
        values = linear(values)
    return values.astype(np.float32)


def linear(encoded: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Inverse of sRGB's transfer function (IEC 61966-2-1), of values in 0..1; others are left beyond it."""
    return np.where(encoded <= 0.04045, encoded / 12.92, ((np.maximum(encoded, 0) + 0.055) / 1.055) ** 2.4)


def camera_file(data: bytes, name: str) -> Any:
    """The JSON value of a file, or the 3 x 3 numbers of a text file."""
    try:
        if name.lower().endswith(".txt"):
            return np.loadtxt(io.StringIO(data.decode())).tolist()
        return json.loads(data)
    except ValueError as error:
        raise LabelError(name, f"is not what its extension says: {error}", "Write the camera as JSON") from None


def is_camera(value: Any) -> bool:
    """Whether a JSON value is one camera, and not a table of cameras."""
    return isinstance(value, list) or (isinstance(value, Mapping) and bool({"fx", "K", "intrinsics"} & set(value)))


def camera(value: Any, name: str, size: tuple[int, int], origin: str) -> npt.NDArray[np.float64]:
    """Intrinsics float64 [3, 3] for pixel centres, of one of the forms in `config.py`.

    Args:
        value: JSON value.
        name: for errors.
        size: height and width of the image.
        origin: "centre", or "corner": the principal point is moved by half a pixel.
    """
    fix = 'Write {"fx": .., "fy": .., "cx": .., "cy": ..} or [[fx, 0, cx], [0, fy, cy], [0, 0, 1]], in pixels'
    if isinstance(value, Mapping):
        given = value.get("height", size[0]), value.get("width", size[1])
        if given != size:
            raise LabelError(
                name,
                f"is of a picture of {given[1]} x {given[0]}, the upright image has {size[1]} x {size[0]}",
                "Scale the camera to the image",
            )
    try:
        if isinstance(value, Mapping) and "fx" in value:
            fx, fy, cx, cy = (float(value[key]) for key in ("fx", "fy", "cx", "cy"))
            matrix = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]], np.float64)
        else:
            inner = value.get("K", value.get("intrinsics")) if isinstance(value, Mapping) else value
            matrix = np.array(inner, np.float64)
    except (KeyError, TypeError, ValueError):
        raise LabelError(name, "holds no camera", fix) from None
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all():
        raise LabelError(name, f"holds {list(matrix.shape)} numbers instead of a finite 3 x 3 matrix", fix)
    if matrix[0, 0] <= 0 or matrix[1, 1] <= 0 or matrix[2].tolist() != [0, 0, 1] or matrix[0, 1] or matrix[1, 0]:
        raise LabelError(
            name, f"is {matrix.tolist()}: focal lengths must be positive, skew 0 and the last row 0, 0, 1", fix
        )
    if origin == "corner":
        matrix[:2, 2] -= 0.5
    return matrix
