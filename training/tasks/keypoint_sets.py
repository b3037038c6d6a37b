"""Keypoint sets: names, mirror images, tolerances and skeletons of what a pose model finds.

Three come with the package, and a user's own is a YAML or JSON file of the same form (`keypoints/*.json` beside this
file are examples):

    name: gloves
    names: [nose, left_hand, right_hand]
    flip_pairs: [[left_hand, right_hand]]    # the person's left first; what is in no pair is its own mirror image
    sigmas: {nose: 0.026, left_hand: 0.06, right_hand: 0.06}    # or a list in the order of names, or one number
    links: [[nose, left_hand], [nose, right_hand]]    # drawn; optional
    parts: {head: [nose]}    # measured on their own; optional, as are:
    upper: [nose, left_hand, right_hand]    # halves of the body, for half-body augmentation
    lower: []
    same_as: {coco17: {left_hand: left_wrist}}    # their name: our name, where names differ and points do not

Names that say left and right and are in no pair are an error, because mirrored training pictures would call the left
hand right: give their pairs, or `flip_pairs: []` if a mirror image swaps none.

A sigma is the standard deviation of annotators in units of the square root of a person's area, as in COCO's object
keypoint similarity. Those of `coco17` are COCO's, of `wholebody133` COCO-WholeBody's, of `sapiens308` the released
configuration's (0.01 for the 238 face points). `same_as` between 308 and 133 is ours, by anatomy: finger roots, hand
roots to wrists, and the face landmarks whose names leave no doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml
from pydantic import Field, ValidationError

from curation.config import Config
from training.tasks.mirror_names import unpaired

Indices = npt.NDArray[np.int64]
BUILT_IN = ("sapiens308", "wholebody133", "coco17")
MIDDLE, LEFT, RIGHT = 0, 1, 2

_FOLDER = Path(__file__).parent / "keypoints"


class KeypointFile(Config):
    """The file of a keypoint set, see the module's docstring."""

    name: str = Field(min_length=1, description="of the set")
    names: tuple[str, ...] = Field(min_length=1, description="of the keypoints, in order")
    flip_pairs: tuple[tuple[str, str], ...] = Field((), description="mirror images, the person's left first")
    sigmas: float | tuple[float, ...] | dict[str, float] = Field(
        description="one number, one for each keypoint in order, or by name"
    )
    links: tuple[tuple[str, str], ...] = Field((), description="lines of the skeleton")
    parts: dict[str, tuple[str, ...]] = Field(default_factory=dict, description="keypoints measured on their own")
    upper: tuple[str, ...] = Field((), description="keypoints of the upper body")
    lower: tuple[str, ...] = Field((), description="keypoints of the lower body")
    same_as: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="set -> its name of a keypoint -> our name of the same one"
    )


@dataclass(frozen=True, eq=False)
class KeypointSet:
    """K keypoints.

    Attributes:
        name: of the set.
        names: K different names.
        flip: int64 [K], index of each keypoint's mirror image: an involution.
        sigmas: float64 [K], positive (COCO's, in units of the square root of the area).
        links: int64 [L, 2], lines of the skeleton.
        sides: int64 [K], the side of the person: 0 middle, 1 left, 2 right; of flip pairs, the first is left.
        parts: indices by name, in the order of the part's own convention.
        upper: indices of the upper body's keypoints.
        lower: indices of the lower body's keypoints.
        same_as: set -> its name of a keypoint -> our name.

    Raises:
        ValueError: names twice, a flip that is no involution, a sigma that is not positive, indices out of range.
    """

    name: str
    names: tuple[str, ...]
    flip: Indices
    sigmas: npt.NDArray[np.float64]
    links: Indices
    sides: Indices
    parts: dict[str, Indices]
    upper: Indices
    lower: Indices
    same_as: dict[str, dict[str, str]]

    def __post_init__(self) -> None:
        count = len(self.names)
        twice = sorted({name for name in self.names if self.names.count(name) > 1})
        if twice:
            raise ValueError(f"keypoint set {self.name!r}: {_some(twice)} named twice; every name must be another")
        flip = np.asarray(self.flip)
        if flip.shape != (count,) or not np.isin(flip, np.arange(count)).all():
            raise ValueError(f"keypoint set {self.name!r}: flip is {flip.shape}: give {count} indices below {count}")
        wrong = [self.names[index] for index in np.flatnonzero(flip[flip] != np.arange(count))]
        if wrong:
            raise ValueError(
                f"keypoint set {self.name!r}: the flip is no involution at {_some(wrong)}: the mirror image of a "
                "keypoint's mirror image must be the keypoint"
            )
        sigmas = np.asarray(self.sigmas, np.float64)
        if sigmas.shape != (count,):
            raise ValueError(f"keypoint set {self.name!r}: {sigmas.size} sigmas for {count} keypoints")
        wrong = [f"{self.names[i]} {sigmas[i]:g}" for i in np.flatnonzero(~(sigmas > 0) | ~np.isfinite(sigmas))]
        if wrong:
            raise ValueError(f"keypoint set {self.name!r}: sigmas must be above 0, but {_some(wrong)}")
        for group in (self.links, self.upper, self.lower, *self.parts.values()):
            if not np.isin(group, np.arange(count)).all():
                raise ValueError(f"keypoint set {self.name!r}: an index is not below {count}")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def link_sides(self) -> Indices:
        """int64 [L], the side of each line: that of both ends, or of the one that has any; else 0."""
        first, second = self.sides[self.links[:, 0]], self.sides[self.links[:, 1]]
        return np.where(first == second, first, np.where(first * second == 0, first + second, MIDDLE))

    def indices(self, names: Sequence[str]) -> Indices:
        """int64, the places of names; ValueError with the nearest names where there is no such keypoint."""
        return _indices(names, self.names, f"keypoint set {self.name!r}")


def parse_keypoint_set(value: dict[str, Any], origin: str = "keypoint set") -> KeypointSet:
    """Build a set from the content of a file.

    Args:
        value: as in the module's docstring.
        origin: named in errors.

    Raises:
        ValueError: what is wrong, and where.
    """
    try:
        file = KeypointFile.model_validate(value)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise ValueError(f"{origin}: {problems}. The form is in training/tasks/keypoint_sets.py") from None
    names = file.names
    flip, sides = np.arange(len(names)), np.zeros(len(names), np.int64)
    paired: set[int] = set()
    for pair in file.flip_pairs:
        left, right = _indices(pair, names, f"{origin}: flip_pairs").tolist()
        if left == right or paired & {left, right}:
            raise ValueError(
                f"{origin}: flip_pairs: the flip is no involution at {pair[0]} and {pair[1]}: a keypoint belongs to "
                "one pair at most, and one that is its own mirror image to none"
            )
        paired |= {left, right}
        flip[left], flip[right] = right, left
        sides[left], sides[right] = LEFT, RIGHT
    if file.flip_pairs or "flip_pairs" not in file.model_fields_set:
        missing_pairs = unpaired(names, paired)
        if missing_pairs:
            yaml_pairs = ", ".join(f"[{left}, {right}]" for left, right in missing_pairs)
            raise ValueError(
                f"{origin}: flip_pairs: {_some([left for left, _ in missing_pairs])} and the same of the right are in "
                f"no pair, so that mirrored pictures would be labelled wrongly: add {yaml_pairs}, the person's left "
                "first; or flip_pairs: [] if a mirror image swaps none of them"
            )
    if isinstance(file.sigmas, dict):
        _indices(tuple(file.sigmas), names, f"{origin}: sigmas")
        missing = [name for name in names if name not in file.sigmas]
        if missing:
            raise ValueError(f"{origin}: sigmas: none given for {_some(missing)}")
        sigmas = np.array([file.sigmas[name] for name in names])
    else:
        sigmas = (
            np.broadcast_to(file.sigmas, (len(names),)) if isinstance(file.sigmas, float) else np.array(file.sigmas)
        )
    for other, aliases in file.same_as.items():
        _indices(tuple(aliases.values()), names, f"{origin}: same_as {other}")
    return KeypointSet(
        name=file.name,
        names=names,
        flip=flip,
        sigmas=np.array(sigmas, np.float64),
        links=np.array([_indices(link, names, f"{origin}: links") for link in file.links], np.int64).reshape(-1, 2),
        sides=sides,
        parts={part: _indices(members, names, f"{origin}: parts {part}") for part, members in file.parts.items()},
        upper=_indices(file.upper, names, f"{origin}: upper"),
        lower=_indices(file.lower, names, f"{origin}: lower"),
        same_as=file.same_as,
    )


@lru_cache(maxsize=16)
def keypoint_set(name: str) -> KeypointSet:
    """A set by its name (`BUILT_IN`), or from a user's YAML or JSON file by its path.

    Raises:
        ValueError: neither a name nor a file, or a file with an error in it.
    """
    path = _FOLDER / f"{name}.json" if name in BUILT_IN else Path(name)
    if not path.is_file():
        raise ValueError(
            f"keypoint set {name!r}: no such set ({', '.join(BUILT_IN)}) and no such file. Give one of the names or "
            "the path of a YAML file with names, flip_pairs, sigmas and links"
        )
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a YAML file: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: a keypoint set is a mapping with names, flip_pairs, sigmas and links")
    return parse_keypoint_set(value, path.name if name in BUILT_IN else str(path))


def correspondence(source: KeypointSet, target: KeypointSet, same_names_only: bool = False) -> Indices:
    """Which keypoint of one set is each of another's.

    Args:
        source: what there is.
        target: what is wanted.
        same_names_only: leave out pairs that only `same_as` of either file knows.

    Returns:
        int64 [len(target)], indices into source, -1 where it has no such point.
    """
    place = {name: index for index, name in enumerate(source.names)}
    result = np.array([place.get(name, -1) for name in target.names], np.int64)
    if same_names_only or source.name == target.name:
        return result
    ours = source.same_as.get(target.name, {})
    theirs = {own: other for other, own in target.same_as.get(source.name, {}).items()}
    for index, name in enumerate(target.names):
        if result[index] < 0:
            result[index] = place.get(ours.get(name, theirs.get(name, "")), -1)
    return result


def convert(
    keypoints: npt.NDArray[np.floating], source: KeypointSet, target: KeypointSet, same_names_only: bool = False
) -> npt.NDArray[np.floating]:
    """Keypoints [..., K, C] of one set as those of another [..., K', C], dtype kept; 0 where there is none.

    With C = 3 (x, y, visibility or score) a missing point is one that is not labelled.

    Raises:
        ValueError: K is not the source's.
    """
    keypoints = np.asarray(keypoints)
    if keypoints.ndim < 2 or keypoints.shape[-2] != len(source):
        raise ValueError(f"keypoints is {keypoints.shape}: {source.name} has [..., {len(source)}, C]")
    places = correspondence(source, target, same_names_only)
    return np.where((places >= 0)[:, None], keypoints[..., places, :], 0).astype(keypoints.dtype)


def _indices(names: Sequence[str], known: Sequence[str], origin: str) -> Indices:
    place = {name: index for index, name in enumerate(known)}
    unknown = [name for name in names if name not in place]
    if unknown:
        raise ValueError(f"{origin}: no keypoint named {_some(unknown)}; the names are {_some(list(known))}")
    return np.array([place[name] for name in names], np.int64)


def _some(values: Sequence[str], limit: int = 6) -> str:
    return ", ".join(values[:limit]) + (f" and {len(values) - limit} more" if len(values) > limit else "")
