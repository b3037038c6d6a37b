"""The probability of sexual or otherwise unsafe content, by a head on the CLIP embedding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from curation.records import Batch
from curation.scorers.base import Scorer, ScorerConfig, Weights
from curation.scorers.heads import Head, head_file, head_weights, load_head, require_width

if TYPE_CHECKING:
    from curation.scorers.embedding import AnyEmbeddingConfig

_WHAT = "the NSFW head (scorers.nsfw.path)"
_HOW = (
    "Get a head for your embedding model (LAION's CLIP-based-NSFW-Detector, its layers saved as a state dict in "
    ".safetensors), or leave the nsfw scorer out."
)


class NsfwConfig(ScorerConfig):
    """Settings of the NSFW head."""

    kind: Literal["clip_head"] = "clip_head"
    path: str = Field("weights/nsfw_vit_l_14.safetensors", description="state dict of linear layers, one output")
    activation: Literal["none", "relu"] = Field("relu", description="between the layers")
    sigmoid: bool = Field(True, description="the head's last value is a logit; false if it is a probability already")
    inverted: bool = Field(False, description="the head gives the probability of *safe* content")

    def identity(self) -> dict[str, Any]:
        return {name: value for name, value in super().identity().items() if name != "path"}


class NsfwScorer(Scorer):
    """`nsfw` float32, 0 (safe) to 1, from `embedding`; null where there is no embedding. Uses no pixels.

    The head is a chain of linear layers, as LAION's CLIP-based-NSFW-Detector (768 -> 64 -> 512 -> 256 -> 1 with ReLU,
    inputs normalised by stored mean and variance) or a single linear layer. About 5,000 rows a second on one core.
    """

    name = "nsfw"
    columns: ClassVar[Mapping[str, pa.DataType]] = {"nsfw": pa.float32()}
    needs = ("embedding",)
    needs_pixels = False
    version = 1

    def __init__(self, config: NsfwConfig) -> None:
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
        return {"nsfw": [self._probability(self._head.scalar(entry)) for entry in batch.columns["embedding"]]}

    def _probability(self, value: float | None) -> float | None:
        if value is None:
            return None
        if self.config.sigmoid:
            value = 1 / (1 + math.exp(-value)) if value >= 0 else 1 - 1 / (1 + math.exp(value))
        value = min(max(value, 0.0), 1.0)
        return 1 - value if self.config.inverted else value
