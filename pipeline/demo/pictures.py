"""The real photographs that installed packages ship, with facts about each that a person checked by eye.

Only packages that the `demo` extra (or the base installation) brings count. One that is absent is left out with a
message; nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from PIL import Image

from pipeline.demo.outlines import Box

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Photograph:
    """A sample photograph.

    Attributes:
        name: short name used in the truth table.
        package: import name of the package that ships it.
        path: file inside the package; `.npz` holds one grey uint8 array [height, width].
        scene: what it shows.
        credit: who made it and under which terms, as far as the package says.
        persons: a box per person of whom at least the trunk is in the picture.
        faces: a box per face that can be recognised as one, from hairline to chin.
        empty: regions that show nothing of a person and no face of any kind; the whole picture when it has no person.
    """

    name: str
    package: str
    path: str
    scene: str
    credit: str
    persons: tuple[Box, ...] = ()
    faces: tuple[Box, ...] = ()
    empty: tuple[Box, ...] = ()


_UNSTATED = "shipped by the package without a separate licence note"
_CC0 = "CC0"
_NASA = "NASA, public domain"

PHOTOGRAPHS: tuple[Photograph, ...] = (
    Photograph(
        "bus",
        "ultralytics",
        "assets/bus.jpg",
        "people walking past a bus in a street",
        _UNSTATED,
        persons=((48, 398, 247, 905), (222, 405, 344, 862), (668, 390, 810, 880), (0, 550, 80, 875)),
        faces=((113, 408, 158, 474), (268, 415, 308, 474)),
        empty=((0, 0, 810, 235), (250, 880, 810, 1080)),
    ),
    Photograph(
        "zidane",
        "ultralytics",
        "assets/zidane.jpg",
        "two football coaches at the side line",
        _UNSTATED,
        persons=((122, 200, 1152, 720), (751, 42, 1138, 720)),
        faces=((508, 265, 664, 452), (905, 110, 1056, 290)),
        empty=((0, 0, 440, 260),),
    ),
    Photograph(
        "astronaut",
        "skimage",
        "data/astronaut.png",
        "portrait of an astronaut",
        _NASA,
        persons=((20, 14, 362, 512),),
        faces=((176, 72, 273, 192),),
        empty=((310, 0, 512, 270),),
    ),
    Photograph(
        "camera",
        "skimage",
        "data/camera.png",
        "a man behind a film camera on a lawn",
        "CC0 by Lav Varshney",
        persons=((0, 62, 334, 512),),
        faces=((182, 98, 258, 198),),
        empty=((340, 60, 512, 512),),
    ),
    Photograph(
        "grace_hopper",
        "matplotlib",
        "mpl-data/sample_data/grace_hopper.jpg",
        "portrait of a naval officer",
        "US Navy, public domain",
        persons=((10, 22, 512, 600),),
        faces=((162, 135, 362, 335),),
    ),
    Photograph(
        "ascent",
        "pywt",
        "data/ascent.npz",
        "people seen from behind on outdoor stairs",
        "public-domain-image.com, public domain",
        persons=((398, 243, 512, 512), (148, 286, 215, 432)),
        empty=((0, 0, 390, 240),),
    ),
    Photograph("coffee", "skimage", "data/coffee.png", "a cup of coffee", "CC0 by Rachel Michetti"),
    Photograph("chelsea", "skimage", "data/chelsea.png", "a cat", "CC0 by Stefan van der Walt"),
    Photograph("rocket", "skimage", "data/rocket.jpg", "a rocket at dusk", "SpaceX, public domain"),
    Photograph("motorcycle", "skimage", "data/motorcycle_left.png", "a motorcycle in a garage", _CC0),
    Photograph("hubble", "skimage", "data/hubble_deep_field.jpg", "galaxies", _NASA),
    Photograph("retina", "skimage", "data/retina.jpg", "the retina of an eye", _CC0),
    Photograph("ihc", "skimage", "data/ihc.png", "stained tissue", "no known copyright restrictions"),
    Photograph("moon", "skimage", "data/moon.png", "the surface of the moon", _NASA),
    Photograph("brick", "skimage", "data/brick.png", "a brick wall", _CC0),
    Photograph("grass", "skimage", "data/grass.png", "grass", _CC0),
    Photograph("gravel", "skimage", "data/gravel.png", "gravel", _CC0),
    Photograph("china", "sklearn", "datasets/images/china.jpg", "a pagoda", "CC BY 2.0 by danielbuechele"),
    Photograph("flower", "sklearn", "datasets/images/flower.jpg", "a dahlia", "CC BY 2.0 by vultilion"),
    Photograph("aero", "pywt", "data/aero.npz", "farmland from the air", _UNSTATED),
)
"""scikit-image's coins are left out: they show portraits, so that "no person" would be arguable."""


def file_of(photograph: Photograph) -> Path | None:
    """Where the photograph is installed, without importing its package; None when it is not."""
    spec = importlib.util.find_spec(photograph.package)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / photograph.path
    return path if path.is_file() else None


@cache
def available() -> tuple[Photograph, ...]:
    """The photographs that are installed, in the order of `PHOTOGRAPHS`."""
    found = tuple(item for item in PHOTOGRAPHS if file_of(item) is not None)
    absent = [f"{item.name} ({item.package})" for item in PHOTOGRAPHS if item not in found]
    if absent:
        log.warning("sample photographs that are not installed are left out: %s", ", ".join(absent))
    return found


@cache
def load(name: str) -> Image.Image:
    """The photograph as an RGB image. It is shared: copy before changing it in place.

    Raises:
        FileNotFoundError: its package is not installed; the message says which.
    """
    photograph = next((item for item in PHOTOGRAPHS if item.name == name), None)
    if photograph is None:
        raise KeyError(f"no sample photograph {name!r}; there are {', '.join(item.name for item in PHOTOGRAPHS)}")
    path = file_of(photograph)
    if path is None:
        raise FileNotFoundError(
            f"sample photograph {name!r} is part of the package {photograph.package!r}, which is not installed: "
            "pip install 'populace[demo]'"
        )
    if path.suffix == ".npz":
        import numpy as np

        with np.load(path, allow_pickle=False) as arrays:
            return Image.fromarray(arrays[arrays.files[0]].astype(np.uint8)).convert("RGB")
    with Image.open(path) as image:
        return image.convert("RGB")
