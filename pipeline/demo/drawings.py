"""Draws what is not a photograph: charts, cartoon faces, interfaces, pages of text, patterns and flat pictures.

Every function takes a random generator and a size in pixels, and returns an RGB image.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import cache

from PIL import Image, ImageDraw, ImageFont

Size = tuple[int, int]
Colour = tuple[int, int, int]
Draw = Callable[[random.Random, Size], Image.Image]

_WORDS = tuple(
    word
    for line in (
        "annual report figures show that demand for the new service grew faster than expected while costs fell in",
        "every region where the programme had been introduced before the end of the previous quarter",
    )
    for word in line.split()
)


@cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's built-in font, so that no font file is needed."""
    return ImageFont.load_default(size)


def words(rng: random.Random, count: int) -> str:
    """Running text."""
    return " ".join(rng.choice(_WORDS) for _ in range(count))


def colour(rng: random.Random, low: int = 0, high: int = 255) -> Colour:
    """A random colour with every channel in [low, high]."""
    return rng.randint(low, high), rng.randint(low, high), rng.randint(low, high)


def bar_chart(rng: random.Random, size: Size) -> Image.Image:
    """A bar chart with axes, a grid and labels."""
    width, height = size
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    left, bottom = width // 10, height - height // 8
    for line in range(1, 6):
        y = bottom - line * (bottom - height // 8) // 5
        draw.line((left, y, width - 20, y), fill=(210, 210, 210))
        draw.text((8, y - 8), str(line * 20), font=font(14), fill="black")
    bars = rng.randint(4, 12)
    step = (width - left - 30) / bars
    for bar in range(bars):
        x = left + 10 + bar * step
        top = bottom - rng.random() * (bottom - height // 7)
        draw.rectangle((x, top, x + step * 0.7, bottom), fill=colour(rng, 30, 200), outline="black")
    draw.line((left, bottom, width - 20, bottom), fill="black", width=2)
    draw.line((left, height // 10, left, bottom), fill="black", width=2)
    draw.text((width // 3, 10), words(rng, 3), font=font(22), fill="black")
    return image


def line_chart(rng: random.Random, size: Size) -> Image.Image:
    """A few random walks over a grid."""
    width, height = size
    image = Image.new("RGB", size, (250, 250, 250))
    draw = ImageDraw.Draw(image)
    for x in range(40, width, 60):
        draw.line((x, 20, x, height - 40), fill=(220, 220, 220))
    for row in range(20, height - 30, 50):
        draw.line((40, row, width - 20, row), fill=(220, 220, 220))
    for _ in range(rng.randint(2, 5)):
        y = height / 2
        points: list[tuple[float, float]] = []
        for x in range(40, width - 20, 6):
            y = min(max(y + rng.gauss(0, 12), 25), height - 45)
            points.append((x, y))
        draw.line(points, fill=colour(rng, 0, 200), width=3, joint="curve")
    return image


def cartoon_face(rng: random.Random, size: Size) -> Image.Image:
    """A round face of flat colours with outlines."""
    width, height = size
    image = Image.new("RGB", size, colour(rng, 120, 255))
    draw = ImageDraw.Draw(image)
    radius = min(size) * rng.uniform(0.25, 0.4)
    x, y = width * rng.uniform(0.4, 0.6), height * rng.uniform(0.4, 0.6)

    def circle(cx: float, cy: float, r: float, fill: Colour | str) -> None:
        draw.ellipse((cx - r, cy - r, cx + r, cy + r), fill=fill, outline="black", width=4)

    circle(x, y, radius, (255, rng.randint(170, 220), rng.randint(90, 190)))
    for side in (-1, 1):
        circle(x + side * radius * 0.35, y - radius * 0.2, radius * 0.18, "white")
        circle(x + side * radius * 0.35, y - radius * 0.2, radius * 0.07, "black")
    mouth = (x - radius * 0.5, y - radius * 0.1, x + radius * 0.5, y + radius * 0.6)
    draw.arc(mouth, 20, 160, fill=(160, 0, 0), width=6)
    for lock in range(9):
        angle = math.radians(200 + lock * 17.5)
        start = (x + radius * math.cos(angle), y + radius * math.sin(angle))
        end = (x + radius * 1.25 * math.cos(angle), y + radius * 1.25 * math.sin(angle))
        draw.line((*start, *end), fill=(60, 30, 0), width=8)
    return image


def interface(rng: random.Random, size: Size) -> Image.Image:
    """A mock-up of a screen: title bar, side bar, cards and buttons; `inset_box` is free for a picture."""
    width, height = size
    accent = colour(rng, 20, 190)
    image = Image.new("RGB", size, (245, 246, 248))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, width, height // 12), fill=accent)
    for dot in range(3):
        draw.ellipse((14 + dot * 22, 10, 28 + dot * 22, 24), fill=colour(rng, 150, 255))
    side = width // 5
    draw.rectangle((0, height // 12, side, height), fill=(228, 230, 235))
    for row in range(height // 12 + 20, height - 30, 34):
        draw.rounded_rectangle((14, row, side - 14, row + 16), 6, fill=(190, 194, 202))
    x0, _, _, y1 = inset_box(size)
    row = y1 + 18
    while row + 40 < height:
        draw.rounded_rectangle((x0, row, x0 + rng.randint(width // 4, width // 2), row + 14), 5, fill=(200, 203, 210))
        row += 28
    draw.rounded_rectangle((width - 150, height - 54, width - 24, height - 20), 10, fill=accent)
    return image


def inset_box(size: Size) -> tuple[int, int, int, int]:
    """Where `interface` leaves room for a picture."""
    width, height = size
    return width // 5 + 24, height // 12 + 24, width - 24, round(height * 0.74)


def text_page(rng: random.Random, size: Size) -> Image.Image:
    """A page of running text."""
    image = Image.new("RGB", size, colour(rng, 235, 255))
    draw = ImageDraw.Draw(image)
    height = rng.randint(14, 24)
    for y in range(30, size[1] - 40, round(height * 1.5)):
        draw.text((30, y), words(rng, size[0] // (height * 3)), font=font(height), fill=colour(rng, 0, 60))
    return image


def checkerboard(rng: random.Random, size: Size) -> Image.Image:
    """Two colours in squares."""
    cell = rng.randint(16, 60)
    first, second = colour(rng), colour(rng)
    image = Image.new("RGB", size, first)
    draw = ImageDraw.Draw(image)
    for row in range(0, size[1], cell):
        for column in range((row // cell % 2) * cell, size[0], 2 * cell):
            draw.rectangle((column, row, column + cell - 1, row + cell - 1), fill=second)
    return image


def shapes(rng: random.Random, size: Size) -> Image.Image:
    """Overlapping flat shapes, like clip art."""
    image = Image.new("RGB", size, colour(rng, 150, 255))
    draw = ImageDraw.Draw(image)
    for _ in range(rng.randint(8, 20)):
        x, y, r = rng.randint(0, size[0]), rng.randint(0, size[1]), rng.randint(20, min(size) // 4)
        if rng.random() < 0.5:
            draw.ellipse((x - r, y - r, x + r, y + r), fill=colour(rng))
        else:
            draw.regular_polygon((x, y, r), rng.randint(3, 6), rotation=rng.randint(0, 90), fill=colour(rng))
    return image


def flat(rng: random.Random, size: Size) -> Image.Image:
    """One colour of medium brightness."""
    return Image.new("RGB", size, colour(rng, 90, 170))


def nearly_flat(rng: random.Random, size: Size) -> Image.Image:
    """Two or three neighbouring colours in large fields: under two bits of entropy."""
    base = colour(rng, 90, 160)
    image = Image.new("RGB", size, base)
    draw = ImageDraw.Draw(image)
    for step in range(1, rng.randint(2, 3)):
        x = rng.randint(0, size[0] // 2)
        shade = (base[0] + 9 * step, base[1] + 9 * step, base[2] + 9 * step)
        draw.rectangle((x, 0, x + size[0] // 3, size[1]), fill=shade)
    return image


def gradient(rng: random.Random, size: Size) -> Image.Image:
    """A linear gradient between two colours: many grey levels, no detail at all."""
    first, second = colour(rng, 40, 110), colour(rng, 150, 220)
    ramp = Image.linear_gradient("L").resize(size).rotate(rng.choice((0, 180)))
    return Image.composite(Image.new("RGB", size, second), Image.new("RGB", size, first), ramp)


DRAWINGS: tuple[tuple[str, Draw], ...] = (
    ("bar_chart", bar_chart),
    ("line_chart", line_chart),
    ("cartoon_face", cartoon_face),
    ("interface", interface),
    ("text_page", text_page),
    ("checkerboard", checkerboard),
    ("shapes", shapes),
)
"""Drawings with detail: they pass the screen and show nobody."""
