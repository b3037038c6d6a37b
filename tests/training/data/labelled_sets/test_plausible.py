import numpy as np
import pytest

from training.data.labelled_sets.plausible import check_record
from training.data.labelled_sets.record import Member, Record, npy, png, record_of


def changed(picture, name=None, member=None, **info):
    record = record_of(picture)
    members = dict(record.members)
    if name is not None:
        members[name] = member
    return Record(record.id, members, {**record.info, **info})


def said(record):
    return [(problem.file, problem.what, problem.fatal) for problem in check_record(record)]


def test_nothing_is_said_of_rendered_people(people):
    for picture in people:
        assert check_record(record_of(picture)) == []


@pytest.mark.parametrize(
    ("name", "change", "message", "fatal"),
    [
        ("normals", lambda n: n * 3, "no unit vectors (median length 3)", False),
        ("normals", lambda n: n * np.float32([1, -1, -1]), "faces away from the camera", False),
        ("normals", lambda n: n * 0, "has no normal on the mask", True),
        ("normals", lambda n: np.where(n[..., :1] > 0, np.float32(np.nan), n), "of the mask is not finite", False),
        ("depth", lambda z: z * 1000, "m away (median)", False),
        ("depth", lambda z: z / 1000, "m away (median)", False),
        ("depth", lambda z: z * 0, "has no depth on the mask", True),
        ("depth", lambda z: np.where(z > np.median(z[z > 0]), np.float32(-1), z), "is nan or negative", False),
        ("depth", lambda z: z[:-1], "pixels, its image", True),
        ("albedo", lambda a: a * 255, "goes from", True),
        ("albedo", lambda a: a * 0 + np.float32(0.5), "is nearly constant", False),
        ("albedo", lambda a: np.where(a > 0.5, np.float32(np.inf), a), "is not finite", False),
    ],
)
def test_unlikely_maps_are_named(people, name, change, message, fatal):
    found = said(changed(people[0], name, npy(change(getattr(people[0], name)), name)))
    assert len(found) == 1
    assert found[0][0] == f"{name}.npy"
    assert message in found[0][1]
    assert found[0][2] is fatal


def test_labels_of_parts_and_masks(people):
    wrong = changed(people[0], "parts", png(people[0].parts + np.uint8(40), "parts"), classes=29)
    ((file, what, fatal),) = said(wrong)
    assert file == "parts.png"
    assert "but classes are 0..28" in what
    assert fatal
    ((file, what, fatal),) = said(changed(people[0], "person", png(np.zeros_like(people[0].parts), "person")))
    assert (file, what, fatal) == ("person.png", "shows no person", False)


@pytest.mark.parametrize(
    ("camera", "message"),
    [
        ([[5000, 0, 24], [0, 5000, 32], [0, 0, 1]], "angle of view of 0.7"),
        ([[2, 0, 24], [0, 2, 32], [0, 0, 1]], "angle of view of 1"),
        ([[60, 0, 24], [0, 120, 32], [0, 0, 1]], "pixels far from square"),
        ([[60, 0, 500], [0, 60, 32], [0, 0, 1]], "off the picture of 48 x 64"),
    ],
)
def test_unlikely_cameras(people, camera, message):
    ((_, what, fatal),) = said(changed(people[0], intrinsics=camera))
    assert message in what
    assert not fatal


def test_every_file_is_looked_at_and_an_unreadable_image_ends_it(people):
    record = changed(people[0], "normals", Member(b"x", "npy", "n.npy"))
    both = Record(record.id, {**record.members, "depth": Member(b"x", "npy", "d.npy")}, record.info)
    assert [file for file, _, _ in said(both)] == ["n.npy", "d.npy"]
    broken = Record(record.id, {**both.members, "image": Member(b"x", "png", "i.png")}, record.info)
    assert [file for file, _, _ in said(broken)] == ["i.png"]


def test_a_mask_of_greys_is_named(people):
    mask = people[0].mask
    soft = np.where(mask, 255, 0).astype(np.uint8)
    soft[:30] = np.minimum(soft[:30], 9)
    ((file, what, fatal),) = said(changed(people[0], "mask", png(soft, "mask"), mask_from="mask"))
    assert file == "mask.png"
    assert what == "holds 2 values above 0, up to 255, and all of them count as a person"
    assert not fatal
    for plain in (mask.astype(np.uint8) * 255, mask * np.uint8(1) + (people[0].person == 0) * np.uint8(2)):
        assert said(changed(people[0], "mask", png(plain.astype(np.uint8), "mask"), mask_from="mask")) == []
