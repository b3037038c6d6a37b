"""Realism from ImageNet classes: the share of probability that falls on classes of flat, drawn or printed things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator

from curation.records import Batch
from curation.scorers.base import Scorer, ScorerConfig, Weights
from curation.scorers.embedding_efficientnet import WIDTH, weights_file
from curation.scorers.vectors import read_embedding
from curation.scorers.weights import hashed, load_tensors

if TYPE_CHECKING:
    from curation.scorers.embedding import AnyEmbeddingConfig

GRAPHIC_CLASSES: dict[int, str] = {
    409: "analog clock",
    419: "band aid",
    446: "binder",
    530: "digital clock",
    549: "envelope",
    611: "jigsaw puzzle",
    664: "monitor",
    688: "oscilloscope",
    692: "packet",
    714: "pencil box",
    723: "pinwheel",
    769: "ruler",
    782: "screen",
    787: "shield",
    844: "switch",
    892: "wall clock",
    916: "web site",
    917: "comic book",
    918: "crossword puzzle",
    921: "book jacket",
    922: "menu",
}
"""ImageNet-1k index -> name. Printed matter and screens, and plain flat things with hard outlines, to which the network
assigns charts, text pages, flat shapes and simple cartoons."""


class ImageNetClassesConfig(ScorerConfig):
    """Settings of the embedded realism scorer."""

    kind: Literal["imagenet_classes"] = "imagenet_classes"
    classes: tuple[int, ...] = Field(
        tuple(GRAPHIC_CLASSES), description="ImageNet-1k indices that count as graphic, a subset of the built-in list"
    )

    @field_validator("classes")
    @classmethod
    def _known(cls, classes: tuple[int, ...]) -> tuple[int, ...]:
        unknown = sorted(set(classes) - set(GRAPHIC_CLASSES))
        if unknown or not classes:
            raise ValueError(f"classes must be some of {sorted(GRAPHIC_CLASSES)}, not {unknown or 'empty'}")
        return tuple(sorted(set(classes)))


class ImageNetClassesRealism(Scorer):
    """`realism` = 1 - softmax mass of the graphic classes, from EfficientNet-Lite0's classifier on its own embedding.

    A weak cue that costs nothing, not a detector of art: paintings and renders that look like photographs pass.
    Measured on variants (crops, blur, dark, grey, quarter size) of pictures that ship with Python packages, the classes
    having been chosen on such pictures, so that other pools will separate less well:

    | pictures | variants | lowest | 5 % | median | highest |
    |---|---|---|---|---|---|
    | 5 photographs with people | 45 | 0.97 | 0.98 | 0.99 | 1.00 |
    | 15 photographs | 135 | 0.73 | 0.93 | 0.99 | 1.00 |
    | 18 charts, text pages, drawn shapes, cartoons, logos | 162 | 0.13 | 0.22 | 0.67 | 0.96 |

    A limit of 0.94 catches 98 % of the graphics, loses no picture of people and 6 % of all photographs (close pictures
    of coins, a clock and a brick wall). About 2,000 rows a second on one core.

    Needs `embedding` and `embedding_norm` of kind `efficientnet_lite0`; uses no pixels.
    """

    name = "realism"
    columns: ClassVar[Mapping[str, pa.DataType]] = {"realism": pa.float32(), "realism_graphic": pa.string()}
    needs = ("embedding", "embedding_norm")
    needs_pixels = False
    version = 1

    def check(self) -> list[Weights]:
        return [hashed(weights_file())]

    def check_embedding(self, embedding: AnyEmbeddingConfig) -> None:
        """Raises ValueError when the embedding is not EfficientNet-Lite0's."""
        if embedding.kind != "efficientnet_lite0":
            raise ValueError(
                f"scorers.realism kind imagenet_classes needs scorers.embedding kind efficientnet_lite0, not "
                f"{embedding.kind}; with open_clip use kind clip_prompts"
            )

    def setup(self) -> None:
        tensors = load_tensors(weights_file())
        self._weight = tensors["_fc.weight"].double().numpy()
        self._bias = tensors["_fc.bias"].double().numpy()
        self._classes = np.array(self.config.classes)

    def score(self, batch: Batch) -> dict[str, Sequence[Any]]:
        realism: list[float | None] = []
        graphic: list[str | None] = []
        for entry, norm in zip(batch.columns["embedding"], batch.columns["embedding_norm"], strict=True):
            vector = read_embedding(entry, WIDTH)
            if vector is None or norm is None:
                realism.append(None)
                graphic.append(None)
                continue
            logits = self._weight @ (vector * float(norm)) + self._bias
            odds = np.exp(logits - logits.max())
            masses = odds[self._classes] / odds.sum()
            realism.append(float(np.clip(1 - masses.sum(), 0, 1)))
            graphic.append(GRAPHIC_CLASSES[int(self._classes[masses.argmax()])])
        return {"realism": realism, "realism_graphic": graphic}
