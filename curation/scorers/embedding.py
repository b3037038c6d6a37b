"""The embedding of a picture: what the contract is, and which implementations there are.

Columns, the same for every kind:
    embedding: list of float16, L2-normalised. 1280 values for `efficientnet_lite0`; the model's own width for
        `open_clip` (768 for ViT-L/14).
    embedding_norm: float32, the L2 norm before normalising; `embedding * embedding_norm` gives the features back.

Guarantee: on a CPU a picture's embedding does not depend, in any bit, on the batch that it came in, on its place
there, on the batch size or on the worker's number of CPUs: a CPU model is called with one picture on one thread, and
more CPUs work on more pictures (`cpu.py`). Convolution and matrix kernels choose their blocking by batch size and
threads; for EfficientNet-Lite0 batches of 16 gave other bits than batches of 1 to 8, and the best batch size was only
7 % faster than one. Another kind of processor may still give other last bits. On a GPU the batch is padded to a fixed
size, see `embedding_openclip.py`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from curation.scorers.base import Scorer
from curation.scorers.embedding_efficientnet import EfficientNetEmbedding, EfficientNetEmbeddingConfig
from curation.scorers.embedding_openclip import OpenClipEmbedding, OpenClipEmbeddingConfig

AnyEmbeddingConfig = Annotated[
    EfficientNetEmbeddingConfig | OpenClipEmbeddingConfig,
    Field(discriminator="kind"),
]
"""The embedding's configuration, chosen by `kind`."""

SCORERS: dict[str, type[Scorer]] = {
    "efficientnet_lite0": EfficientNetEmbedding,
    "open_clip": OpenClipEmbedding,
}
"""`kind` -> scorer class."""


def build(config: EfficientNetEmbeddingConfig | OpenClipEmbeddingConfig) -> Scorer:
    """The scorer for a configuration."""
    return SCORERS[config.kind](config)


def embedding_width(config: EfficientNetEmbeddingConfig | OpenClipEmbeddingConfig) -> int:
    """How many values an embedding has, without building the model."""
    return config.width()
