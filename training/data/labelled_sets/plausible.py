"""What is wrong, or unlikely to be meant, in the files of one picture. All thresholds are ours.

| what | fatal | not fatal |
|---|---|---|
| image | unreadable | |
| image with an EXIF orientation that its size does not show | | labels that are, or may be, of the stored image |
| masks | unreadable, another size, colours, transparency | no person; greys, all of which count |
| parts | the same; ids that are no class | no part; 255 (ignore) alone |
| normals | the same; no finite vector on the mask | nan, length off 1 by 0.1 (2 %), facing away (5 %) |
| depth | the same; no valid value on the mask | nan or negative, median below 0.2 m or above 100 m |
| albedo | the same; values beyond 0..1 | nan, constant |
| camera | no camera, another size | view not 5 to 150 degrees, fx / fy not 0.8 to 1.25, centre off the picture |

Shares are of the mask's pixels, above which something is said.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from training.data.labelled import IGNORE_PART
from training.data.labelled_sets import members
from training.data.labelled_sets.problem import LabelError, Problem
from training.data.labelled_sets.record import Member, Record, fitting, part_ids, people
from training.data.labelled_sets.turned import STORED, UNKNOWN, is_ambiguous, labels_are

LENGTH_OFF, LENGTH_SHARE, AWAY_SHARE = 0.1, 0.02, 0.05
NEAR, FAR = 0.2, 100.0
CONSTANT = 0.02  # the released training leaves out albedo of a smaller deviation
NARROW, WIDE = 5.0, 150.0
ASPECT = (0.8, 1.25)
NO_PERSON = "shows no person"
ONLY_IGNORED = f"has no part but {IGNORE_PART}, which means ignore: nothing can be learnt from it"
_FEW = 64  # values below may be ids; several others are greys
PARTS_IGNORED = f"{ONLY_IGNORED.partition(':')[0]} on people"
SAVE_IDS = f"Save class ids (1, 2, ...) where {IGNORE_PART} stands for people or parts"

Mask = npt.NDArray[np.bool_]


def check_record(record: Record) -> list[Problem]:
    """Decode every file of a record; each problem is named, the first does not hide the others."""
    problems: list[Problem] = []
    image = record.members["image"]
    try:
        pixels = members.image(image.data, image.file)
    except LabelError as error:
        return [error.problem]
    size = pixels.shape[0], pixels.shape[1]
    parts = None
    if "parts" in record.members:
        try:
            parts = part_ids(record.members["parts"], size, int(record.info.get("classes") or IGNORE_PART))
        except LabelError as error:
            problems.append(error.problem)
    if parts is not None or record.info.get("mask_from") != "parts":
        try:
            mask = _mask(record, size, parts)
        except LabelError as error:
            return [*problems, error.problem]
        problems += _soft(record)
        problems += _orientation(record, pixels, parts)
        ignored = parts is not None and _only_ignored(parts, record.info.get("background") or 0)
        if ignored:
            what = PARTS_IGNORED if mask.any() and record.info.get("mask_from") != "parts" else ONLY_IGNORED
            problems.append(Problem(record.members["parts"].file, what, SAVE_IDS, False))
        if mask.any():
            problems += _maps(record, size, mask)
        elif not ignored and record.info.get("mask_from") != "boxes":
            shown = [record.members[name] for name in ("mask", "person", "parts", "image") if name in record.members]
            problems.append(
                Problem(shown[0].file, NO_PERSON, "Correct the label, if somebody is on the picture", False)
            )
    if record.info.get("intrinsics") is not None:
        camera = np.array(record.info["intrinsics"], np.float64)
        problems += [Problem(image.file, f"its camera has {what}", fix, False) for what, fix in _camera(camera, size)]
    return problems


def _mask(record: Record, size: tuple[int, int], parts: npt.NDArray[np.uint8] | None) -> Mask:
    boxes = record.info.get("boxes")
    return people(record, size, parts, None if boxes is None else np.array(boxes, np.float32).reshape(-1, 4))[0]


def _soft(record: Record) -> Iterator[Problem]:
    """A mask of greys: what is hardly a person counts as one."""
    if record.info.get("mask_from") == "mask":
        file = record.members["mask"]
        values = np.unique(members.indices(file.data, file.file))
        values = values[values > 0]
        if len(values) > 1 and values[-1] >= _FEW:
            yield Problem(
                file.file,
                f"holds {len(values):,} values above 0, up to {values[-1]}, and all of them count as a person",
                "Set the mask to 0 and 255 at a threshold, if it is a soft one",
                False,
            )


def _only_ignored(parts: npt.NDArray[np.uint8], background: int) -> bool:
    ignored = parts == IGNORE_PART
    return bool(ignored.any() and (ignored | (parts == background)).all())


def _orientation(
    record: Record, pixels: npt.NDArray[np.uint8], parts: npt.NDArray[np.uint8] | None
) -> Iterator[Problem]:
    """Labels that were made on the stored image, where both have one size."""
    image = record.members["image"]
    orientation = members.image_header(image.data, image.file).orientation
    size = pixels.shape[0], pixels.shape[1]
    if not is_ambiguous(orientation, size):
        return
    file, found = image.file, UNKNOWN
    for name in ("parts", "mask", "person"):
        if name in record.members:
            file = record.members[name].file
            ids = parts if name == "parts" and parts is not None else members.indices(record.members[name].data, file)
            found = labels_are(pixels, fitting(ids, size, file), orientation)
            break
    if found == STORED:
        yield Problem(
            file,
            f"is of the image before its EXIF orientation ({orientation}), as its edges tell",
            "Images are turned upright: turn the labels, or save the image without an orientation",
            False,
        )
    elif found == UNKNOWN:
        yield Problem(
            image.file,
            f"has the EXIF orientation {orientation}, and its size of {size[1]} x {size[0]} does not tell whether its "
            "labels are of the upright image",
            "Compare one: images are turned upright, and labels have to be so",
            False,
        )


def _maps(record: Record, size: tuple[int, int], mask: Mask) -> list[Problem]:
    problems: list[Problem] = []
    for name, check in (("normals", _normals), ("depth", _depth), ("albedo", _albedo)):
        if name in record.members:
            try:
                problems += check(record.members[name], record, size, mask)
            except LabelError as error:
                problems.append(error.problem)
    return problems


def _normals(member: Member, record: Record, size: tuple[int, int], mask: Mask) -> Iterator[Problem]:
    raw = members.normals(member.data, member.file, record.info.get("normal_axes") or "opencv")
    vectors = fitting(raw, size, member.file)[mask].astype(np.float64)
    length = np.linalg.norm(vectors, axis=-1)
    finite = np.isfinite(length)
    if not (finite & (length > 0)).any():
        yield Problem(member.file, "has no normal on the mask", "Save unit vectors, or correct the mask")
        return
    if not finite.all():
        yield Problem(
            member.file, f"{_share(~finite)} of the mask is not finite", "Those pixels count as not labelled", False
        )
    off = np.abs(length[finite] - 1) > LENGTH_OFF
    if off.mean() > LENGTH_SHARE:
        yield Problem(
            member.file,
            f"{_share(off)} of the mask has no unit vectors (median length {np.median(length[finite]):.3g})",
            "Save unit vectors; PNG holds (n + 1) / 2 of the largest value",
            False,
        )
    away = vectors[finite][:, 2] > 0.1
    if away.mean() > AWAY_SHARE:
        yield Problem(
            member.file,
            f"{_share(away)} of the mask faces away from the camera",
            "Correct `normal_axes`: what is seen has z < 0 with opencv (z forward), z > 0 with opengl",
            False,
        )


def _depth(member: Member, record: Record, size: tuple[int, int], mask: Mask) -> Iterator[Problem]:
    raw = members.depth(member.data, member.file, record.info.get("depth_unit"))
    values = fitting(raw, size, member.file)[mask]
    valid = np.isfinite(values) & (values > 0)
    if not valid.any():
        yield Problem(member.file, "has no depth on the mask", "Save z in metres, or correct the mask")
        return
    bad = ~np.isfinite(values) | (values < 0)
    if bad.any():
        yield Problem(
            member.file, f"{_share(bad)} of the mask is nan or negative", "Those pixels count as not labelled", False
        )
    median = float(np.median(values[valid]))
    if not NEAR <= median <= FAR:
        yield Problem(
            member.file, f"people are {median:.4g} m away (median)", "Set `depth_unit`, the metres per unit", False
        )


def _albedo(member: Member, record: Record, size: tuple[int, int], mask: Mask) -> Iterator[Problem]:
    raw = members.albedo(member.data, member.file, record.info.get("albedo_encoding"))
    values = fitting(raw, size, member.file)[mask]
    finite = values[np.isfinite(values).all(axis=-1)]
    if len(finite) < len(values):
        yield Problem(
            member.file, f"{1 - len(finite) / len(values):.1%} of the mask is not finite", "Save numbers in 0..1", False
        )
    if not len(finite):
        return
    low, high = float(finite.min()), float(finite.max())
    if low < 0 or high > 1:
        yield Problem(member.file, f"goes from {low:.4g} to {high:.4g}", "Scale it to 0..1 (8-bit values by 1 / 255)")
    elif finite.std(axis=0, dtype=np.float64).max() < CONSTANT:
        yield Problem(member.file, "is nearly constant on the mask", "Training leaves it out; remove it", False)


def _camera(camera: npt.NDArray[np.float64], size: tuple[int, int]) -> Iterator[tuple[str, str]]:
    height, width = size
    fix = "Give fx, fy, cx, cy in pixels of this image; scale them when it is resized"
    fx, fy, cx, cy = camera[0, 0], camera[1, 1], camera[0, 2], camera[1, 2]
    angle = float(np.degrees(2 * np.arctan(max(width / fx, height / fy) / 2)))
    if not NARROW <= angle <= WIDE:
        yield f"an angle of view of {angle:.3g} degrees", fix
    if not ASPECT[0] <= fx / fy <= ASPECT[1]:
        yield f"fx {fx:g} and fy {fy:g}, pixels far from square", fix
    if not (0 <= cx <= width and 0 <= cy <= height):
        yield f"its centre at {cx:g}, {cy:g}, off the picture of {width} x {height}", fix


def _share(flags: Mask) -> str:
    return f"{flags.mean():.1%}"
