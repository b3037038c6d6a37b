import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from training.data.errors import DataError
from training.data.labelled_sets.coco import CocoKeypoints, read_coco
from training.data.labelled_sets.coco_annotations import AREA_OF_BOX
from training.data.labelled_sets.config import CocoConfig
from training.tasks.keypoint_sets import keypoint_set


def config(file, folder, **more):
    more.setdefault("source_set", "sapiens308")
    return CocoConfig(kind="coco", annotations=str(file), images=str(folder), **more)


def edit(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def labelled(keypoints):
    """What is not labelled has no place."""
    return np.where(keypoints[..., 2:] > 0, keypoints, np.float32(0))


@pytest.mark.parametrize("field", ["keypoints", "goliath_wholebody_kpts"])
def test_all_308_keypoints_come_back_exactly(people, write_coco, field):
    source = CocoKeypoints(config(*write_coco(people, field)))
    assert len(source) == len(people)
    for index, picture in enumerate(people):
        read = source[index]
        assert read.id == source.id(index) == str(index + 1)
        np.testing.assert_array_equal(read.image, picture.image)
        np.testing.assert_array_equal(read.keypoints, labelled(picture.keypoints))
        np.testing.assert_array_equal(read.boxes, picture.boxes)
        np.testing.assert_array_equal(read.areas, picture.areas)
        assert (read.keypoints[..., 2] > 0).any()


def test_corner_coordinates_are_moved_to_pixel_centres(people, write_coco):
    source = CocoKeypoints(config(*write_coco(people, shift=0.5), pixel_origin="corner"))
    for index, picture in enumerate(people):
        np.testing.assert_allclose(source[index].keypoints, labelled(picture.keypoints), atol=1e-5)


def test_keypoints_are_moved_to_another_set_by_name(people, write_coco):
    source = CocoKeypoints(config(*write_coco(people), wanted_set="coco17"))
    ours, wanted = keypoint_set("sapiens308"), keypoint_set("coco17")
    found = source[0].keypoints
    assert found.shape == (len(people[0].keypoints), 17, 3)
    for place, name in enumerate(wanted.names):
        np.testing.assert_array_equal(found[:, place], labelled(people[0].keypoints)[:, ours.names.index(name)])


def test_the_mask_is_the_boxes(people, write_coco):
    read = CocoKeypoints(config(*write_coco(people[:1])))[0]
    height, width = read.size
    expected = np.full((height, width), -1)
    for row in range(height):
        for column in range(width):
            for person, (left, top, right, bottom) in reversed(list(enumerate(read.boxes))):
                if left <= column + 0.5 < right and top <= row + 0.5 < bottom:
                    expected[row, column] = person
    np.testing.assert_array_equal(read.person, expected)
    np.testing.assert_array_equal(read.mask, expected >= 0)


def test_crowds_are_left_out_or_kept_without_labels(people, write_coco):
    file, folder = write_coco(people[:1])
    edit(file, lambda content: content["annotations"][0].update(iscrowd=1))
    count = len(people[0].boxes)
    kept = CocoKeypoints(config(file, folder, crowds="keep"))[0]
    assert len(kept.keypoints) == count
    assert not kept.keypoints[0].any()
    dropped = CocoKeypoints(config(file, folder, empty_images=True))[0]
    assert len(dropped.keypoints) == count - 1


def test_images_without_people_are_kept_by_a_switch(people, write_coco):
    file, folder = write_coco(people)
    edit(file, lambda content: content.update(annotations=[a for a in content["annotations"] if a["image_id"] != 2]))
    assert len(CocoKeypoints(config(file, folder))) == len(people) - 1
    source = CocoKeypoints(config(file, folder, empty_images=True))
    assert len(source) == len(people)
    assert source[1].keypoints.shape == (0, 308, 3)
    assert not source[1].mask.any()


def test_people_with_too_few_keypoints_or_no_box_are_left_out(people, write_coco):
    file, folder = write_coco(people)
    total = sum(len(picture.boxes) for picture in people)

    def change(content):
        content["annotations"][0]["bbox"] = [3, 3, 0, 5]
        content["annotations"][1]["keypoints"] = [0] * 924

    edit(file, change)
    found = read_coco(config(file, folder))
    assert len(found.boxes) == total - 2
    assert [problem.fatal for problem in found.problems] == [False]
    assert len(read_coco(config(file, folder, min_keypoints=0)).boxes) == total - 1


def test_a_missing_area_is_taken_from_the_box(people, write_coco):
    file, folder = write_coco(people[:1])
    edit(file, lambda content: content["annotations"][0].pop("area"))
    left, top, right, bottom = people[0].boxes[0].tolist()
    read = CocoKeypoints(config(file, folder))[0]
    assert read.areas[0] == pytest.approx(AREA_OF_BOX * (right - left) * (bottom - top))


def test_keypoints_outside_of_the_picture_are_not_labelled(people, write_coco):
    file, folder = write_coco(people[:1])
    edit(file, lambda content: content["annotations"][0]["keypoints"].__setitem__(slice(0, 6), [48, 5, 2, 47, 63, 2]))
    read = CocoKeypoints(config(file, folder))[0].keypoints[0]
    assert read[0].tolist() == [0, 0, 0]
    assert read[1].tolist() == [47, 63, 2]


def test_a_turned_image_takes_labels_of_the_upright_picture(people, write_coco):
    file, folder = write_coco(people[:1])
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    stored = np.rot90(people[0].image)
    Image.fromarray(stored).save(folder / "000001.png", exif=exif)
    np.testing.assert_array_equal(CocoKeypoints(config(file, folder))[0].image, people[0].image)
    edit(file, lambda content: content["images"][0].update(width=64, height=48))
    with pytest.raises(DataError, match=r"000001\.png.*48 x 64.*64 x 48.*EXIF.*upright"):
        CocoKeypoints(config(file, folder))[0]


def test_errors_name_the_file_and_the_fix(people, write_coco):
    file, folder = write_coco(people[:1])
    with pytest.raises(DataError, match=r"people\.json: annotation 100: keypoints has 308 keypoints, coco17 has 17"):
        CocoKeypoints(config(file, folder, source_set="coco17"))
    (folder / "000001.png").unlink()
    with pytest.raises(DataError, match=r"000001\.png: image 1 is not there\. Put it there.*people\.json"):
        CocoKeypoints(config(file, folder))
    edit(file, lambda content: content["images"].append(content["images"][0] | {"file_name": "../../secret.png"}))
    with pytest.raises(DataError, match=r"(?s)2 images of id 1.*secret\.png', which is not below"):
        CocoKeypoints(config(file, folder))
    file.write_text("[]")
    with pytest.raises(DataError, match="no list `images`"):
        CocoKeypoints(config(file, folder))
    file.write_text("{")
    with pytest.raises(DataError, match="is not JSON"):
        CocoKeypoints(config(file, folder))


def test_a_picklable_source_whose_fingerprint_is_of_the_content(people, write_coco, same, tmp_path):
    file, folder = write_coco(people)
    source = CocoKeypoints(config(file, folder))
    same(pickle.loads(pickle.dumps(source))[1], source[1])
    moved = file.rename(tmp_path / "moved.json")
    assert CocoKeypoints(config(moved, folder)).fingerprint == source.fingerprint
    assert CocoKeypoints(config(moved, folder, min_keypoints=5)).fingerprint != source.fingerprint
    with pytest.raises(IndexError):
        source[len(source)]
    people_read = read_coco(config(moved, folder))
    assert CocoKeypoints(config(moved, folder), replace(people_read, sha256="0")).fingerprint != source.fingerprint
