"""Names that say left and right: which pairs a mirror image swaps, as far as names tell."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_SIDE = re.compile(r"left|right|(?<![a-z])(?:lt|rt|l|r)(?![a-z])", re.IGNORECASE)
_OTHER = {"left": "right", "lt": "rt", "l": "r"} | {"right": "left", "rt": "lt", "r": "l"}
_LEFT = frozenset(("left", "lt", "l"))


def mirror_name(name: str) -> str | None:
    """The name with left and right swapped, in lower case; None where it says neither.

    A side is "left" or "right" anywhere ("LeftWrist", "wrist_left"), or l, r, lt, rt between what are no letters
    ("l_wrist", "wrist.R").
    """
    swapped, count = _SIDE.subn(lambda found: _OTHER[found[0].lower()], name)
    return swapped.lower() if count else None


def unpaired(names: Sequence[str], paired: Collection[int]) -> list[tuple[str, str]]:
    """Pairs of names that are each other's mirror name, the left one first, of which none is in a pair yet.

    Args:
        names: of keypoints or classes.
        paired: places of those that are.
    """
    free = {name.lower(): name for place, name in enumerate(names) if place not in paired}
    found = []
    for low, name in free.items():
        other = mirror_name(name)
        first = _SIDE.search(name)
        if other in free and other != low and first is not None and first[0].lower() in _LEFT:
            found.append((name, free[other]))
    return found
