"""Makes many distinct pictures from few photographs: cut-out persons before other backgrounds, framings, empty scenes.

Every function is a pure function of the random generator that it is given and of the installed photographs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

from PIL import Image, ImageDraw, ImageFilter

from pipeline.demo import pictures
from pipeline.demo.outlines import OUTLINES, Box, Outline

FRAMES: tuple[tuple[int, int], ...] = (
    (640, 480),
    (480, 640),
    (600, 600),
    (720, 480),
    (500, 700),
    (800, 540),
    (560, 720),
    (768, 576),
)
"""Sizes of the made pictures, px. Small enough that two cores curate 2,000 of them within the demo's time."""

FACE_WIDTH = (74, 150)
"""Width of the faces of persons that are large enough, px. On the demo pool the short side of the person's box, as
estimated from the face, is then at least 147 px."""

SMALL_PERSON = (56, 96)
"""Short side of the box of persons that are too small, px."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A made picture and what is in it.

    Attributes:
        image: RGB.
        faces: boxes of the faces, px.
        person_short_side: short side of the box of the visible part of the largest person, px; 0 without persons.
        note: what it was made from.
    """

    image: Image.Image
    faces: tuple[Box, ...]
    person_short_side: int
    note: str


def person_scene(rng: random.Random, small: bool = False) -> Scene:
    """A cut-out person before a background from another photograph; `small` makes the person too small.

    Raises:
        RuntimeError: no photograph with a person is installed.
    """
    names = [name for name in _cut_outs() if not (small and len(OUTLINES[name].faces) > 1)]
    if not names:
        raise RuntimeError("no sample photograph with a person is installed: pip install 'populace[demo]'")
    while True:
        name = rng.choice(names)
        outline = OUTLINES[name]
        size = rng.choice(FRAMES)
        scale = _scale(rng, outline, small)
        mirrored = rng.random() < 0.5
        placed = _place(rng, outline, scale, mirrored, size)
        if placed is not None:
            break
    left, top, faces, short_side = placed
    background, scene = _background(rng, outline.photograph, size)
    person = _cut_out(name)
    person = person.resize(
        (max(1, round(person.width * scale)), max(1, round(person.height * scale))), Image.Resampling.BICUBIC
    )
    if mirrored:
        person = person.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    mask = person.getchannel("A")
    background.paste(_grade(rng, person.convert("RGB"), 0.12), (left, top), mask)
    return Scene(_grade(rng, background, 0.08), faces, short_side, f"{name} before {scene}")


def framed_scene(rng: random.Random) -> Scene:
    """A photograph with a person, cropped around one of its faces."""
    photographs = [item for item in pictures.available() if item.faces]
    if not photographs:
        raise RuntimeError("no sample photograph with a person is installed: pip install 'populace[demo]'")
    photograph = rng.choice(photographs)
    source = pictures.load(photograph.name)
    face = rng.choice(photograph.faces)
    face_width, face_height = face[2] - face[0], face[3] - face[1]
    # The face fills 12 to 35 % of the crop's width: from half length to a close portrait.
    width = min(source.width, round(face_width / rng.uniform(0.12, 0.35)))
    height = min(source.height, max(round(width * rng.uniform(0.75, 1.4)), round(face_height * 1.6)))
    left = _between(rng, face[2] + 4 - width, face[0] - 4, source.width - width)
    top = _between(rng, face[3] + 4 - height, face[1] - 4, source.height - height)
    scale = max(rng.uniform(*FACE_WIDTH) / face_width, 360 / min(width, height))
    scale = min(scale, 960 / max(width, height))
    size = (round(width * scale), round(height * scale))
    image = source.resize(size, Image.Resampling.BICUBIC, box=(left, top, left + width, top + height))
    window = (left, top, left + width, top + height)
    faces = tuple(_scaled(item, left, top, scale) for item in photograph.faces if _inside(item, window))
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        faces = tuple(_mirrored(item, size[0]) for item in faces)
    sides = [min(_clipped(box, window)) for box in photograph.persons]
    return Scene(_grade(rng, image, 0.08), faces, round(max(sides) * scale), f"{photograph.name} framed")


def behind_scene(rng: random.Random) -> Scene:
    """A person seen from behind, large in the picture: a person for everybody but a face detector."""
    photograph = next((item for item in pictures.available() if item.persons and not item.faces), None)
    if photograph is None:
        return framed_scene(rng)
    x0, y0, x1, y1 = photograph.persons[0]
    source = pictures.load(photograph.name)
    left, top = rng.randint(x0 // 2, x0 - 120), rng.randint(y0 // 2, y0 - 8)
    window = (left, top, source.width, source.height)
    scale = 640 / max(source.width - left, source.height - top)
    size = (round((source.width - left) * scale), round((source.height - top) * scale))
    image = source.resize(size, Image.Resampling.BICUBIC, box=window)
    return Scene(_grade(rng, image, 0.1), (), round(min(_clipped((x0, y0, x1, y1), window)) * scale), photograph.name)


def empty_scene(rng: random.Random) -> Scene:
    """A part of a photograph that shows nobody."""
    image, name = _background(rng, "", rng.choice(FRAMES))
    return Scene(_grade(rng, image, 0.1), (), 0, f"{name} without persons")


@cache
def _cut_outs() -> tuple[str, ...]:
    names = {item.name for item in pictures.available()}
    return tuple(name for name, outline in OUTLINES.items() if outline.photograph in names)


@cache
def _cut_out(name: str) -> Image.Image:
    """RGBA of the outline's box; the edge of the mask is softened by about a pixel."""
    outline = OUTLINES[name]
    x0, y0, x1, y1 = outline.box
    mask = Image.new("L", (x1 - x0, y1 - y0))
    ImageDraw.Draw(mask).polygon([(x - x0, y - y0) for x, y in outline.polygon], fill=255)
    image = pictures.load(outline.photograph).crop(outline.box)
    image.putalpha(mask.filter(ImageFilter.GaussianBlur(1.2)))
    return image


def _scale(rng: random.Random, outline: Outline, small: bool) -> float:
    x0, y0, x1, y1 = outline.box
    if small:
        return rng.uniform(*SMALL_PERSON) / min(x1 - x0, y1 - y0)
    return rng.uniform(*FACE_WIDTH) / min(face[2] - face[0] for face in outline.faces)


def _place(
    rng: random.Random, outline: Outline, scale: float, mirrored: bool, size: tuple[int, int]
) -> tuple[int, int, tuple[Box, ...], int] | None:
    """Left, top, faces and the visible short side of a cut-out in a frame; None when its faces do not fit."""
    x0, y0, x1, y1 = outline.box
    width, height = round((x1 - x0) * scale), round((y1 - y0) * scale)
    faces = tuple(_scaled(face, x0, y0, scale) for face in outline.faces)
    if mirrored:
        faces = tuple(_mirrored(face, width) for face in faces)
    face_left, face_right = min(face[0] for face in faces), max(face[2] for face in faces)
    face_bottom = max(face[3] for face in faces)
    if face_right - face_left > size[0] - 24 or face_bottom > size[1] - 24:
        return None
    # Horizontally the body may leave the frame by a fifth, the faces may not.
    low, high = max(12 - face_left, -width // 5), min(size[0] - 12 - face_right, size[0] - width + width // 5)
    left = rng.randint(low, high) if low <= high else (size[0] - width) // 2
    if not 0 <= left + face_left <= left + face_right <= size[0]:
        return None
    # A body that the photograph cuts off touches the lower border; the head keeps a little room above.
    lowest = size[1] - face_bottom - 16
    highest = max(10, size[1] - height) if outline.cut_off else 10
    if highest > lowest:
        return None
    top = rng.randint(highest, min(lowest, max(highest, size[1] - round(0.7 * height))))
    visible = _clipped((left, top, left + width, top + height), (0, 0, *size))
    placed = tuple((a + left, b + top, c + left, d + top) for a, b, c, d in faces)
    short_side = min(visible) if len(faces) == 1 else min(visible[0] // 2, visible[1])
    return left, top, placed, short_side


def _background(rng: random.Random, excluded: str, size: tuple[int, int]) -> tuple[Image.Image, str]:
    """A random region without persons at the wanted size, and the name of its photograph."""
    choices = [
        item
        for item in pictures.available()
        if item.name != excluded and (item.empty or not (item.persons or item.faces))
    ]
    photograph = rng.choice(choices)
    source = pictures.load(photograph.name)
    x0, y0, x1, y1 = rng.choice(photograph.empty or ((0, 0, source.width, source.height),))
    share = rng.uniform(0.55, 1.0)
    width = min(x1 - x0, (y1 - y0) * size[0] / size[1]) * share
    height = width * size[1] / size[0]
    left, top = rng.uniform(x0, x1 - width), rng.uniform(y0, y1 - height)
    image = source.resize(size, Image.Resampling.BICUBIC, box=(left, top, left + width, top + height))
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return image, photograph.name


def _grade(rng: random.Random, image: Image.Image, strength: float) -> Image.Image:
    """Colour grading: gain and gamma per channel, each within 1 +- strength."""
    table: list[int] = []
    for _ in range(3):
        gain, gamma = rng.uniform(1 - strength, 1 + strength), rng.uniform(1 - strength, 1 + strength)
        table += [min(255, round(255 * gain * (value / 255) ** gamma)) for value in range(256)]
    return image.point(table)


def _between(rng: random.Random, low: int, high: int, limit: int) -> int:
    """A random integer in [low, high], clamped to [0, limit]."""
    low, high = max(0, min(low, limit)), max(0, min(high, limit))
    return rng.randint(min(low, high), max(low, high))


def _scaled(box: Box, left: int, top: int, scale: float) -> Box:
    x0, y0, x1, y1 = box
    return round((x0 - left) * scale), round((y0 - top) * scale), round((x1 - left) * scale), round((y1 - top) * scale)


def _mirrored(box: Box, width: int) -> Box:
    return width - box[2], box[1], width - box[0], box[3]


def _inside(box: Box, window: Box) -> bool:
    return box[0] >= window[0] and box[1] >= window[1] and box[2] <= window[2] and box[3] <= window[3]


def _clipped(box: Box, window: Box) -> tuple[int, int]:
    """Width and height of the part of `box` inside `window`."""
    width = min(box[2], window[2]) - max(box[0], window[0])
    height = min(box[3], window[3]) - max(box[1], window[1])
    return max(0, width), max(0, height)
