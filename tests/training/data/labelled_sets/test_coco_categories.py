import math

import pytest

from training.data.labelled_sets.coco_categories import (
    category_counts,
    category_names,
    chosen_categories,
    described,
    identifier,
)


@pytest.mark.parametrize(
    ("value", "key"),
    [(7, "7"), (7.0, "7"), ("7", "7"), ("a.jpg", "a.jpg"), (0, "0"), (-1, "-1")]
    + [(value, None) for value in (None, True, "", 7.5, math.inf, math.nan, [], {})],
)
def test_ids_of_one_value_are_one(value, key):
    assert identifier(value) == key


def test_what_there_is_is_described_by_frequency():
    names = category_names([{"id": 1, "name": "person"}, {"id": 2.0, "name": "dog"}, {"id": None}, "x", {"id": 3}])
    assert names == {"1": "person", "2": "dog"}
    assert category_names("x") == {}
    counts = category_counts([{"category_id": key} for key in (1, 2, "2", 2.0, None, [], 77)] + [{}])
    assert counts == {"1": 1, "2": 3, "77": 1}
    assert described(names, counts) == "2 dog (3), 1 person (1), 77 (1)"
    assert described({}, {str(key): 1 for key in range(10)}).endswith("7 (1) and 2 more")


@pytest.mark.parametrize(
    ("names", "counts", "wanted", "only_one", "chosen"),
    [
        ({"1": "person", "2": "dog"}, {"2": 5}, None, True, {"1"}),
        ({"0": "PERSON", "5": "person"}, {"0": 5}, None, True, {"0", "5"}),
        ({"3": "hand"}, {"3": 5}, None, True, {"3"}),
        ({"3": "hand", "4": "foot"}, {"3": 5}, None, True, {"3"}),
        ({}, {"18": 5}, None, True, {"18"}),
        ({}, {"18": 5}, None, False, {"18"}),
        ({}, {"1": 1, "18": 5}, None, False, {"1"}),
        ({}, {}, None, False, None),
        ({"3": "hand"}, {}, None, False, None),
        ({"3": "hand", "4": "foot"}, {"3": 5, "4": 1}, "all", True, None),
        ({"3": "all", "4": "foot"}, {"3": 5}, "ALL", True, {"3"}),
        ({"3": "hand"}, {"3": 5}, 3, False, {"3"}),
        ({"3": "hand"}, {"3": 5}, "HAND", False, {"3"}),
    ],
)
def test_which_categories_are_people(names, counts, wanted, only_one, chosen):
    found = chosen_categories(names, counts, wanted, only_one)
    assert found == (None if chosen is None else frozenset(chosen))


@pytest.mark.parametrize(
    ("names", "counts", "wanted", "only_one", "message"),
    [
        ({"3": "hand"}, {"3": 5}, None, False, r"no category is named person: .* 3 hand \(5\)"),
        ({"3": "hand", "4": "foot"}, {"3": 5, "4": 6}, None, True, r"4 foot \(6\), 3 hand \(5\)"),
        ({}, {"0": 1, "1": 1}, None, True, "no category is named person"),
        ({"3": "hand"}, {}, "person", True, r"no category 'person': .* 3 hand \(0\)"),
        ({}, {}, 1, True, "no category 1: .* none"),
    ],
)
def test_what_cannot_be_told_is_an_error(names, counts, wanted, only_one, message):
    with pytest.raises(ValueError, match=message):
        chosen_categories(names, counts, wanted, only_one)
