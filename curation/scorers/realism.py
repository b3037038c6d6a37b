"""How likely a picture is a photograph, and which kind of graphic it is most like. Both kinds use the embedding only.

Columns, the same for every kind:
    realism: float32, 0 (graphic) to 1 (photograph); null where there is no embedding.
    realism_graphic: string, the graphic class or prompt that fits best, whatever the value of `realism`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from curation.scorers.base import Scorer
from curation.scorers.realism_clip import ClipPromptsConfig, ClipPromptsRealism
from curation.scorers.realism_imagenet import ImageNetClassesConfig, ImageNetClassesRealism

AnyRealismConfig = Annotated[ImageNetClassesConfig | ClipPromptsConfig, Field(discriminator="kind")]
"""The realism scorer's configuration, chosen by `kind`."""

SCORERS: dict[str, type[Scorer]] = {"imagenet_classes": ImageNetClassesRealism, "clip_prompts": ClipPromptsRealism}
"""`kind` -> scorer class."""


def build(config: ImageNetClassesConfig | ClipPromptsConfig) -> Scorer:
    """The scorer for a configuration."""
    return SCORERS[config.kind](config)
