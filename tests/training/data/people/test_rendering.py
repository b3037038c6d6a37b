import hashlib
import subprocess
import sys
from functools import lru_cache

import numpy as np
import pytest
from pydantic import ValidationError

from training.data.labelled import Picture, pointmap
from training.data.people import PeopleConfig, Rendering, render, render_linear
from training.data.people.body import Part
from training.data.people.light import srgb

LARGE = PeopleConfig(size=(320, 240), portraits=0.5)
CLEAR = PeopleConfig(size=(96, 80), people=(0, 4), blur=0, noise=0)


@lru_cache(maxsize=1)
def large() -> list[Rendering]:
    return [render_linear(key, LARGE) for key in range(24)]


@lru_cache(maxsize=1)
def clear() -> list[Rendering]:
    return [render_linear(key, CLEAR) for key in range(24)]


def digest(picture: Picture) -> str:
    arrays = (picture.image, picture.person, picture.parts, picture.normals, picture.depth, picture.albedo)
    rest = (picture.intrinsics, picture.keypoints, picture.boxes, picture.areas)
    joined = b"".join(array.tobytes() for array in arrays + rest if array is not None)
    return hashlib.sha256(joined).hexdigest()


def test_a_picture_is_the_same_in_every_process_and_order() -> None:
    first = [digest(render(key, CLEAR)) for key in (5, 6)]
    code = _SCRIPT + "print(digest(render(6, CLEAR)), digest(render(5, CLEAR)))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert other[::-1] == first
    assert len({*first, digest(render(5, PeopleConfig(**{**CLEAR.model_dump(), "seed": 1})))}) == 3


_SCRIPT = """
import hashlib
from training.data.people import PeopleConfig, render
CLEAR = PeopleConfig(size=(96, 80), people=(0, 4), blur=0, noise=0)
def digest(p):
    arrays = (p.image, p.person, p.parts, p.normals, p.depth, p.albedo, p.intrinsics, p.keypoints, p.boxes, p.areas)
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
"""


def test_albedo_times_shading_is_the_picture() -> None:
    for made in clear():
        assert made.picture.albedo is not None
        np.testing.assert_array_equal(made.picture.albedo * made.shading, made.linear)
        expected = np.rint(255 * srgb(made.linear)).astype(np.uint8)
        np.testing.assert_array_equal(made.picture.image, expected)
        assert made.picture.albedo.min() >= 0
        assert made.picture.albedo.max() <= 1
        assert made.shading.min() >= 0


def test_masks_depth_parts_boxes_and_areas_agree() -> None:
    counts = []
    for made in [*clear(), *large()]:
        picture = made.picture
        assert picture.depth is not None
        assert picture.parts is not None
        assert picture.normals is not None
        assert picture.keypoints is not None
        assert picture.boxes is not None
        assert picture.areas is not None
        np.testing.assert_array_equal(picture.mask, picture.depth > 0)
        np.testing.assert_array_equal(picture.mask, picture.person >= 0)
        np.testing.assert_array_equal(picture.mask, picture.parts > 0)
        length = np.linalg.norm(picture.normals, axis=2)
        np.testing.assert_allclose(length, picture.mask, atol=1e-6)
        counts.append(len(picture.areas))
        assert picture.keypoints.shape == (counts[-1], 308, 3)
        assert int(picture.person.max()) == counts[-1] - 1
        for person, (left, top, right, bottom) in enumerate(picture.boxes.astype(int).tolist()):
            mine = picture.person == person
            assert mine.sum() == picture.areas[person] > 0
            assert mine[top:bottom, left:right].sum() == mine.sum()
            for edge in (mine[top], mine[bottom - 1], mine[:, left], mine[:, right - 1]):
                assert edge.any()
    assert min(counts) == 0
    assert max(counts) >= 3


def test_normals_are_those_of_the_unprojected_depth() -> None:
    angles = []
    for made in large():
        picture = made.picture
        assert picture.depth is not None
        assert picture.normals is not None
        assert picture.intrinsics is not None
        points = pointmap(picture.depth, picture.intrinsics).astype(np.float64)
        across, down = points[1:-1, 2:] - points[1:-1, :-2], points[2:, 1:-1] - points[:-2, 1:-1]
        measured = np.cross(down, across)  # y x right = towards the camera
        normals, mask = picture.normals, picture.mask
        around = [normals[1:-1, 2:], normals[1:-1, :-2], normals[2:, 1:-1], normals[:-2, 1:-1]]
        masks = [mask[1:-1, 2:], mask[1:-1, :-2], mask[2:, 1:-1], mask[:-2, 1:-1], mask[1:-1, 1:-1]]
        middle = normals[1:-1, 1:-1]
        smooth = np.logical_and.reduce(masks + [(middle * other).sum(2) > 0.97 for other in around])
        cosine = (measured[smooth] * middle[smooth]).sum(1) / np.linalg.norm(measured[smooth], axis=1)
        angles.append(np.degrees(np.arccos(np.clip(cosine, -1, 1))))
        facing = (points * normals).sum(2)[mask]
        assert (facing <= 1e-6).all()
    pooled = np.concatenate(angles)
    assert len(pooled) > 100_000
    assert np.median(pooled) < 0.1
    assert np.quantile(pooled, 0.95) < 2


def test_what_is_visible_falls_on_its_person() -> None:
    exact, close, total = 0, 0, 0
    for made in large():
        picture = made.picture
        assert picture.keypoints is not None
        padded = np.pad(picture.person, 1, constant_values=-1)
        for person, points in enumerate(picture.keypoints):
            for x, y, _ in points[points[:, 2] == 2].tolist():
                column, row = int(np.floor(x + 0.5)), int(np.floor(y + 0.5))
                exact += int(picture.person[row, column] == person)
                close += int((padded[row : row + 3, column : column + 3] == person).any())
                total += 1
    assert total > 3000
    assert exact / total > 0.95  # a ray's pixel is up to half a pixel away: silhouettes
    assert close / total > 0.998


@pytest.mark.parametrize(
    ("numbers", "allowed", "share"),
    [
        (range(42, 62, 4), {Part.LEFT_HAND}, 0.85),
        (range(21, 41, 4), {Part.RIGHT_HAND}, 0.85),
        ((178, 70, 77, 272, 281), {Part.FACE_NECK, Part.HAIR, Part.EYEGLASS}, 0.97),
        ((191, 194, 195), {Part.LOWER_LIP, Part.FACE_NECK}, 0.97),
        ((190, 192, 193), {Part.UPPER_LIP, Part.FACE_NECK}, 0.97),
        ((69,), {Part.FACE_NECK, Part.TORSO, Part.UPPER_CLOTHING, Part.APPAREL, Part.HAIR}, 0.9),
    ],
)
def test_what_is_visible_falls_on_its_part(numbers: range, allowed: set[Part], share: float) -> None:
    found = []
    for made in large():
        picture = made.picture
        assert picture.keypoints is not None
        assert picture.parts is not None
        for person, points in enumerate(picture.keypoints):
            for x, y, v in points[list(numbers)].tolist():
                row, column = int(np.floor(y + 0.5)), int(np.floor(x + 0.5))
                if v == 2 and picture.person[row, column] == person:
                    found.append(picture.parts[row, column] in allowed)
    assert len(found) >= 8
    assert np.mean(found) >= share


def test_sided_parts_are_not_swapped() -> None:
    """Pixels of a left hand are nearer to the left hand's keypoints than to the right one's, and so on."""
    joints = {Part.LEFT_HAND: (50, 29), Part.LEFT_LOWER_ARM: (62, 41), Part.LEFT_SHOE: (13, 14)}
    checked = 0
    for made in large():
        picture = made.picture
        assert picture.keypoints is not None
        assert picture.parts is not None
        for person, points in enumerate(picture.keypoints):
            for part, pair in joints.items():
                for side in (0, 1):
                    rows, columns = np.nonzero((picture.parts == part + 9 * side) & (picture.person == person))
                    apart = np.linalg.norm(points[pair[0], :2] - points[pair[1], :2])
                    if len(rows) < 30 or (points[list(pair), 2] == 0).any() or apart < 40:
                        continue
                    middle = np.array([columns.mean(), rows.mean()])
                    own, other = (np.linalg.norm(points[pair[i], :2] - middle) for i in (side, 1 - side))
                    assert own < other, (picture.id, part, side)
                    checked += 1
    assert checked >= 15


def test_left_eyes_are_on_the_persons_left() -> None:
    """Who shows both eyes and the chin is seen from the front: from the right eye to the left, then down to the chin,
    is a clockwise turn in the picture, whatever its tilt."""
    checked = 0
    for made in large():
        assert made.picture.keypoints is not None
        for points in made.picture.keypoints:
            if (points[[1, 2, 77], 2] == 2).all():
                right_to_left = points[1, :2] - points[2, :2]
                down = points[77, :2] - (points[1, :2] + points[2, :2]) / 2
                assert right_to_left[0] * down[1] - right_to_left[1] * down[0] > 0
                checked += 1
    assert checked >= 8


def test_keypoints_outside_are_not_labelled_and_hidden_ones_are_occluded() -> None:
    states = np.zeros(3, int)
    for made in [*large(), *clear()]:
        picture = made.picture
        assert picture.keypoints is not None
        height, width = picture.size
        flat = picture.keypoints.reshape(-1, 3)
        states += np.bincount(flat[:, 2].astype(int), minlength=3)
        inside = (flat[:, 0] >= -0.5) & (flat[:, 0] < width - 0.5) & (flat[:, 1] >= -0.5) & (flat[:, 1] < height - 0.5)
        assert inside[flat[:, 2] > 0].all()
        assert (flat[flat[:, 2] == 0] == 0).all()
    assert (states > 500).all()


def test_every_part_is_reachable_and_pictures_vary() -> None:
    config = PeopleConfig(size=(128, 96), portraits=0.4, bare=0.4, hats=0.3, glasses=0.3, open_mouths=0.8)
    found: set[int] = set()
    means = []
    for key in range(60):
        picture = render(key, config)
        assert picture.parts is not None
        found |= set(np.unique(picture.parts).tolist())
        means.append(picture.image.mean(axis=(0, 1)))
        if key > 20 and len(found) == len(Part):
            break
    assert found == {int(part) for part in Part}
    assert np.std(means, axis=0).min() > 15


def test_people_and_size_follow_the_configuration() -> None:
    empty = render(0, PeopleConfig(size=(40, 64), people=(0, 0)))
    assert empty.size == (40, 64)
    assert not empty.mask.any()
    assert len(empty.boxes if empty.boxes is not None else []) == 0
    with pytest.raises(ValidationError, match="both 0 to 4"):
        PeopleConfig(people=(3, 2))
    with pytest.raises(ValidationError, match="16 to 8192"):
        PeopleConfig(size=(8, 192))
    with pytest.raises(ValidationError):
        PeopleConfig(portrait=0.5)  # type: ignore[call-arg]
