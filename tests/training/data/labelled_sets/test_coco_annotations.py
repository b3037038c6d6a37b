import json

import pytest

from training.data.errors import DataError
from training.data.labelled_sets.check import check_source
from training.data.labelled_sets.coco import CocoKeypoints, read_coco
from training.data.labelled_sets.config import CocoConfig

POINTS = [3, 3, 2] * 17


def source(folder, annotations, categories=None, images=({"id": 1, "file_name": "1.png"},), **more):
    content = {
        "images": [{"width": 8, "height": 8, **image} for image in images],
        "annotations": [
            {"id": number, "image_id": 1, "bbox": [1, 1, 4, 4], "area": 9, "keypoints": POINTS, **annotation}
            for number, annotation in enumerate(annotations)
        ],
    }
    if categories is not None:
        content["categories"] = [{"id": key, "name": name} for key, name in categories.items()]
    (folder / "a.json").write_text(json.dumps(content))
    return CocoConfig(annotations=str(folder / "a.json"), images=str(folder), **more)


NAMED = {1: "person", 18: "dog", 37: "sports ball"}
ANIMALS = [{"category_id": kind} for kind in (1, 18, 18, 1, 37)]


def test_a_dog_is_no_person_and_a_ball_with_four_keypoints_stops_nothing(tmp_path):
    ANIMALS[4]["keypoints"] = [1, 1, 2] * 4
    people = read_coco(source(tmp_path, ANIMALS, NAMED))
    assert people.annotations == ("0", "3")
    assert people.categories == ("1",)
    assert people.left_out == "3 of other categories: 18 dog (2), 37 sports ball (1)"
    (problem,) = people.problems
    assert problem.what == (
        "3 of 5 annotations are not of category 1 person, and are left out: 18 dog (2), 37 sports ball (1)"
    )
    assert "Set `category`" in problem.fix
    assert not problem.fatal
    assert read_coco(source(tmp_path, ANIMALS, NAMED, category="dog")).annotations == ("1", "2")
    assert read_coco(source(tmp_path, ANIMALS, NAMED, category=18)).annotations == ("1", "2")
    found = read_coco(source(tmp_path, ANIMALS, NAMED, category="all"))
    assert found.annotations == ("0", "1", "2", "3")
    assert [problem.fatal for problem in found.problems] == [True], "the ball, which was asked for"


def test_people_alone_are_what_they_were_before_there_were_categories(tmp_path):
    people = [{"category_id": 1}, {}]
    named, unnamed = (source(tmp_path, people, names) for names in (NAMED, None))
    for config in (named, unnamed):
        assert read_coco(config).categories == ()
        assert read_coco(config).left_out == ""
        assert read_coco(config).problems == ()
    ours = source(tmp_path, [{"category_id": 5}], {5: "hand", 6: "foot"})
    assert read_coco(ours).annotations == ("0",)
    first = CocoKeypoints(ours, read_coco(ours)).fingerprint
    assert CocoKeypoints(ours.model_copy(update={"category": "hand"}), read_coco(ours)).fingerprint == first
    mixed = source(tmp_path, ANIMALS[:4], NAMED)
    everybody = mixed.model_copy(update={"category": "all"})
    prints = {CocoKeypoints(config, read_coco(config)).fingerprint for config in (mixed, everybody)}
    assert len(prints) == 2


def test_several_categories_without_a_person_have_to_be_chosen_from(tmp_path):
    config = source(tmp_path, [{"category_id": 5}, {"category_id": 6}], {5: "hand", 6: "foot"})
    with pytest.raises(DataError, match=r"no category is named person: .*5 hand \(1\), 6 foot \(1\)\. Set `category`"):
        read_coco(config)
    (problem,) = check_source(config)
    assert problem.fatal


@pytest.mark.parametrize(("of_image", "of_person"), [(1, 1.0), (1.0, 1), ("1", 1), ("1.png", "1.png"), (7.0, "7")])
def test_ids_of_every_type_find_each_other(of_image, of_person, tmp_path):
    images = [{"id": of_image, "file_name": "1.png", "width": 8.0}]
    people = read_coco(source(tmp_path, [{"image_id": of_person}], images=images))
    assert people.problems == ()
    assert people.ids == (str(of_person).removesuffix(".0"),)
    assert people.sizes.tolist() == [[8, 8]]


def test_an_empty_list_with_a_zero_box_is_a_person_without_labels(tmp_path):
    nobody = {"keypoints": [], "bbox": [0, 0, 0, 0]}
    people = read_coco(source(tmp_path, [{}, nobody, {"keypoints": None}]))
    assert people.annotations == ("0",)
    assert people.problems == ()
    boxed = read_coco(source(tmp_path, [{}, {"keypoints": []}], min_keypoints=0))
    assert boxed.annotations == ("0", "1")
    assert not boxed.keypoints[1].any()
    whole = [{"foot_kpts": [], "face_kpts": [], "lefthand_kpts": None}]
    assert read_coco(source(tmp_path, whole, source_set="wholebody133")).problems == ()


def test_a_file_that_keeps_nobody_is_fatal_and_says_why(tmp_path):
    people = [
        {"category_id": 18},
        {"iscrowd": 1},
        {"keypoints": []},
        {"keypoints": [0] * 51},
        {"bbox": [0, 0, 0, 0]},
        {"image_id": 4},
    ]
    for more in ({}, {"empty_images": True}):
        found = read_coco(source(tmp_path, people, NAMED, **more)).problems
        assert [problem.fatal for problem in found] == [False, False, False, True]
        assert found[-1].what == (
            "has nobody that is kept on any of its 1 images: of 6 annotations, 1 of other categories: 18 dog (1), "
            "1 crowds, 2 with fewer labelled keypoints than min_keypoints (1), 1 without a box, or with an empty one, "
            "1 of images that are not listed"
        )
        assert not any("emove" in problem.fix for problem in found), "the fix loses no data"
        with pytest.raises(DataError, match="has nobody that is kept"):
            CocoKeypoints(source(tmp_path, people, NAMED, **more))
    (problem,) = read_coco(source(tmp_path, [])).problems
    assert problem.what.endswith("of its 1 images: it has no annotations")
