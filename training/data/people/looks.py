"""What makes two people differ: proportions, colours, hair and clothes. All shares and ranges are ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from training.data.people.config import PeopleConfig
from training.data.people.materials import Materials
from training.data.people.shapes import Array

HAIR = ("bald", "short", "crop", "long", "bob", "bun", "afro")
TOPS = ("bare", "tank", "short", "long")
BOTTOMS = ("shorts", "trousers", "skirt")
# Linear RGB of the palest and the darkest skin, and of hairs.
_SKIN = np.array([[0.80, 0.56, 0.45], [0.60, 0.36, 0.24], [0.35, 0.18, 0.10], [0.09, 0.045, 0.03]])
_HAIRS = np.array(
    [
        [0.015, 0.012, 0.012],
        [0.05, 0.03, 0.02],
        [0.16, 0.08, 0.04],
        [0.48, 0.32, 0.14],
        [0.3, 0.08, 0.03],
        [0.5, 0.5, 0.5],
    ]
)
_EYES = np.array([[0.10, 0.045, 0.02], [0.15, 0.10, 0.03], [0.10, 0.25, 0.42], [0.12, 0.25, 0.12], [0.2, 0.22, 0.24]])


@dataclass(frozen=True)
class Look:
    """One person's looks. Factors are relative to an average body of 1.7 m; materials are indices into `Materials`."""

    height: float  # metres
    girth: float  # of all radii but the head's
    shoulders: float
    hips: float
    waist: float
    chest: float  # 0: flat, 1: full
    head: Array  # [3] scale along x, y, z
    mouth: float  # 0: shut, 1: wide open
    tongue: bool
    eyes_open: float  # 0..1
    gaze: tuple[float, float]  # radians, to the left and up
    hair: str
    beard: bool
    glasses: str  # "", "frames" or "shades"
    hat: str  # "", "cap" or "beanie"
    top: str
    bottom: str
    tucked: bool
    shoes: str  # "", "low" or "boots"
    socks: float  # height over the ankle as a share of the shin, 0: none
    scarf: bool
    watch: bool
    materials: dict[str, int]


def _colour(rng: np.random.Generator) -> Array:
    """A cloth's linear RGB: any hue; greys, blacks and whites are common."""
    value = rng.uniform(0.02, 0.85) ** 1.3
    if rng.random() < 0.35:
        return np.clip(value * (1 + rng.normal(0, 0.04, 3)), 0.01, 0.9)
    hue = rng.random(3)
    hue /= hue.max()
    return np.clip(value * (hue + rng.uniform(0, 0.3)), 0.01, 0.9)


def skin_colour(rng: np.random.Generator) -> Array:
    """Linear RGB [3] of a skin."""
    place = rng.uniform(0, len(_SKIN) - 1)
    low = min(int(place), len(_SKIN) - 2)
    mixed = _SKIN[low] + (place - low) * (_SKIN[low + 1] - _SKIN[low])
    return np.clip(mixed * (1 + rng.normal(0, 0.05, 3)), 0.01, 0.95)


def sample_look(rng: np.random.Generator, config: PeopleConfig, materials: Materials, kind: str) -> Look:
    """Draw one person's looks.

    Args:
        rng: the person's generator.
        config: the shares.
        materials: the person's materials are added here.
        kind: what the legs do; skirts are for legs that stand.
    """
    skin = skin_colour(rng)
    hair_colour = _HAIRS[rng.integers(len(_HAIRS))] * rng.uniform(0.8, 1.25)
    if rng.random() < 0.06:
        hair_colour = _colour(rng)

    def cloth(**fixed: Any) -> int:
        pattern = int(rng.integers(1, 6)) if rng.random() < config.patterns else 0
        return materials.add(_colour(rng), _colour(rng), pattern, rng.uniform(18, 70), rng, **fixed)

    red = skin * np.array([0.95, 0.6, 0.6])
    lips = red * rng.uniform(0.7, 1.05) if rng.random() < 0.7 else np.array([0.45, 0.03, 0.06]) * rng.uniform(0.5, 1.4)
    brow = np.minimum(hair_colour * 0.7, 0.5 * skin)
    named = {
        "skin": materials.add(skin, skin * np.array([0.94, 0.85, 0.82]), 6, 9.0, rng),
        "lips": materials.add(lips, lips * 0.9, 6, 200.0, rng),
        "hair": materials.add(hair_colour, hair_colour * rng.uniform(0.5, 0.8), 7, rng.uniform(150, 400), rng),
        "brow": materials.add(brow, brow * 0.8, 6, 300.0, rng),
        "nostril": materials.add(skin * 0.25, skin * 0.25, 0, 1.0, rng),
        "mouth": materials.add(np.array([0.1, 0.015, 0.015]), np.array([0.06, 0.01, 0.01]), 6, 60.0, rng),
        "teeth": materials.add(np.array([0.75, 0.72, 0.62]), np.array([0.6, 0.57, 0.48]), 2, 130.0, rng),
        "tongue": materials.add(np.array([0.5, 0.15, 0.16]), np.array([0.42, 0.12, 0.12]), 6, 200.0, rng),
        "eye": materials.add(np.array([0.8, 0.78, 0.76]), _EYES[rng.integers(len(_EYES))], 8, 1.0, rng),
        "frame": materials.add(_colour(rng) * rng.choice([0.15, 1.0]), np.full(3, 0.02), 0, 1.0, rng),
        "lens": materials.add(np.array([0.03, 0.03, 0.035]) * rng.uniform(0.5, 2), np.full(3, 0.02), 6, 20.0, rng),
        "top": cloth(),
        "bottom": cloth(),
        "shoes": cloth(),
        "socks": cloth(),
        "hat": cloth(),
        "scarf": cloth(),
        "sole": materials.add(np.full(3, rng.choice([0.03, 0.7])), np.full(3, 0.1), 0, 1.0, rng),
    }
    bare = rng.random() < config.bare
    top = "bare" if bare else str(rng.choice(TOPS[1:], p=[0.12, 0.45, 0.43]))
    choice = "shorts" if bare else str(rng.choice(BOTTOMS, p=[0.3, 0.52, 0.18]))
    if choice == "skirt" and kind not in ("stand", "walk"):
        choice = "trousers"
    hair = str(rng.choice(HAIR, p=[0.1, 0.25, 0.2, 0.16, 0.12, 0.1, 0.07]))
    glasses = str(rng.choice(["frames", "shades"], p=[0.7, 0.3])) if rng.random() < config.glasses else ""
    open_mouth = rng.random() < config.open_mouths
    shoes = "" if rng.random() < (0.6 if bare else 0.15) else str(rng.choice(["low", "boots"], p=[0.8, 0.2]))
    return Look(
        height=float(np.clip(rng.normal(1.68, 0.11), 1.35, 2.0)),
        girth=float(np.clip(rng.normal(1.0, 0.12), 0.8, 1.4)),
        shoulders=float(np.clip(rng.normal(1.0, 0.07), 0.85, 1.2)),
        hips=float(np.clip(rng.normal(1.0, 0.08), 0.85, 1.25)),
        waist=float(np.clip(rng.normal(0.98, 0.1), 0.8, 1.3)),
        chest=float(rng.uniform(0.3, 1.0)) if rng.random() < 0.45 and not bare else 0.0,
        head=np.clip(rng.normal(1.0, [0.05, 0.04, 0.04]), 0.88, 1.14),
        mouth=float(rng.uniform(0.35, 1.0)) if open_mouth else 0.0,
        tongue=bool(rng.random() < 0.7),
        eyes_open=float(rng.uniform(0.6, 1.0)) if rng.random() < 0.93 else 0.0,
        gaze=(float(rng.normal(0, 0.2)), float(rng.normal(0, 0.1))),
        hair=hair,
        beard=bool(rng.random() < 0.15),
        glasses=glasses,
        hat=str(rng.choice(["cap", "beanie"])) if rng.random() < config.hats else "",
        top=top,
        bottom=choice,
        tucked=bool(rng.random() < 0.4),
        shoes=shoes,
        socks=float(rng.uniform(0.05, 0.6)) if rng.random() < 0.6 else 0.0,
        scarf=bool(rng.random() < 0.1 and not bare),
        watch=bool(rng.random() < 0.2),
        materials=named,
    )
