"""The files and numbers of one picture, as they lie on disk or in a shard: `Record` -> `Picture`, and back.

Sources of folders give records of the files' own bytes, so that `pack` stores each file as it is; a record of any other
`Picture` holds lossless PNG and float32 .npy. Either way the record alone decides what the picture is.

What is made of the files:

- normals are set to 0 off the mask and where they are not finite or shorter than 0.1; others are brought to unit length
  unless they are within 1e-5 of it (so that float32 unit vectors stay as they are);
- depth is set to 0 off the mask and where it is not finite or not above 0;
- albedo that is not finite is set to 0; its range is left alone;
- keypoints without a label, or outside of the picture, are 0, 0, 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from training.data.labelled import IGNORE_PART, Picture
from training.data.labelled_sets import members
from training.data.labelled_sets.problem import LabelError

LABELS = ("mask", "person", "parts", "normals", "depth", "albedo")
"""Members of a record beside the image."""

MIN_LENGTH = 0.1  # a shorter "normal" has no direction that 8 bits can tell (ours)
UNIT_TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class Member:
    """One file.

    Attributes:
        data: its bytes.
        extension: without a dot, lower-case.
        file: name for errors; it ends with the extension.
    """

    data: bytes
    extension: str
    file: str


@dataclass(frozen=True, slots=True)
class Record:
    """What a picture is made of.

    Attributes:
        id: unique in its source.
        members: "image" and any of `LABELS` -> file.
        info: JSON object: `intrinsics` (3 x 3, of pixel centres), `keypoints` [n][K][3] with `keypoint_count` K and,
            where it is known, `keypoint_set`, its name; `boxes` [n][4] (corners, edges of pixels), `areas` [n]; and how
            files are to be read: `mask_from` (the member `mask`, or `person`, `parts`, `boxes`), `background`,
            `classes`, `normal_axes`, `depth_unit`, `albedo_encoding` (`config.py`). What is absent or null is not
            labelled, or has the default.
    """

    id: str
    members: Mapping[str, Member]
    info: Mapping[str, Any]


class Pictures(Protocol):
    """A fixed sequence of labelled pictures (`training.finetuning.pictures`). Picklable: loader workers get a copy."""

    fingerprint: str

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Picture: ...


class PictureSource(Pictures, Protocol):
    """Pictures whose files are known."""

    def id(self, index: int) -> str:
        """Of the picture, without reading it."""
        ...

    def record(self, index: int) -> Record:
        """The files of a picture, read and not decoded."""
        ...


def picture(record: Record) -> Picture:
    """Decode everything.

    Raises:
        LabelError: a file cannot be read, or does not fit the image.
    """
    info, files = record.info, record.members
    pixels = members.image(files["image"].data, files["image"].file)
    size = pixels.shape[0], pixels.shape[1]
    parts = None
    if "parts" in files:
        parts = part_ids(files["parts"], size, int(info.get("classes") or IGNORE_PART))
    boxes = None if info.get("boxes") is None else np.array(info["boxes"], np.float32).reshape(-1, 4)
    mask, person = people(record, size, parts, boxes)
    made: dict[str, Any] = {}
    if "normals" in files:
        raw = members.normals(files["normals"].data, files["normals"].file, info.get("normal_axes") or "opencv")
        made["normals"] = unit_normals(fitting(raw, size, files["normals"].file), mask)
    if "depth" in files:
        raw = members.depth(files["depth"].data, files["depth"].file, info.get("depth_unit"))
        z = fitting(raw, size, files["depth"].file)
        made["depth"] = np.where(mask & np.isfinite(z) & (z > 0), z, np.float32(0))
    if "albedo" in files:
        raw = members.albedo(files["albedo"].data, files["albedo"].file, info.get("albedo_encoding"))
        rgb = fitting(raw, size, files["albedo"].file)
        made["albedo"] = np.where(np.isfinite(rgb), rgb, np.float32(0))
    if info.get("intrinsics") is not None:
        made["intrinsics"] = np.array(info["intrinsics"], np.float64)
    if info.get("keypoints") is not None:
        shape = len(info["keypoints"]), int(info["keypoint_count"]), 3
        made["keypoints"] = np.array(info["keypoints"], np.float32).reshape(shape)
    if info.get("areas") is not None:
        made["areas"] = np.array(info["areas"], np.float32)
    return Picture(image=pixels, mask=mask, person=person, parts=parts, boxes=boxes, id=record.id, **made)


def fitting(array: npt.NDArray[Any], size: tuple[int, int], file: str) -> npt.NDArray[Any]:
    """`array` if its first two dimensions are the image's; else a LabelError."""
    if array.shape[:2] == size:
        return array
    turned = array.shape[:2] == size[::-1]
    raise LabelError(
        file,
        f"is {array.shape[1]} x {array.shape[0]} pixels, its image {size[1]} x {size[0]} (width x height, upright)",
        "Turn the label: the image has an EXIF orientation, and labels are of the upright picture"
        if turned
        else "Make both the same size: labels are never resized",
    )


def part_ids(member: Member, size: tuple[int, int], classes: int) -> npt.NDArray[np.uint8]:
    """uint8 [H, W] of an index mask; a LabelError where ids are neither a class nor 255."""
    ids = fitting(members.indices(member.data, member.file), size, member.file)
    unknown = ids[(ids >= classes) & (ids != IGNORE_PART) | (ids < 0)]
    if len(unknown):
        raise LabelError(
            member.file,
            f"holds part ids {np.unique(unknown)[:8].tolist()}, but classes are 0..{classes - 1} and "
            f"{IGNORE_PART} = ignore",
            "Map the ids, or set `classes`",
        )
    return ids.astype(np.uint8)


def unit_normals(raw: npt.NDArray[np.float32], mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    """float32 [H, W, 3]: unit vectors on the mask, 0 elsewhere and where there is no direction."""
    length = np.sqrt(np.square(raw, dtype=np.float64).sum(axis=-1))
    valid = mask & np.isfinite(length) & (length >= MIN_LENGTH)
    result = np.where(valid[..., None], raw, np.float32(0))
    off = valid & (np.abs(length - 1) > UNIT_TOLERANCE)
    if off.any():
        result[off] = raw[off] / length[off][:, None]
    return result


def people(
    record: Record, size: tuple[int, int], parts: npt.NDArray[np.uint8] | None, boxes: npt.NDArray[np.float32] | None
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int16]]:
    """Mask and index of people, from what the record says that they are of."""
    info, files = record.info, record.members
    person = np.full(size, -1, np.int16)
    if "person" in files:
        file = files["person"]
        person = (fitting(members.indices(file.data, file.file), size, file.file).astype(np.int32) - 1).astype(np.int16)
    match info.get("mask_from"):
        case "mask":
            file = files["mask"]
            mask = fitting(members.indices(file.data, file.file), size, file.file) > 0
        case "parts" if parts is not None:
            background = info.get("background")
            mask = parts != IGNORE_PART
            if background is not None:
                mask &= parts != background
        case "boxes" if boxes is not None:
            for index in reversed(range(len(boxes))):  # where boxes overlap, the first person is in front
                rows, columns = (
                    _centres(boxes[index, axis], boxes[index, axis + 2], size[1 - axis]) for axis in (1, 0)
                )
                person[rows, columns] = index
            mask = person >= 0
        case _:
            mask = person >= 0
    if "person" not in files:
        person[mask & (person < 0)] = 0
    return mask, person


def _centres(low: float, high: float, length: int) -> slice:
    """Pixels whose centres are between two edges."""
    first, last = (int(np.clip(np.ceil(edge - 0.5), 0, length)) for edge in (low, high))
    return slice(first, last)


def record_of(picture: Picture) -> Record:
    """Lossless files of any picture: `picture(record_of(p))` equals p."""
    files = {
        "image": png(picture.image, "image"),
        "person": png((picture.person.astype(np.int32) + 1).astype(np.uint16), "person"),
    }
    info: dict[str, Any] = {"mask_from": "person"}
    if not np.array_equal(picture.mask, picture.person >= 0):
        files["mask"] = png(picture.mask.astype(np.uint8) * 255, "mask")
        info["mask_from"] = "mask"
    if picture.parts is not None:
        files["parts"] = png(picture.parts, "parts")
    for name in ("normals", "depth", "albedo"):
        value = getattr(picture, name)
        if value is not None:
            files[name] = npy(value, name)
    if picture.intrinsics is not None:
        info["intrinsics"] = picture.intrinsics.tolist()
    if picture.keypoints is not None:
        info |= {"keypoints": picture.keypoints.tolist(), "keypoint_count": picture.keypoints.shape[1]}
    for name in ("boxes", "areas"):
        value = getattr(picture, name)
        if value is not None:
            info[name] = value.tolist()
    return Record(picture.id, files, info)


def png(pixels: npt.NDArray[Any], name: str) -> Member:
    """A PNG of grey or RGB pixels, uint8 or uint16."""
    import cv2

    stored = pixels if pixels.ndim == 2 else np.ascontiguousarray(pixels[..., ::-1])
    done, data = cv2.imencode(".png", stored)
    if not done:
        raise ValueError(f"{name}: {pixels.shape} {pixels.dtype} cannot be written as a PNG")
    return Member(data.tobytes(), "png", f"{name}.png")


def npy(array: npt.NDArray[Any], name: str) -> Member:
    """An .npy file, version 1."""
    import io

    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array))
    return Member(buffer.getvalue(), "npy", f"{name}.npy")
