"""The page is one file, and a name is only ever text."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import cv2
import numpy as np

from training.prediction.gallery import Gallery

HOSTILE = "\"><script>alert(1)</script><img src=x onerror='alert(2)'>&amp;\udcff"


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_a_hostile_name_stays_text(tmp_path: Path) -> None:
    gallery = Gallery(3, 64)
    gallery.see(HOSTILE)
    gallery.add(HOSTILE, np.zeros((10, 10, 3), np.uint8), "<b>caption</b>")
    gallery.write(tmp_path / "index.html", HOSTILE, [HOSTILE])
    parser = _Tags()
    parser.feed((tmp_path / "index.html").read_text("utf-8"))
    assert "script" not in parser.tags
    assert parser.tags.count("img") == 1
    assert not any(name.startswith("on") for name, _ in parser.attributes)
    assert [value for name, value in parser.attributes if name == "alt"] == [HOSTILE.replace("\udcff", "\\xff")]


def test_the_first_seen_are_on_the_page_as_small_pictures_inside_the_file(tmp_path: Path) -> None:
    gallery = Gallery(2, 50)
    assert [gallery.see(name) for name in ("a", "b", "c", "a")] == [True, True, False, True]
    image = np.zeros((100, 200, 3), np.uint8)
    image[..., 0] = 250
    for name in ("c", "b", "a"):
        gallery.add(name, image)
    page = gallery.page("t", [])
    data = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', page)
    assert len(data) == 2
    assert page.index("<b>a</b>") < page.index("<b>b</b>")
    assert "http" not in page
    picture = cv2.imdecode(np.frombuffer(base64.b64decode(data[0]), np.uint8), cv2.IMREAD_COLOR)
    assert picture.shape == (25, 50, 3)
    assert picture[..., 2].min() > 230, "red stays red"
