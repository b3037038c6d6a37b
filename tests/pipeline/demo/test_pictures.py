from __future__ import annotations

import logging

import pytest

from pipeline.demo import pictures
from pipeline.demo.outlines import OUTLINES


def test_every_photograph_of_the_demo_extra_is_found() -> None:
    assert [item.name for item in pictures.available()] == [item.name for item in pictures.PHOTOGRAPHS]


@pytest.mark.parametrize("photograph", pictures.PHOTOGRAPHS, ids=lambda item: item.name)
def test_boxes_lie_inside_the_picture_and_empty_regions_show_no_face(photograph: pictures.Photograph) -> None:
    image = pictures.load(photograph.name)
    assert image.mode == "RGB"
    for x0, y0, x1, y1 in (*photograph.persons, *photograph.faces, *photograph.empty):
        assert 0 <= x0 < x1 <= image.width
        assert 0 <= y0 < y1 <= image.height
    for a in photograph.empty:
        for b in photograph.faces:
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


@pytest.mark.parametrize("name", OUTLINES)
def test_outlines_lie_in_their_photograph_and_hold_their_faces(name: str) -> None:
    outline = OUTLINES[name]
    image = pictures.load(outline.photograph)
    x0, y0, x1, y1 = outline.box
    assert 0 <= x0 < x1 <= image.width
    assert 0 <= y0 < y1 <= image.height
    for face in outline.faces:
        assert x0 <= face[0] < face[2] <= x1
        assert y0 <= face[1] < face[3] <= y1


def test_a_package_that_is_not_installed_is_left_out_with_a_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gone = pictures.Photograph("gone", "no_such_package_at_all", "a.jpg", "nothing", "nobody")
    monkeypatch.setattr(pictures, "PHOTOGRAPHS", (*pictures.PHOTOGRAPHS[:2], gone))
    pictures.available.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert [item.name for item in pictures.available()] == ["bus", "zidane"]
        assert "gone (no_such_package_at_all)" in caplog.text
        with pytest.raises(FileNotFoundError, match="no_such_package_at_all"):
            pictures.load("gone")
    finally:
        pictures.available.cache_clear()
