"""What people do to a picture before it lands in a pool again: resize, re-encode, recolour, crop, mirror, caption.

Functions take and return RGB images (or encode them); parameters come from the given random generator and are
returned as text for the truth table.
"""

from __future__ import annotations

import io
import random
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps

from pipeline.demo.drawings import font, inset_box, interface, words
from pipeline.demo.outlines import Box
from pipeline.demo.scenes import FACE_WIDTH

Variant = tuple[Image.Image, str]

TEXT_SHARE = (0.22, 0.32)
"""Share of the picture that the text lines of an overlay cover: their bounding boxes over the picture's area."""

CAPTION_SHARE = (0.008, 0.02)
"""The same for a small caption, which is no reason to drop a picture."""


def encode(image: Image.Image, kind: str = "jpeg", quality: int = 90) -> bytes:
    """Encode as `jpeg`, `png` or `webp`; PNG is stored with little effort, for speed."""
    buffer = io.BytesIO()
    if kind == "png":
        image.save(buffer, "PNG", compress_level=1)
    elif kind == "webp":
        image.save(buffer, "WEBP", quality=quality, method=0)
    else:
        image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def resized(rng: random.Random, image: Image.Image, faces: Sequence[Box] = ()) -> Variant:
    """Another size, the same shape; the faces stay wide enough for their persons to be large enough."""
    narrowest = min((x1 - x0 for x0, _, x1, _ in faces), default=FACE_WIDTH[0])
    smallest = max(0.6, 300 / min(image.size), FACE_WIDTH[0] / narrowest)
    scale = rng.uniform(min(1.0, smallest), 1.25)
    size = (round(image.width * scale), round(image.height * scale))
    return image.resize(size, Image.Resampling.LANCZOS), f"resized x{scale:.2f}"


def recoloured(rng: random.Random, image: Image.Image) -> Variant:
    """A mild change of saturation, contrast and brightness, or grey."""
    if rng.random() < 0.2:
        return ImageOps.grayscale(image).convert("RGB"), "recoloured to grey"
    saturation, contrast, brightness = rng.uniform(0.6, 1.4), rng.uniform(0.9, 1.1), rng.uniform(0.92, 1.08)
    image = ImageEnhance.Color(image).enhance(saturation)
    image = ImageEnhance.Contrast(image).enhance(contrast)
    image = ImageEnhance.Brightness(image).enhance(brightness)
    return image, f"recoloured saturation {saturation:.2f} contrast {contrast:.2f} brightness {brightness:.2f}"


def slightly_cropped(rng: random.Random, image: Image.Image) -> Variant:
    """1 to 2.5 % taken off the sides."""
    shares = [rng.uniform(0.005, 0.0125) for _ in range(4)]
    width, height = image.size
    box = (
        round(width * shares[0]),
        round(height * shares[1]),
        width - round(width * shares[2]),
        height - round(height * shares[3]),
    )
    return image.crop(box), f"cropped by {100 * sum(shares) / 2:.1f} %"


def mirrored(rng: random.Random, image: Image.Image) -> Variant:
    """Left and right exchanged: another picture for a perceptual hash."""
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), "mirrored"


def strongly_cropped(rng: random.Random, image: Image.Image, faces: Sequence[Box]) -> Variant:
    """Half to two thirds of each side, with the faces still inside."""
    share = rng.uniform(0.55, 0.7)
    width, height = round(image.width * share), round(image.height * share)
    x0, y0 = min(face[0] for face in faces), min(face[1] for face in faces)
    x1, y1 = max(face[2] for face in faces), max(face[3] for face in faces)
    width, height = max(width, x1 - x0 + 16, 300), max(height, y1 - y0 + 60, 300)
    left = _within(rng, x1 + 8 - width, x0 - 8, image.width - width)
    # As far up as the faces allow: what is cut off is background, not the body.
    top = _within(rng, y0 - 12, y0 - 8, image.height - height)
    return image.crop((left, top, left + width, top + height)), f"cropped to {100 * share:.0f} % of each side"


def blurred(rng: random.Random, image: Image.Image) -> Variant:
    """Far out of focus: a Gaussian of 2 to 3.5 % of the short side."""
    radius = min(image.size) * rng.uniform(0.02, 0.035)
    return image.filter(ImageFilter.GaussianBlur(radius)), f"blurred, radius {radius:.1f} px"


def darkened(rng: random.Random, image: Image.Image) -> Variant:
    """Mean luma of 3 to 5 % with the brightest parts still visible."""
    target = 255 * rng.uniform(0.03, 0.05)
    gain = target / max(1.0, _mean_luma(image))
    return image.point([min(255, round(value * gain)) for value in range(256)] * 3), f"darkened x{gain:.3f}"


def brightened(rng: random.Random, image: Image.Image) -> Variant:
    """Mean luma of 95 to 97 %."""
    target = 255 * rng.uniform(0.03, 0.05)
    gain = target / max(1.0, 255 - _mean_luma(image))
    table = [max(0, 255 - round((255 - value) * gain)) for value in range(256)]
    return image.point(table * 3), f"brightened, contrast x{gain:.3f}"


def overlaid(rng: random.Random, image: Image.Image, faces: Sequence[Box], small: bool = False) -> Variant:
    """Lines of text over the picture, beside the faces; `small` writes one short caption instead."""
    image = image.copy()
    draw = ImageDraw.Draw(image)
    target = rng.uniform(*(CAPTION_SHARE if small else TEXT_SHARE))
    size = min(image.size) // 24 if small else rng.randint(min(image.size) // 18, min(image.size) // 11)
    letters = font(size)
    area, covered = image.width * image.height, 0.0
    rows = list(range(size // 2, image.height - round(1.3 * size), round(1.4 * size)))
    rng.shuffle(rows)
    if small:
        rows = [image.height - 2 * size]
    for y in rows:
        for x0, x1 in _free(faces, y - 4, y + round(1.3 * size), image.width, size):
            if covered >= target * area:
                break
            room = x1 - x0 if not small else min(x1 - x0, target * area / size)
            line = ""
            while draw.textlength(longer := f"{line} {words(rng, 1)}".strip(), font=letters) <= room:
                line = longer
            if not line:
                continue
            draw.text((x0, y), line, font=letters, fill="white", stroke_width=max(1, size // 14), stroke_fill="black")
            left, top, right, bottom = draw.textbbox((x0, y), line, font=letters)
            covered += (right - left) * (bottom - top)
    return image, f"{'caption' if small else 'text overlay'} over {100 * covered / area:.1f} %"


def in_interface(rng: random.Random, image: Image.Image) -> Variant:
    """A screenshot: the picture inside a drawn interface."""
    size = rng.choice(((900, 720), (840, 700), (960, 760)))
    page = interface(rng, size)
    x0, y0, x1, y1 = inset_box(size)
    scale = min((x1 - x0) / image.width, (y1 - y0) / image.height)
    inset = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)
    page.paste(inset, (x0, y0))
    return page, "inside a drawn interface"


def as_comic(rng: random.Random, image: Image.Image) -> Variant:
    """A comic panel: flat colours, black contours, a frame and a speech bubble."""
    smooth = image.filter(ImageFilter.MedianFilter(5)).filter(ImageFilter.ModeFilter(5))
    panel = ImageOps.posterize(ImageEnhance.Color(smooth).enhance(1.8), 2)
    contours = ImageOps.invert(smooth.convert("L").filter(ImageFilter.FIND_EDGES)).point(
        lambda value: 0 if value < 215 else 255
    )
    panel.paste((0, 0, 0), mask=ImageOps.invert(contours))
    panel = ImageOps.expand(panel, 10, "black")
    return ImageOps.expand(panel, 16, "white"), "as a comic panel"


def _mean_luma(image: Image.Image) -> float:
    histogram = image.convert("L").histogram()
    return sum(value * count for value, count in enumerate(histogram)) / (image.width * image.height)


def _free(faces: Sequence[Box], top: int, bottom: int, width: int, margin: int) -> list[tuple[int, int]]:
    """Spans of a text line that stay clear of the faces, with some air around these."""
    spans = [(8, width - 8)]
    for x0, y0, x1, y1 in faces:
        air = (x1 - x0) // 4
        if bottom < y0 - air or top > y1 + air:
            continue
        spans = [
            part
            for a, b in spans
            for part in ((a, min(b, x0 - air)), (max(a, x1 + air), b))
            if part[1] - part[0] > 3 * margin
        ]
    return spans


def _within(rng: random.Random, low: int, high: int, limit: int) -> int:
    low, high = max(0, min(low, limit)), max(0, min(high, limit))
    return rng.randint(min(low, high), max(low, high))
