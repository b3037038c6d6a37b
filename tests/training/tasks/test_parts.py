"""Class sets: the released 29 classes against the fact table, and a user's own."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from training.tasks.parts import PartClasses


def test_the_released_classes_swap_sides_by_name() -> None:
    classes = PartClasses()
    assert len(classes) == 29
    assert classes.class_weights[0] == 0.1
    assert sum(classes.class_weights) == pytest.approx(146.1)
    for index, mirrored in enumerate(classes.flip):
        swapped = classes.names[index].replace("Left", "?").replace("Right", "Left").replace("?", "Right")
        assert classes.names[mirrored] == swapped
        assert classes.flip[mirrored] == index
        assert classes.class_weights[mirrored] == classes.class_weights[index]
    assert [classes.names[index] for index in (3, 12, 22, 28)] == ["Face_Neck", "Left_Upper_Leg", "Torso", "Tongue"]


def test_own_names_do_not_inherit_pairs_or_weights() -> None:
    classes = PartClasses(names=("none", "hand", "foot"))
    assert classes.flip == (0, 1, 2)
    assert classes.class_weights == (1.0, 1.0, 1.0)
    paired = PartClasses(names=("none", "left", "right"), flip_pairs=((1, 2),), weights=(0.1, 2, 2), background=None)
    assert paired.flip == (0, 2, 1)
    assert PartClasses.model_validate(paired.model_dump()) == paired
    assert PartClasses.model_validate(PartClasses().model_dump()) == PartClasses()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"names": ("a", "b", "a")}, "more than once"),
        ({"names": ("a", "b"), "weights": (1.0,)}, "one weight per class"),
        ({"names": ("a", "b"), "weights": (1.0, -1.0)}, "0 or more"),
        ({"names": ("a", "b"), "background": 2}, "from 0 to 1"),
        ({"names": ("a", "b"), "flip_pairs": ((0, 2),)}, "from 0 to 1"),
        ({"names": ("a", "b", "c"), "flip_pairs": ((0, 1), (1, 2))}, "each id once"),
        ({"names": ("a", "b", "c"), "flip_pairs": ((1, 1),)}, "each id once"),
    ],
)
def test_errors_say_what_to_give(values: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PartClasses(**values)


def test_left_and_right_without_pairs_are_refused_unless_it_is_meant() -> None:
    names = ("background", "right_hand", "left_hand", "Left Foot", "right foot")
    with pytest.raises(
        ValueError, match=r"left_hand and right_hand are mirror images .*\[\[2, 1\], \[3, 4\]\], or \[\]"
    ):
        PartClasses(names=names)
    assert PartClasses(names=names, flip_pairs=()).flip == (0, 1, 2, 3, 4)
    assert PartClasses(names=names, flip_pairs=((2, 1), (3, 4))).flip == (0, 2, 1, 4, 3)
    stored = PartClasses(names=names, flip_pairs=()).model_dump(mode="json")
    assert PartClasses.model_validate(stored).flip_pairs == (), "what a run has stored is what it was trained with"
