"""Makes one input of the demo pool from its order. Pure: same order and seed, same bytes (for one Pillow version)."""

from __future__ import annotations

import io
import random
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageStat

from pipeline.demo import drawings, oddities, scenes, variants
from pipeline.demo.outlines import Box
from pipeline.demo.plan import KINDS, Order
from pipeline.demo.scenes import Scene

BRIGHTNESS = (0.12, 0.85)
"""Mean luma of pictures that are not meant to be dark or bright, 0..1."""

_FRAMED_ATTEMPTS = 12


@dataclass(frozen=True, slots=True)
class Made:
    """A finished input.

    Attributes:
        data: the file's bytes.
        extension: of the file, without a dot; may be empty.
        note: what it was made from.
        transform: what was done.
        faces: boxes in the upright picture, px.
        phash: `imagehash.phash` of the upright picture as decoded, for hashed kinds.
        is_person: whether a real person is in it.
    """

    data: bytes
    extension: str
    note: str
    transform: str
    faces: tuple[Box, ...]
    phash: int | None
    is_person: bool


def perceptual_hash(image: Image.Image) -> int:
    """`imagehash.phash` with its defaults: 64 bits, most significant first."""
    import imagehash

    value = 0
    for bit in imagehash.phash(image).hash.flatten():
        value = value << 1 | int(bit)
    return value


def make(order: Order, seed: int, attempt: int = 0, origin: Made | None = None) -> Made:
    """Make an input.

    Args:
        order: what to make.
        seed: of the pool.
        attempt: another number gives another picture; raised when one resembles another family.
        origin: the finished `person` input, for derived kinds.
    """
    rng = random.Random(f"{seed}/{order.index}/{attempt}")
    if order.kind == "exact_copy":
        assert origin is not None
        return Made(
            origin.data, origin.extension, origin.note, "same bytes", origin.faces, origin.phash, origin.is_person
        )
    if origin is not None:
        return _derive(order, rng, origin)
    return _ROOTS.get(order.kind, _scene_input)(order, rng, attempt)


def _scene(rng: random.Random, small: bool = False) -> Scene:
    """A person scene that is neither dark nor bright."""
    while True:
        scene = scenes.person_scene(rng, small)
        if BRIGHTNESS[0] <= ImageStat.Stat(scene.image.convert("L")).mean[0] / 255 <= BRIGHTNESS[1]:
            return scene


def _finished(
    order: Order, data: bytes, extension: str, scene: Scene, transform: str, image: Image.Image | None = None
) -> Made:
    """`image` is the upright picture that the hash is taken of, if it is not what the bytes decode to."""
    kind = KINDS[order.kind]
    value = None
    if kind.hashed:
        with Image.open(io.BytesIO(data)) as decoded:
            value = perceptual_hash(image or decoded.convert("RGB"))
    return Made(data, extension, scene.note, transform, scene.faces, value, kind.is_person)


def _jpeg(order: Order, rng: random.Random, scene: Scene, transform: str) -> Made:
    return _finished(order, variants.encode(scene.image, quality=rng.randint(82, 94)), "jpg", scene, transform)


def _changed(order: Order, rng: random.Random, scene: Scene, variant: variants.Variant) -> Made:
    image, transform = variant
    return _jpeg(order, rng, Scene(image, scene.faces, scene.person_short_side, scene.note), transform)


def _scene_input(order: Order, rng: random.Random, attempt: int) -> Made:
    scene = _scene(rng)
    if order.kind in ("person", "opted_out", "licence", "blocked"):
        return _jpeg(order, rng, scene, "none")
    if order.kind in ("interface", "comic"):
        variant = (
            variants.in_interface(rng, scene.image)
            if order.kind == "interface"
            else variants.as_comic(rng, scene.image)
        )
        return _changed(order, rng, scene, variant)
    if order.kind in ("caption", "text_overlay"):
        return _changed(
            order, rng, scene, variants.overlaid(rng, scene.image, scene.faces, small=order.kind == "caption")
        )
    change = {"dark": variants.darkened, "bright": variants.brightened, "blurred": variants.blurred}[order.kind]
    return _changed(order, rng, scene, change(rng, scene.image))


def _framed(order: Order, rng: random.Random, attempt: int) -> Made:
    # A photograph has few framings that a hash tells apart; when they run out, a composition takes the place.
    scene = scenes.framed_scene(rng) if attempt < _FRAMED_ATTEMPTS else _scene(rng)
    return _jpeg(order, rng, scene, "none")


def _from_behind(order: Order, rng: random.Random, attempt: int) -> Made:
    scene = scenes.behind_scene(rng) if attempt < _FRAMED_ATTEMPTS else _scene(rng)
    return _jpeg(order, rng, scene, "none")


def _exif_rotated(order: Order, rng: random.Random, attempt: int) -> Made:
    scene = _scene(rng)
    orientation = 2 + order.variety % 7
    data = oddities.exif_rotated(scene.image, orientation)
    return _finished(order, data, "jpg", scene, f"EXIF orientation {orientation}", scene.image)


def _format(order: Order, rng: random.Random, attempt: int) -> Made:
    scene = _scene(rng)
    name, encode = oddities.FORMATS[order.variety % len(oddities.FORMATS)]
    data, extension = encode(scene.image)
    return _finished(order, data, extension, scene, name, scene.image)


def _small_person(order: Order, rng: random.Random, attempt: int) -> Made:
    scene = _scene(rng, small=True)
    return _jpeg(order, rng, scene, f"person of {scene.person_short_side} px")


def _small_picture(order: Order, rng: random.Random, attempt: int) -> Made:
    scene = _scene(rng)
    short = rng.randint(32, 200)
    scale = short / min(scene.image.size)
    size = (max(1, round(scene.image.width * scale)), max(1, round(scene.image.height * scale)))
    image = scene.image.resize(size, Image.Resampling.LANCZOS)
    return _changed(order, rng, scene, (image, f"shrunk to {size[0]} x {size[1]}"))


def _elongated(order: Order, rng: random.Random, attempt: int) -> Made:
    scene = scenes.empty_scene(rng)
    ratio = rng.uniform(3.4, 5.5)
    size = (round(280 * ratio), 280) if order.variety % 2 else (280, round(280 * ratio))
    image = scene.image.resize(size, Image.Resampling.BICUBIC)
    return _changed(order, rng, scene, (image, f"stretched to 1 : {ratio:.1f}"))


def _no_person(order: Order, rng: random.Random, attempt: int) -> Made:
    return _jpeg(order, rng, scenes.empty_scene(rng), "none")


def _drawn(order: Order, rng: random.Random, attempt: int) -> Made:
    size = rng.choice(scenes.FRAMES)
    choices = _DRAWN[order.kind]
    name, draw = choices[order.variety % len(choices)]
    scene = Scene(draw(rng, size), (), 0, f"drawn {name}")
    return _finished(order, variants.encode(scene.image, "png"), "png", scene, "none")


_DRAWN = {
    "gradient": (("gradient", drawings.gradient),),
    "flat": (("flat", drawings.flat), ("nearly_flat", drawings.nearly_flat)),
    "drawing": drawings.DRAWINGS,
}


def _broken(order: Order, rng: random.Random, attempt: int) -> Made:
    kind = order.kind
    if kind in ("truncated", "cut_by_two", "corrupt"):
        scene = _scene(rng)
        if kind == "corrupt":
            data = oddities.corrupt_png(rng, variants.encode(scene.image, "png"))
            return Made(data, "png", scene.note, "compressed data overwritten", scene.faces, None, True)
        data = variants.encode(scene.image)
        if kind == "truncated":
            whole, data = len(data), oddities.truncated(rng, data)
            return Made(data, "jpg", scene.note, f"cut to {len(data)} of {whole} bytes", scene.faces, None, True)
        return Made(oddities.cut_by_two(data), "jpg", scene.note, "last two bytes cut off", scene.faces, None, True)
    data, extension, note = {
        "empty": lambda: (b"", "jpg", "zero bytes"),
        "html": lambda: (oddities.html_page(rng), "jpg", "an HTML page named .jpg"),
        "noise": lambda: (b"\x00" + rng.randbytes(rng.randint(10, 20_000)), "jpeg", "random bytes"),
        "svg": lambda: (oddities.svg_drawing(rng), "svg", "an SVG drawing"),
        "heic": lambda: (oddities.heic_header(rng), "heic", "the start of a HEIC file"),
        "bomb": lambda: (oddities.bomb(rng), "png", f"{oddities.BOMB_SIDE} x {oddities.BOMB_SIDE} px, 1 bit"),
    }[kind]()
    return Made(data, extension, note, "none", (), None, False)


_BROKEN = ("truncated", "cut_by_two", "corrupt", "empty", "html", "noise", "svg", "heic", "bomb")

_ROOTS: dict[str, Any] = {
    "framed": _framed,
    "from_behind": _from_behind,
    "exif_rotated": _exif_rotated,
    "format": _format,
    "small_person": _small_person,
    "small_picture": _small_picture,
    "elongated": _elongated,
    "no_person": _no_person,
    **dict.fromkeys(("drawing", "flat", "gradient"), _drawn),
    **dict.fromkeys(_BROKEN, _broken),
}


def _derive(order: Order, rng: random.Random, origin: Made) -> Made:
    """A variant of a finished picture, from its decoded bytes as anybody else would have them."""
    with Image.open(io.BytesIO(origin.data)) as opened:
        image = opened.convert("RGB")
    scene = Scene(image, origin.faces, 0, origin.note)
    if order.kind == "reencoded":
        kind, quality = (("jpeg", 60), ("webp", 80), ("jpeg", 40), ("png", 0), ("jpeg", 75))[order.variety % 5]
        data = variants.encode(image, kind, quality)
        text = f"re-encoded as {kind}" + (f", quality {quality}" if quality else "")
        return _finished(order, data, {"jpeg": "jpg"}.get(kind, kind), scene, text)
    if order.kind == "strongly_cropped":
        return _changed(order, rng, scene, variants.strongly_cropped(rng, image, origin.faces))
    if order.kind == "resized":
        return _changed(order, rng, scene, variants.resized(rng, image, origin.faces))
    change = {
        "recoloured": variants.recoloured,
        "slightly_cropped": variants.slightly_cropped,
        "mirrored": variants.mirrored,
    }[order.kind]
    return _changed(order, rng, scene, change(rng, image))
