"""Class sets of body-part segmentation: the released 29 classes, or a user's own."""

from __future__ import annotations

from pydantic import Field, model_validator

from curation.config import Config
from training.tasks.mirror_names import unpaired

# Name, and weight in the cross entropy, by class id (released configuration).
_RELEASED = (
    *(("Background", 0.1), ("Apparel", 10.0), ("Eyeglass", 10.0), ("Face_Neck", 3.0), ("Hair", 2.0)),
    *(("Left_Foot", 4.0), ("Left_Hand", 4.0), ("Left_Lower_Arm", 2.0), ("Left_Lower_Leg", 2.0), ("Left_Shoe", 6.0)),
    *(("Left_Sock", 10.0), ("Left_Upper_Arm", 3.0), ("Left_Upper_Leg", 3.0), ("Lower_Clothing", 1.0)),
    *(("Right_Foot", 4.0), ("Right_Hand", 4.0), ("Right_Lower_Arm", 2.0), ("Right_Lower_Leg", 2.0)),
    *(("Right_Shoe", 6.0), ("Right_Sock", 10.0), ("Right_Upper_Arm", 3.0), ("Right_Upper_Leg", 3.0), ("Torso", 1.0)),
    *(("Upper_Clothing", 1.0), ("Lower_Lip", 10.0), ("Upper_Lip", 10.0), ("Lower_Teeth", 10.0), ("Upper_Teeth", 10.0)),
    ("Tongue", 10.0),
)
RELEASED_NAMES = tuple(name for name, _ in _RELEASED)
RELEASED_WEIGHTS = tuple(weight for _, weight in _RELEASED)
RELEASED_FLIP_PAIRS = tuple((left, left + 9) for left in range(5, 13))


class PartClasses(Config):
    """Names, mirror images and loss weights of the classes; without values, the 29 released ones.

    With names of your own, flip pairs and weights start from none and 1: give the pairs that a mirror swaps. Names that
    say left and right without any pairs given are an error; `flip_pairs: []` says that there are none.
    """

    names: tuple[str, ...] = Field(RELEASED_NAMES, min_length=2, max_length=255, description="by class id, from 0")
    flip_pairs: tuple[tuple[int, int], ...] = Field(
        (), description="ids that a mirror image swaps, e.g. left and right hand; the others mirror to themselves"
    )
    weights: tuple[float, ...] = Field((), description="weight of each class in the cross entropy; none given = all 1")
    background: int | None = Field(0, ge=0, description="class that is no part of a person; Dice leaves it out")

    @model_validator(mode="before")
    @classmethod
    def _released_when_unnamed(cls, values: object) -> object:
        """Pairs and weights of the release belong to its names only: with other names they would be silently wrong."""
        if not isinstance(values, dict) or tuple(values.get("names", RELEASED_NAMES)) != RELEASED_NAMES:
            return values
        return {"flip_pairs": RELEASED_FLIP_PAIRS, "weights": RELEASED_WEIGHTS} | values

    @model_validator(mode="after")
    def _consistent(self) -> PartClasses:
        count = len(self.names)
        if len(set(self.names)) < count:
            twice = sorted({name for name in self.names if self.names.count(name) > 1})
            raise ValueError(f"names holds {', '.join(twice)} more than once; give each class its own name")
        if self.weights and len(self.weights) != count:
            raise ValueError(f"there are {count} names and {len(self.weights)} weights; give one weight per class")
        if any(weight < 0 for weight in self.weights):
            raise ValueError("a class weight is below 0; give 0 or more")
        if self.background is not None and self.background >= count:
            raise ValueError(f"background is class {self.background}, but ids go from 0 to {count - 1}")
        paired = [index for pair in self.flip_pairs for index in pair]
        if any(not 0 <= index < count for index in paired) or len(set(paired)) < len(paired):
            raise ValueError(
                f"flip_pairs is {self.flip_pairs}; give pairs of two different ids from 0 to {count - 1}, each id once"
            )
        if "flip_pairs" not in self.model_fields_set and (swapped := unpaired(self.names, ())):
            ids = ", ".join(f"[{self.names.index(left)}, {self.names.index(right)}]" for left, right in swapped)
            raise ValueError(
                f"{swapped[0][0]} and {swapped[0][1]} are mirror images by their names, and flip_pairs is not given: "
                f"mirrored pictures would be labelled wrongly: give flip_pairs: [{ids}], or [] if a mirror image "
                "swaps none"
            )
        return self

    def __len__(self) -> int:
        return len(self.names)

    @property
    def flip(self) -> tuple[int, ...]:
        """Id of each class's mirror image, by id; an involution."""
        permutation = list(range(len(self)))
        for first, second in self.flip_pairs:
            permutation[first], permutation[second] = second, first
        return tuple(permutation)

    @property
    def class_weights(self) -> tuple[float, ...]:
        """Weight of each class in the cross entropy, by id."""
        return self.weights or (1.0,) * len(self)
