"""What the demo pool is made of: the kinds of inputs, how many of each, and which are made from which."""

from __future__ import annotations

from dataclasses import dataclass

from curation.reasons import Reason
from pipeline.demo.truth import KEPT

MIN_INPUTS = 100

RADIUS = 4
"""Hamming radius of near duplicates that the truth assumes, bits of 64."""


LIMITS: dict[Reason, tuple[float | None, float | None]] = {
    Reason.TOO_SMALL: (256, None),
    Reason.ASPECT_RATIO: (None, 3.0),
    Reason.LOW_ENTROPY: (2.0, None),
    Reason.TOO_DARK: (0.06, None),
    Reason.TOO_BRIGHT: (None, 0.94),
    Reason.BLURRED: (1.2, None),
    Reason.NO_PERSON: (1, None),
    Reason.PERSON_TOO_SMALL: (128, None),
    Reason.NOT_PHOTO: (0.8, None),
    Reason.TEXT_OVERLAY: (None, 0.1),
}
"""Limits (min, max) of the policy that the truth assumes. The pictures are small, so the person's is too; the paper's
is 384 px. Beside these, opted-out pictures and unlisted licences are dropped, and pictures of unknown licence pass."""

LICENCES = ("cc0-1.0", "cc-by-4.0", "pdm-1.0")
"""Licences that the policy allows."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of input.

    Attributes:
        per_2000: how many of them a pool of 2,000 inputs holds; at least one is in every pool.
        expected: "kept" or a reason code.
        acceptable: labels that are as right.
        is_person: whether a real person is in it.
        hashed: it may be kept, so it must not resemble another family; its hash is computed.
        derived: made from the finished bytes of a `person` input.
    """

    per_2000: int
    expected: str
    acceptable: tuple[str, ...] = ()
    is_person: bool = True
    hashed: bool = False
    derived: bool = False


KINDS: dict[str, Kind] = {
    # Belong in the corpus. `person` takes the remainder, about 430 of 2,000.
    "person": Kind(0, KEPT, hashed=True),
    "framed": Kind(36, KEPT, hashed=True),
    "from_behind": Kind(6, KEPT, hashed=True),
    "exif_rotated": Kind(42, KEPT, hashed=True),
    "format": Kind(60, KEPT, hashed=True),
    "caption": Kind(30, KEPT, hashed=True),
    # Made from a `person` input.
    "exact_copy": Kind(90, Reason.EXACT_DUPLICATE, derived=True, hashed=True),
    "resized": Kind(80, Reason.NEAR_DUPLICATE, derived=True, hashed=True),
    "reencoded": Kind(80, Reason.NEAR_DUPLICATE, derived=True, hashed=True),
    "recoloured": Kind(60, Reason.NEAR_DUPLICATE, derived=True, hashed=True),
    "slightly_cropped": Kind(40, Reason.NEAR_DUPLICATE, derived=True, hashed=True),
    "mirrored": Kind(40, KEPT, derived=True, hashed=True),
    "strongly_cropped": Kind(40, KEPT, derived=True, hashed=True),
    # Dropped by a measure of the picture.
    "small_picture": Kind(80, Reason.TOO_SMALL),
    "elongated": Kind(50, Reason.ASPECT_RATIO, is_person=False),
    "flat": Kind(36, Reason.LOW_ENTROPY, (Reason.BLURRED,), is_person=False),
    "dark": Kind(50, Reason.TOO_DARK, (Reason.LOW_ENTROPY,)),
    "bright": Kind(50, Reason.TOO_BRIGHT, (Reason.LOW_ENTROPY,)),
    "blurred": Kind(70, Reason.BLURRED),
    "gradient": Kind(10, Reason.LOW_ENTROPY, (Reason.BLURRED,), is_person=False),
    # Dropped by their metadata or by a list.
    "opted_out": Kind(24, Reason.OPTED_OUT),
    "licence": Kind(24, Reason.LICENCE),
    "blocked": Kind(6, Reason.BLOCKED),
    # Dropped by what they show.
    # Backgrounds that are out of focus, and the night sky.
    "no_person": Kind(170, Reason.NO_PERSON, (Reason.BLURRED, Reason.TOO_DARK), is_person=False),
    "drawing": Kind(
        100,
        Reason.NO_PERSON,
        (Reason.LOW_ENTROPY, Reason.TOO_BRIGHT, Reason.NOT_PHOTO, Reason.TEXT_OVERLAY),
        is_person=False,
    ),
    "small_person": Kind(60, Reason.PERSON_TOO_SMALL),
    "interface": Kind(60, Reason.NOT_PHOTO),
    "comic": Kind(20, Reason.NOT_PHOTO, (Reason.NO_PERSON,)),
    # So much lettering makes a poster.
    "text_overlay": Kind(100, Reason.TEXT_OVERLAY, (Reason.NOT_PHOTO,)),
    # Cannot be read as a picture.
    "truncated": Kind(20, Reason.TRUNCATED),
    "cut_by_two": Kind(10, Reason.TRUNCATED),
    "corrupt": Kind(14, Reason.CORRUPT, (Reason.TRUNCATED,)),
    "empty": Kind(12, Reason.EMPTY, is_person=False),
    "html": Kind(16, Reason.NOT_AN_IMAGE, is_person=False),
    "noise": Kind(8, Reason.NOT_AN_IMAGE, is_person=False),
    "svg": Kind(6, Reason.UNSUPPORTED_FORMAT, is_person=False),
    "heic": Kind(6, Reason.UNSUPPORTED_FORMAT, is_person=False),
    "bomb": Kind(2, Reason.TOO_MANY_PIXELS, is_person=False),
}

CONTAINER_ROWS = 5
"""Inputs that stand for three broken tars, the broken end of another, and a link in a tar (`pipeline.demo.tars`)."""


@dataclass(frozen=True, slots=True)
class Order:
    """One input to be made.

    Attributes:
        index: position in the plan; also seeds the random generator.
        kind: key of `KINDS`.
        variety: running number within the kind, which cycles through its varieties.
        origin: index of the `person` order that it is made from, for derived kinds.
    """

    index: int
    kind: str
    variety: int
    origin: int | None = None

    @property
    def group(self) -> str:
        """Duplicate family: that of the origin, unless it is another picture for a perceptual hash."""
        own = self.origin is None or KINDS[self.kind].expected == KEPT
        return f"family-{self.index if own else self.origin:05d}"


def counts(inputs: int) -> dict[str, int]:
    """How many inputs of each kind there are in a pool of `inputs`, without the container rows.

    Raises:
        ValueError: `inputs` is less than `MIN_INPUTS`.
    """
    if inputs < MIN_INPUTS:
        raise ValueError(f"a demo pool of {inputs} inputs cannot hold every kind: give at least {MIN_INPUTS}")
    result = {name: max(1, round(kind.per_2000 * inputs / 2000)) for name, kind in KINDS.items() if kind.per_2000}
    return {"person": inputs - CONTAINER_ROWS - sum(result.values()), **result}


def plan(inputs: int) -> list[Order]:
    """All orders of a pool, `person` first.

    Families are kept apart: exact copies, near duplicates (two to a family) and new pictures (mirrored, strongly
    cropped) have origins of their own as long as there are enough.
    """
    number = counts(inputs)
    orders = [Order(index, "person", index) for index in range(number.pop("person"))]
    origins = len(orders)
    used = 0
    for near in (False, True):
        # One variant per origin first; near duplicates share an origin by twos.
        slot = 0
        for name, count in number.items():
            if not KINDS[name].derived or (KINDS[name].expected == Reason.NEAR_DUPLICATE) is not near:
                continue
            for variety in range(count):
                origin = (used + (slot // 2 if near else slot)) % origins
                orders.append(Order(len(orders), name, variety, origin))
                slot += 1
        used += slot if not near else 0
    for name, count in number.items():
        if not KINDS[name].derived:
            orders += [Order(len(orders) + variety, name, variety) for variety in range(count)]
    return orders
