"""Boxes of COCO files: whose they are, what is left out, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from training.prediction.box_file import CROWD, EMPTY, OTHER, UNLISTED, BoxFile


def written(folder: Path, value: Any, category: str | int | None = None) -> BoxFile:
    path = folder / "boxes.json"
    path.write_text(json.dumps(value))
    return BoxFile(path, category)


def boxes_of(file: BoxFile, name: str) -> list[list[float]] | None:
    found = file(name)
    return None if found is None else found.boxes.tolist()


def test_a_ground_truth_gives_people_by_file_name_and_counts_what_it_leaves_out(tmp_path: Path) -> None:
    person = {"image_id": 7, "category_id": 1}
    value = {
        "images": [{"id": 7, "file_name": "train/a.jpg", "width": 90, "height": 60}, {"id": 9, "file_name": "b.jpg"}],
        "annotations": [
            person | {"bbox": [1, 2, 10, 20]},
            person | {"bbox": [5, 5, 3, 3], "category_id": 18},
            person | {"bbox": [5, 5, 0, 3]},
            person | {"bbox": [5, 5, math.nan, 3]},
            person | {"bbox": None},
            person | {"bbox": [0, 0, 90, 90], "iscrowd": 1},
            person | {"bbox": [0, 0, 90, 90], "image_id": 8},
        ],
    }
    file = written(tmp_path, value)
    for name in ("train/a.jpg", "elsewhere/a.jpg"):
        found = file(name)
        assert found is not None
        assert found.boxes.tolist() == [[1, 2, 11, 22]]
        assert found.scores.tolist() == [1]
        assert file.image_id(name) == 7
        assert file.size(name) == (60, 90)
    assert boxes_of(file, "b.jpg") == [], "listed without people: nobody"
    assert file.size("b.jpg") is None
    assert boxes_of(file, "c.jpg") is None, "not listed: not known"
    assert not file.detections
    assert (file.taken, file.left_out) == (1, {OTHER: 1, CROWD: 1, EMPTY: 3, UNLISTED: 1})
    assert str(file) == (
        "1 on 2 images, category 1; left out: 1 of other categories: 18 (1); 1 crowds; 3 without a box of some area; "
        "1 of images not listed"
    )


def test_a_list_of_results_gives_scores(tmp_path: Path) -> None:
    file = written(
        tmp_path, [{"file_name": "a.jpg", "image_id": 3, "category_id": 1, "bbox": [0, 0, 4, 5], "score": 0.25}]
    )
    found = file("a.jpg")
    assert found is not None
    assert found.scores.tolist() == [0.25]
    assert file.detections
    assert file.image_id("a.jpg") == 3


IMAGES = [{"id": 1, "file_name": "a.jpg"}]


def annotations(*categories: object) -> list[dict[str, Any]]:
    return [{"image_id": 1, "category_id": kind, "bbox": [n, 0, 5, 5]} for n, kind in enumerate(categories)]


@pytest.mark.parametrize(
    ("named", "kinds", "wanted", "taken"),
    [
        ({0: "person", 2: "car"}, (0, 2, 0), None, [0, 2]),
        ({0: "Person"}, (0.0, "0"), None, [0, 1]),
        ({1: "car", 4: "person"}, (1, 4), None, [1]),
        ({}, (0, 0), None, [0, 1]),
        ({}, (1, 18), None, [0]),
        ({}, (None, 1, 18), None, [0, 1]),
        ({1: "human", 2: "car"}, (1, 2), "Human", [0]),
        ({1: "human", 2: "car"}, (1, 2), 2, [1]),
        ({1: "human", 2: "car"}, (1, 2), "2", [1]),
        ({1: "human", 2: "car"}, (1, 2), "all", [0, 1]),
        ({}, ("person", "car"), None, [0]),
    ],
)
def test_people_are_found_by_name_and_number(
    named: dict[int, str], kinds: tuple[object, ...], wanted: str | int | None, taken: list[int], tmp_path: Path
) -> None:
    value: dict[str, Any] = {"images": IMAGES, "annotations": annotations(*kinds)}
    if named:
        value["categories"] = [{"id": key, "name": name} for key, name in named.items()]
    file = written(tmp_path, value, wanted)
    assert boxes_of(file, "a.jpg") == [[n, 0, n + 5, 5] for n in taken]
    assert file.left_out.get(OTHER, 0) == len(kinds) - len(taken)


@pytest.mark.parametrize(
    ("named", "kinds", "wanted", "message"),
    [
        ({1: "car", 2: "dog"}, (1, 1, 2), None, r"no category is named person: .* are 1 car \(2\), 2 dog \(1\): give"),
        ({3: "car"}, (3,), None, r"no category is named person: .*3 car \(1\)"),
        ({}, (0, 1, 2), None, r"no category is named person: .*0 \(1\), 1 \(1\), 2 \(1\)"),
        ({1: "person", 2: "car"}, (2, 2), None, r"none of 2 entries is a person's box \(2 of other .*2 car \(2\)\)"),
        ({1: "person"}, (1,), "people", r"no category 'people': .*1 person \(1\).*--box-category"),
        ({1: "person"}, (1,), 0, "no category 0"),
    ],
)
def test_what_cannot_be_told_to_be_people_is_an_error_that_says_what_there_is(
    named: dict[int, str], kinds: tuple[object, ...], wanted: str | int | None, message: str, tmp_path: Path
) -> None:
    value: dict[str, Any] = {"images": IMAGES, "annotations": annotations(*kinds)}
    if named:
        value["categories"] = [{"id": key, "name": name} for key, name in named.items()]
    with pytest.raises(ValueError, match=message):
        written(tmp_path, value, wanted)


@pytest.mark.parametrize(
    ("of_image", "of_box", "value"),
    [(7, 7.0, 7), (7.0, "7", 7), ("7", 7, "7"), ("a.jpg", "a.jpg", "a.jpg"), ("x-1", "x-1", "x-1")],
)
def test_ids_of_every_type_find_each_other(of_image: Any, of_box: Any, value: Any, tmp_path: Path) -> None:
    file = written(
        tmp_path,
        {
            "images": [{"id": of_image, "file_name": "a.jpg"}],
            "annotations": [{"image_id": of_box, "bbox": [1, 2, 3, 4]}],
        },
    )
    assert boxes_of(file, "a.jpg") == [[1, 2, 4, 6]]
    assert file.image_id("a.jpg") == value
    assert type(file.image_id("a.jpg")) is type(value)


@pytest.mark.parametrize(
    ("key", "name"), [("a.jpg", "sub/a.jpg"), ("a", "sub/a.jpg"), (139, "000000000139.jpg"), ("000139", "000139.png")]
)
def test_results_without_file_names_are_found_by_their_id(key: Any, name: str, tmp_path: Path) -> None:
    file = written(tmp_path, [{"image_id": key, "bbox": [1, 2, 3, 4], "score": 0.5}])
    assert boxes_of(file, name) == [[1, 2, 4, 6]]
    assert file.image_id(name) == key
    assert file("other.jpg") is None


def test_shares_of_the_image_are_not_pixels(tmp_path: Path) -> None:
    rows = [{"file_name": "a.jpg", "bbox": [0.1, 0.2, 0.5, 0.8]}, {"file_name": "b.jpg", "bbox": [0, 0, 1, 1]}]
    with pytest.raises(ValueError, match=r"all 2 boxes lie in 0\.\.1, as shares of the image: give pixels"):
        written(tmp_path, rows)
    assert written(tmp_path, [*rows, {"file_name": "b.jpg", "bbox": [0, 0, 9, 9]}]).taken == 3


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        "[1]",
        "[{}]",
        '{"images": [{"id": 1}], "annotations": []}',
        '{"images": [{"id": true, "file_name": "a"}], "annotations": []}',
        '{"images": [{"id": 1, "file_name": "a"}, {"id": "1", "file_name": "b"}], "annotations": []}',
        '{"images": [], "annotations": [{"image_id": 1, "bbox": [1]}]}',
        '[{"file_name": "a", "bbox": [1, 2, 3, 4], "score": "high"}]',
    ],
)
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=r"boxes .*x\.json.*: .*(give|not readable)"):
        BoxFile(tmp_path / "x.json")
