"""Families of planted duplicates: originals, what people do to them, the next video frame, and another person in the
same place. Composed from the demo's photographs with its own functions; the demo pool's bytes are not touched.

Every picture is a window of a composed take that has a margin around it, so that a camera that moves or zooms sees
real picture there. Variants are made of the decoded bytes of the original, as anybody else would have them.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image, ImageOps, ImageStat

from pipeline.demo import scenes, variants
from pipeline.demo.make import BRIGHTNESS
from pipeline.demo.outlines import OUTLINES, Box

MARGIN = 0.03
"""Share of the take's width and height that lies outside the original on each side."""

Window = tuple[float, float, float, float]
"""Left, top, right, bottom as shares of the take."""

ORIGINAL = (MARGIN, MARGIN, 1 - MARGIN, 1 - MARGIN)


@dataclass(frozen=True, slots=True)
class Take:
    """A person before a background, not drawn yet.

    Attributes:
        person: name in `OUTLINES`.
        place: photograph that the background is of.
        background: RGB.
        cut_out: RGBA, at the scale of the background.
        left, top: position of the cut-out, px.
        faces: boxes, px.
        look: seed of the colour grading.
    """

    person: str
    place: str
    background: Image.Image
    cut_out: Image.Image
    left: int
    top: int
    faces: tuple[Box, ...]
    look: str

    def draw(self, window: Window = ORIGINAL) -> Image.Image:
        """What the camera sees, at the take's size."""
        picture = self.background.copy()
        picture.paste(self.cut_out.convert("RGB"), (self.left, self.top), self.cut_out.getchannel("A"))
        picture = scenes._grade(random.Random(self.look), picture, 0.08)
        width, height = picture.size
        box = (window[0] * width, window[1] * height, window[2] * width, window[3] * height)
        return picture.resize(picture.size, Image.Resampling.BICUBIC, box=box)

    def seen_faces(self) -> tuple[Box, ...]:
        """The faces in `draw()`."""
        width, height = self.background.size
        scale = 1 / (1 - 2 * MARGIN)
        return tuple(scenes._scaled(face, round(MARGIN * width), round(MARGIN * height), scale) for face in self.faces)


def new_take(rng: random.Random) -> Take:
    """A random person before a random background, neither dark nor bright."""
    while True:
        person = rng.choice(scenes._cut_outs())
        size = rng.choice(scenes.FRAMES)
        background, place = scenes._background(rng, OUTLINES[person].photograph, size)
        take = _cast(rng, person, background, place, f"{rng.random()}")
        if take is not None and BRIGHTNESS[0] <= _mean(take.draw()) <= BRIGHTNESS[1]:
            return take


def other_person(rng: random.Random, take: Take) -> Take:
    """Somebody else in the same place, by the same camera in the same light."""
    mine = OUTLINES[take.person].photograph
    others = [name for name in scenes._cut_outs() if OUTLINES[name].photograph not in (mine, take.place)]
    return _again(rng, take, others)


def other_person_on_the_spot(rng: random.Random, take: Take) -> Take:
    """The next person in a studio: where the first stood, with the head as large and at the same place."""
    mine = OUTLINES[take.person].photograph
    names = [name for name in scenes._cut_outs() if OUTLINES[name].photograph not in (mine, take.place)]
    name = rng.choice([name for name in names if len(OUTLINES[name].faces) == 1])
    outline, face = OUTLINES[name], OUTLINES[name].faces[0]
    old = take.faces[0]
    scale = (old[2] - old[0]) / (face[2] - face[0])
    left = round((old[0] + old[2]) / 2 - scale * ((face[0] + face[2]) / 2 - outline.box[0]))
    top = round((old[1] + old[3]) / 2 - scale * ((face[1] + face[3]) / 2 - outline.box[1]))
    return replace(take, person=name, cut_out=_scaled(rng, name, scale, False), left=left, top=top, faces=(old,))


def other_pose(rng: random.Random, take: Take) -> Take:
    """The same person at another distance or another spot of the same place, perhaps turned round."""
    while True:
        other = _again(rng, take, [take.person])
        moved = abs(other.left - take.left) / take.background.width, abs(other.top - take.top) / take.background.height
        if max(moved) > 0.1:
            return other


def _again(rng: random.Random, take: Take, persons: list[str]) -> Take:
    while True:
        other = _cast(rng, rng.choice(persons), take.background, take.place, take.look)
        if other is not None:
            return other


def _cast(rng: random.Random, person: str, background: Image.Image, place: str, look: str) -> Take | None:
    """None where the person's faces do not fit."""
    outline = OUTLINES[person]
    scale, turned = scenes._scale(rng, outline, small=False), rng.random() < 0.5
    placed = scenes._place(rng, outline, scale, turned, background.size)
    if placed is None:
        return None
    left, top, faces, _ = placed
    return Take(person, place, background, _scaled(rng, person, scale, turned), left, top, faces, look)


def _scaled(rng: random.Random, person: str, scale: float, turned: bool) -> Image.Image:
    """A cut-out, RGBA, with a grading of its own."""
    cut_out = scenes._cut_out(person)
    size = max(1, round(cut_out.width * scale)), max(1, round(cut_out.height * scale))
    cut_out = cut_out.resize(size, Image.Resampling.BICUBIC)
    if turned:
        cut_out = cut_out.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    graded = scenes._grade(rng, cut_out.convert("RGB"), 0.12)
    graded.putalpha(cut_out.getchannel("A"))
    return graded


def next_frame(rng: random.Random, take: Take, motion: float = 0.0) -> Image.Image:
    """The picture a moment later: the camera moved by 0.5 to 2 % and zoomed by as much, other noise, a flicker of 2 %.

    Args:
        motion: how far the person moved by themselves, as a share of the width.
    """
    width, height = take.background.size
    if motion:
        step = round(motion * width) * rng.choice((-1, 1))
        take = replace(take, left=take.left + step, top=take.top + round(rng.uniform(-0.3, 0.3) * motion * height))
    shift = [rng.uniform(0.005, 0.02) * rng.choice((-1, 1)) for _ in range(2)]
    # Half of the zoom is at either side, and the margin must hold the shift and that.
    zoom = rng.uniform(0.005, 0.02) * rng.choice((-1, 1)) / 2
    left, top, right, bottom = ORIGINAL
    window = (left + shift[0] - zoom, top + shift[1] - zoom, right + shift[0] + zoom, bottom + shift[1] + zoom)
    pixels = np.asarray(take.draw(window), np.float64) * rng.uniform(0.98, 1.02)
    noise = np.random.default_rng(rng.getrandbits(32)).normal(0, rng.uniform(1.5, 4), pixels.shape)
    return Image.fromarray(np.clip(pixels + noise, 0, 255).round().astype(np.uint8))


def cropped(rng: random.Random, image: Image.Image, share: float) -> Image.Image:
    """`share` of the width and of the height taken off, split at random between opposite sides."""
    width, height = image.size
    left, top = rng.random() * share, rng.random() * share
    box = (width * left, height * top, width * (1 - share + left), height * (1 - share + top))
    return image.crop((round(box[0]), round(box[1]), round(box[2]), round(box[3])))


def letterboxed(rng: random.Random, image: Image.Image) -> Image.Image:
    """Black bars above and below, each 5 to 20 % of the height, or left and right."""
    bar = rng.uniform(0.05, 0.2)
    across, down = rng.choice(((0, 1), (0, 1), (1, 0)))
    border = round(across * bar * image.width), round(down * bar * image.height)
    return ImageOps.expand(image, (*border, *border), fill=(0, 0, 0))


def framed(rng: random.Random, image: Image.Image) -> Image.Image:
    """A white frame: 3 to 15 % of the width and of the height at each side."""
    left, top, right, bottom = (rng.uniform(0.03, 0.15) for _ in range(4))
    border = (round(left * image.width), round(top * image.height))
    return ImageOps.expand(
        image, (*border, round(right * image.width), round(bottom * image.height)), fill=(255, 255, 255)
    )


def _smaller(image: Image.Image, scale: float) -> Image.Image:
    return image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)


def _mean(image: Image.Image) -> float:
    return ImageStat.Stat(image.convert("L")).mean[0] / 255


Faces = tuple[Box, ...]
_Made = Callable[[random.Random, Image.Image, Faces], bytes]

COPIES: dict[str, _Made] = {
    "JPEG 90": lambda rng, image, faces: variants.encode(image, quality=90),
    "JPEG 60": lambda rng, image, faces: variants.encode(image, quality=60),
    "JPEG 30": lambda rng, image, faces: variants.encode(image, quality=30),
    "WebP 80": lambda rng, image, faces: variants.encode(image, "webp", 80),
    "PNG": lambda rng, image, faces: variants.encode(image, "png"),
    "half size": lambda rng, image, faces: variants.encode(_smaller(image, 0.5), quality=85),
    "quarter size": lambda rng, image, faces: variants.encode(_smaller(image, 0.25), quality=85),
    "cropped by 1 %": lambda rng, image, faces: variants.encode(cropped(rng, image, 0.01), quality=85),
    "cropped by 2.5 %": lambda rng, image, faces: variants.encode(cropped(rng, image, 0.025), quality=85),
    "cropped by 5 %": lambda rng, image, faces: variants.encode(cropped(rng, image, 0.05), quality=85),
    "half size, cropped by 1 %, JPEG 60": lambda rng, image, faces: variants.encode(
        _smaller(cropped(rng, image, 0.01), 0.5), quality=60
    ),
    "recoloured": lambda rng, image, faces: variants.encode(variants.recoloured(rng, image)[0], quality=85),
    "caption": lambda rng, image, faces: variants.encode(
        variants.overlaid(rng, image, faces, small=True)[0], quality=85
    ),
    "much text": lambda rng, image, faces: variants.encode(variants.overlaid(rng, image, faces)[0], quality=85),
    "mirrored": lambda rng, image, faces: variants.encode(variants.mirrored(rng, image)[0], quality=85),
    "mirrored, half size, JPEG 60": lambda rng, image, faces: variants.encode(
        _smaller(variants.mirrored(rng, image)[0], 0.5), quality=60
    ),
    "letterbox": lambda rng, image, faces: variants.encode(letterboxed(rng, image), quality=85),
    "white frame": lambda rng, image, faces: variants.encode(framed(rng, image), quality=85),
    "white frame, half size, JPEG 60": lambda rng, image, faces: variants.encode(
        _smaller(framed(rng, image), 0.5), quality=60
    ),
}
"""What people do to a picture. Each is a duplicate of its original; the mirrored ones if one says so."""

FRAMES = ("next frame", "next frame, person moved")
"""Duplicates too."""

STRANGERS = ("other person, same place", "other person, same spot", "same person, other pose")
"""Not duplicates of the original: another person somewhere before exactly the same background; another person just
where the first one stood; the same person at another spot or another size before the same background."""

KINDS = ("original", *COPIES, *FRAMES, *STRANGERS)


@dataclass(frozen=True, slots=True)
class Family:
    """An original and its relatives.

    Attributes:
        person, place: what the original is made from.
        files: encoded bytes by kind, in the order of `KINDS`.
    """

    person: str
    place: str
    files: dict[str, bytes]


def make_family(seed: int, index: int, relatives: bool = True) -> Family:
    """The same seed and index give the same bytes (for one Pillow version); without relatives, only the original."""
    rng = random.Random(f"planted/{seed}/{index}")
    take = new_take(rng)
    data = variants.encode(take.draw(), quality=rng.randint(82, 94))
    files = {"original": data}
    if relatives:
        with Image.open(io.BytesIO(data)) as opened:
            image = opened.convert("RGB")
        files |= {kind: made(rng, image, take.seen_faces()) for kind, made in COPIES.items()}
        frames = next_frame(rng, take), next_frame(rng, take, motion=rng.uniform(0.01, 0.03))
        files |= {kind: variants.encode(frame, quality=85) for kind, frame in zip(FRAMES, frames, strict=True)}
        others = other_person(rng, take), other_person_on_the_spot(rng, take), other_pose(rng, take)
        files |= {
            kind: variants.encode(other.draw(), quality=88) for kind, other in zip(STRANGERS, others, strict=True)
        }
    return Family(take.person, take.place, files)
