"""The built-in keypoint sets, a user's own, and the way from one to another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from training.tasks.keypoint_sets import BUILT_IN, convert, correspondence, keypoint_set, parse_keypoint_set

GLOVES = """
name: gloves
names: [nose, left_hand, right_hand]
flip_pairs: [[left_hand, right_hand]]
sigmas: {nose: 0.026, left_hand: 0.06, right_hand: 0.06}
links: [[nose, left_hand], [nose, right_hand]]
parts: {hands: [right_hand, left_hand]}
upper: [nose]
same_as: {coco17: {left_wrist: left_hand, right_wrist: right_hand}}
"""


@pytest.mark.parametrize(
    ("name", "count", "links"), [("sapiens308", 308, 65), ("wholebody133", 133, 65), ("coco17", 17, 19)]
)
def test_built_in_sets_are_whole(name: str, count: int, links: int) -> None:
    points = keypoint_set(name)
    assert len(points) == len(set(points.names)) == count
    assert len(points.links) == links
    np.testing.assert_array_equal(points.flip[points.flip], np.arange(count))
    np.testing.assert_array_equal(points.sigmas[points.flip] > 0, True)
    covered = np.concatenate(list(points.parts.values()))
    np.testing.assert_array_equal(np.sort(covered), np.arange(count))
    # Mirror images are on the other side, and the skeleton is symmetric.
    np.testing.assert_array_equal(points.sides[points.flip], np.array((0, 2, 1))[points.sides])
    lines = {frozenset(link) for link in points.links.tolist()}
    assert {frozenset(points.flip[list(link)].tolist()) for link in lines} == lines
    assert not set(points.upper) & set(points.lower)
    np.testing.assert_array_equal(np.sort(points.flip[points.upper]), np.sort(points.upper))


def test_the_308_are_those_of_the_released_models() -> None:
    points = keypoint_set("sapiens308")
    assert {name: len(ids) for name, ids in points.parts.items()} == {
        "body": 17, "foot": 6, "left_hand": 20, "right_hand": 20, "face": 238, "extra": 7,
    }  # fmt: skip
    assert np.flatnonzero(points.flip == np.arange(308)).tolist() == [0, *range(69, 78), 178, 179, 190, 191, 206, 207]
    assert points.names[41] == "right_wrist"
    assert points.names[62] == "left_wrist"
    assert points.flip[41] == 62
    assert (points.sigmas[points.parts["face"]] == 0.01).all()
    # Left and right of lash lines have other ordinals: flips cannot come from names.
    assert points.names[points.flip[points.names.index("l_midpoint_2_of_upper_lash_line")]].startswith("r_midpoint_1")
    # COCO's order within the body, so that the part is COCO's 17.
    coco = keypoint_set("coco17")
    assert tuple(points.names[index] for index in points.parts["body"]) == coco.names
    np.testing.assert_array_equal(points.sigmas[points.parts["body"]], coco.sigmas)


def test_sides_are_the_persons() -> None:
    for name in BUILT_IN:
        points = keypoint_set(name)
        sides = {points.names[index]: int(side) for index, side in enumerate(points.sides)}
        assert (sides["nose"], sides["left_knee"], sides["right_knee"]) == (0, 1, 2)
        link_sides = dict(zip(map(frozenset, points.links.tolist()), points.link_sides.tolist(), strict=True))
        knee, ankle, hips = (
            points.indices(["left_knee"])[0],
            points.indices(["left_ankle"])[0],
            points.indices(["left_hip", "right_hip"]),
        )
        assert link_sides[frozenset((int(knee), int(ankle)))] == 1
        assert link_sides[frozenset(hips.tolist())] == 0


def test_points_of_the_same_name_are_found_across_sets() -> None:
    big, whole, coco = (keypoint_set(name) for name in BUILT_IN)
    assert (correspondence(big, whole, same_names_only=True) >= 0).sum() == 53
    assert (correspondence(big, coco) >= 0).all()
    for source, target in ((big, whole), (whole, big), (whole, coco)):
        for index, place in enumerate(correspondence(source, target, same_names_only=True)):
            assert place < 0 or source.names[place] == target.names[index]


def test_points_of_other_names_are_found_by_same_as_in_either_file() -> None:
    big, whole = keypoint_set("sapiens308"), keypoint_set("wholebody133")

    def name_in(source: str, target: str, name: str) -> str:
        one, other = keypoint_set(source), keypoint_set(target)
        return one.names[correspondence(one, other)[other.names.index(name)]]

    assert name_in("sapiens308", "wholebody133", "right_thumb1") == "right_thumb_third_joint"
    assert name_in("wholebody133", "sapiens308", "right_thumb_third_joint") == "right_thumb1"
    assert name_in("sapiens308", "wholebody133", "left_hand_root") == "left_wrist"
    assert name_in("wholebody133", "sapiens308", "left_wrist") == "left_wrist"
    assert name_in("sapiens308", "wholebody133", "face-54") == "l_outer_corner_of_mouth"
    # What corresponds does so in the mirror.
    places = correspondence(big, whole)
    known = places >= 0
    np.testing.assert_array_equal(known[whole.flip], known)
    np.testing.assert_array_equal(places[whole.flip][known], big.flip[places[known]])


def test_keypoints_are_converted_and_missing_ones_are_not_labelled() -> None:
    big, whole, coco = (keypoint_set(name) for name in BUILT_IN)
    keypoints = np.random.default_rng(0).uniform(1, 100, (2, 308, 3)).astype(np.float32)
    through = convert(convert(keypoints, big, whole), whole, coco)
    np.testing.assert_array_equal(through, convert(keypoints, big, coco))
    np.testing.assert_array_equal(through[:, 9], keypoints[:, 62])  # left wrist
    assert through.dtype == np.float32
    back = convert(through, coco, big)
    assert (back[0, :, 2] > 0).sum() == 17
    np.testing.assert_array_equal(back[:, 62], keypoints[:, 62])
    with pytest.raises(ValueError, match=r"sapiens308 has \[\.\.\., 308, C\]"):
        convert(through, big, coco)


def test_a_user_writes_a_set_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "gloves.yaml"
    path.write_text(GLOVES)
    points = keypoint_set(str(path))
    assert points.names == ("nose", "left_hand", "right_hand")
    np.testing.assert_array_equal(points.flip, [0, 2, 1])
    np.testing.assert_array_equal(points.sigmas, [0.026, 0.06, 0.06])
    np.testing.assert_array_equal(points.parts["hands"], [2, 1])
    np.testing.assert_array_equal(points.sides, [0, 1, 2])
    assert correspondence(points, keypoint_set("coco17"))[[0, 9, 10]].tolist() == [0, 1, 2]
    assert correspondence(keypoint_set("coco17"), points).tolist() == [0, 9, 10]


def edited(**changes: object) -> dict[str, object]:
    base: dict[str, object] = {"name": "x", "names": ["a", "b", "c"], "sigmas": 0.1}
    return base | changes


def test_sigmas_may_be_one_number_or_a_list() -> None:
    np.testing.assert_array_equal(parse_keypoint_set(edited()).sigmas, [0.1] * 3)
    np.testing.assert_array_equal(parse_keypoint_set(edited(sigmas=[0.1, 0.2, 0.3])).sigmas, [0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": ["a", "b", "a"]}, "a named twice"),
        ({"flip_pairs": [["a", "d"]]}, "flip_pairs: no keypoint named d"),
        ({"flip_pairs": [["a", "b"], ["b", "c"]]}, "no involution at b and c"),
        ({"flip_pairs": [["a", "a"]]}, "no involution at a and a"),
        ({"sigmas": [0.1, -0.2, 0.3]}, "above 0, but b -0.2"),
        ({"sigmas": [0.1, 0.2]}, "2 sigmas for 3 keypoints"),
        ({"sigmas": {"a": 0.1, "z": 1}}, "sigmas: no keypoint named z"),
        ({"sigmas": {"a": 0.1, "b": 0.1}}, "none given for c"),
        ({"links": [["a", "q"]]}, "links: no keypoint named q; the names are a, b, c"),
        ({"parts": {"hand": ["q"]}}, "parts hand: no keypoint named q"),
        ({"same_as": {"coco17": {"nose": "q"}}}, "same_as coco17: no keypoint named q"),
        ({"sigma": 0.1}, "file.yaml: sigma: Extra inputs"),
        ({"names": []}, "names"),
    ],
)
def test_errors_say_what_is_wrong_and_where(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_keypoint_set(edited(**changes), "file.yaml")


def test_an_unknown_set_and_a_broken_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="sapiens308, wholebody133, coco17"):
        keypoint_set("coco18")
    for content, message in (("[1, 2", "not a YAML file"), ("- a", "is a mapping")):
        path = tmp_path / f"{len(content)}.yaml"
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            keypoint_set(str(path))


def test_left_and_right_without_a_pair_are_refused_unless_it_is_meant(tmp_path: Path) -> None:
    names = {"names": ["nose", "left_hand", "right_hand", "L.foot", "r.foot"], "sigmas": 0.1, "name": "own"}
    for given, missing in (
        ({}, "[left_hand, right_hand], [L.foot, r.foot]"),
        ({"flip_pairs": [["left_hand", "right_hand"]]}, "[L.foot, r.foot]"),
    ):
        with pytest.raises(ValueError, match=r"mirrored pictures would be labelled wrongly") as caught:
            parse_keypoint_set({**names, **given})
        assert f"add {missing}, the person's left first; or flip_pairs: []" in str(caught.value)
    assert parse_keypoint_set({**names, "flip_pairs": []}).flip.tolist() == [0, 1, 2, 3, 4]
    pairs = [["left_hand", "right_hand"], ["L.foot", "r.foot"]]
    assert parse_keypoint_set({**names, "flip_pairs": pairs}).flip.tolist() == [0, 2, 1, 4, 3]
