from __future__ import annotations

import random

import pytest

from pipeline.demo import scenes
from pipeline.demo.scenes import FACE_WIDTH, FRAMES, SMALL_PERSON, Scene


def check_faces(scene: Scene) -> None:
    width, height = scene.image.size
    assert scene.image.mode == "RGB"
    for x0, y0, x1, y1 in scene.faces:
        assert 0 <= x0 < x1 <= width
        assert 0 <= y0 < y1 <= height


@pytest.mark.parametrize("number", range(20))
def test_persons_are_large_and_their_faces_are_in_the_frame(number: int) -> None:
    scene = scenes.person_scene(random.Random(number))
    check_faces(scene)
    assert scene.image.size in FRAMES
    assert scene.faces
    assert min(x1 - x0 for x0, _, x1, _ in scene.faces) >= FACE_WIDTH[0] - 1
    assert scene.person_short_side >= 160


@pytest.mark.parametrize("number", range(10))
def test_small_persons_are_small(number: int) -> None:
    scene = scenes.person_scene(random.Random(number), small=True)
    check_faces(scene)
    assert len(scene.faces) == 1
    assert SMALL_PERSON[0] / 2 <= scene.person_short_side <= SMALL_PERSON[1] + 1


@pytest.mark.parametrize("number", range(10))
def test_framings_keep_a_face_and_a_person(number: int) -> None:
    scene = scenes.framed_scene(random.Random(number))
    check_faces(scene)
    assert scene.faces
    assert min(scene.image.size) >= 300
    assert scene.person_short_side >= 128


def test_empty_scenes_and_persons_from_behind_have_no_face() -> None:
    empty, behind = scenes.empty_scene(random.Random(1)), scenes.behind_scene(random.Random(1))
    assert (empty.faces, empty.person_short_side) == ((), 0)
    assert behind.faces == ()
    assert behind.person_short_side >= 128


def test_scenes_are_functions_of_the_generator() -> None:
    for make in (scenes.person_scene, scenes.framed_scene, scenes.behind_scene, scenes.empty_scene):
        first, again, other = make(random.Random(5)), make(random.Random(5)), make(random.Random(6))
        assert first.image.tobytes() == again.image.tobytes()
        assert first.image.tobytes() != other.image.tobytes()
