"""How good a picture looks: the LAION predictor on CLIP embeddings, or a formula on the screen's columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from curation.records import Batch
from curation.scorers.base import Scorer, ScorerConfig, Weights
from curation.scorers.heads import Head, head_file, head_weights, load_head, require_width

if TYPE_CHECKING:
    from curation.scorers.embedding import AnyEmbeddingConfig

_WHAT = "the aesthetic head (scorers.aesthetic.path)"
_HOW = (
    "Get sac+logos+ava1-l14-linearMSE.pth from github.com/christophschuhmann/improved-aesthetic-predictor (for "
    "OpenAI's ViT-L/14), or use kind photographic, which needs no weights."
)
QUALITY_COLUMNS = (
    "sharpness",
    "brightness",
    "contrast",
    "entropy",
    "dark_share",
    "bright_share",
    "colourfulness",
)


class LaionAestheticConfig(ScorerConfig):
    """Settings of the LAION aesthetic predictor."""

    kind: Literal["laion"] = "laion"
    path: str = Field(
        "weights/sac+logos+ava1-l14-linearMSE.pth",
        description="state dict of the head, .safetensors, .pth, .pt or .bin",
    )
    activation: Literal["none", "relu"] = Field(
        "none", description="between the layers; the published linearMSE heads have none, the reluMSE one has relu"
    )

    def identity(self) -> dict[str, Any]:
        return {name: value for name, value in super().identity().items() if name != "path"}


class PhotographicConfig(ScorerConfig):
    """Settings of photographic quality."""

    kind: Literal["photographic"] = "photographic"
    batch_size: int = Field(256, ge=1, description="largest number of rows in one call")


AnyAestheticConfig = Annotated[PhotographicConfig | LaionAestheticConfig, Field(discriminator="kind")]
"""The aesthetic scorer's configuration, chosen by `kind`. The two kinds have different scales."""


class LaionAesthetic(Scorer):
    """`aesthetic` float32 by a LAION head on the CLIP embedding; null where there is no embedding. Uses no pixels.

    The scale is that of the training ratings, 1 to 10 (not clipped). Of LAION-2B-en, 1.2 of 2.3 billion pictures have
    at least 4.5, 600 million at least 5, 12 million at least 6 (LAION-Aesthetics v2). The head is linear, or the chain
    768 -> 1024 -> 128 -> 64 -> 16 -> 1 of "improved-aesthetic-predictor", which has no activations and is multiplied
    out into one layer. The embedding must be of the model that the head was trained on (OpenAI ViT-L/14): the width is
    checked, the model cannot be.
    """

    name = "aesthetic"
    columns: ClassVar[Mapping[str, pa.DataType]] = {"aesthetic": pa.float32()}
    needs = ("embedding",)
    needs_pixels = False
    version = 1

    def __init__(self, config: LaionAestheticConfig) -> None:
        super().__init__(config)
        self._head: Head | None = None

    def check(self) -> list[Weights]:
        return head_weights(self.config.path, _WHAT, _HOW)

    def check_embedding(self, embedding: AnyEmbeddingConfig) -> None:
        """Raises ValueError when the head does not take this embedding's width."""
        file = head_file(self.config.path, _WHAT, _HOW)
        require_width(file, load_head(file, self.config.activation), embedding)

    def setup(self) -> None:
        self._head = load_head(head_file(self.config.path, _WHAT, _HOW), self.config.activation)

    def score(self, batch: Batch) -> dict[str, Sequence[Any]]:
        assert self._head is not None
        return {"aesthetic": [self._head.scalar(entry) for entry in batch.columns["embedding"]]}


class PhotographicAesthetic(Scorer):
    """`aesthetic` float32, 0..1: technical quality from the screen's columns; null where one of them is. No pixels.

    The weighted geometric mean of six factors, each 0..1 and smooth, so that others do not make up for a bad one::

        sharp    = sharpness / (sharpness + 40)               weight 0.35
        entropy  = entropy / 8                                       0.20
        contrast = contrast / (contrast + 0.06)                      0.15
        clipped  = 1 - dark_share - bright_share, at least 0         0.15
        exposure = 1 - |2 brightness - 1|^3                          0.10
        colour   = (colourfulness + 10) / (colourfulness + 20)       0.05

    It rises with sharpness, entropy, contrast and colourfulness, falls with the shares of black and white pixels, and
    is highest at brightness 0.5. The constants were set on photographs that ship with Python packages (scikit-image,
    scikit-learn, matplotlib, ultralytics): good ones score 0.84 to 0.94; blurred by a Gaussian of 2 pixels at 640 px
    0.53 to 0.58, of 4 pixels 0.3; at a tenth of their brightness 0.28 to 0.38; a line chart 0.31; a flat picture 0. It
    knows nothing of composition or content, and takes noise for detail (noise scores 0.95). Not comparable
    with the LAION scale. About 100,000 rows a second.
    """

    name = "aesthetic"
    columns: ClassVar[Mapping[str, pa.DataType]] = {"aesthetic": pa.float32()}
    needs = QUALITY_COLUMNS
    needs_pixels = False
    version = 1

    def score(self, batch: Batch) -> dict[str, Sequence[Any]]:
        rows = zip(*(batch.columns[name] for name in QUALITY_COLUMNS), strict=True)
        return {"aesthetic": [None if None in row else photographic_quality(*row) for row in rows]}


def photographic_quality(
    sharpness: float,
    brightness: float,
    contrast: float,
    entropy: float,
    dark_share: float,
    bright_share: float,
    colourfulness: float,
) -> float:
    """The formula of `PhotographicAesthetic`; arguments in the units of the screen's columns.

    Raises:
        ValueError: an argument is not a finite number.
    """
    factors = (
        (sharpness / (sharpness + 40), 0.35),
        (entropy / 8, 0.20),
        (contrast / (contrast + 0.06), 0.15),
        (1 - dark_share - bright_share, 0.15),
        (1 - abs(2 * brightness - 1) ** 3, 0.10),
        ((colourfulness + 10) / (colourfulness + 20), 0.05),
    )
    if not all(math.isfinite(factor) for factor, _ in factors):
        raise ValueError("a column of the screen is not a finite number")
    return math.prod(min(max(factor, 0.0), 1.0) ** weight for factor, weight in factors)


SCORERS: dict[str, type[Scorer]] = {"photographic": PhotographicAesthetic, "laion": LaionAesthetic}
"""`kind` -> scorer class."""


def build(config: PhotographicConfig | LaionAestheticConfig) -> Scorer:
    """The scorer for a configuration."""
    return SCORERS[config.kind](config)
