"""When the pretraining of the demo passes: it starts where theory says, and gets below what does not learn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pipeline.pretrain_report import ENTROPY

RECONSTRUCTION, DISTILLATION = "loss/reconstruction", "loss/distillation"
START_RECONSTRUCTION = (0.8, 1.4)
"""The error of a guess that knows nothing of patches of unit variance is near 1."""
END_RECONSTRUCTION = 0.95
END_DISTILLATION = 0.15
"""Nats below ln K that the cross-entropy has to reach: a teacher that stays uniform leaves it at ln K."""
START_TOLERANCE = 0.1


def failures(numbers: Mapping[str, Any], prototypes: int) -> list[str]:
    """What is wrong, one sentence each; empty when it passes.

    Args:
        numbers: of `pipeline.pretrain_report.training_numbers`.
        prototypes: K.
    """
    first, last, result = numbers["first"], numbers["last"], []
    low, high = START_RECONSTRUCTION
    if not low <= first[RECONSTRUCTION] <= high:
        result.append(f"reconstruction starts at {first[RECONSTRUCTION]:.3f}, not between {low} and {high}")
    if not last[RECONSTRUCTION] < END_RECONSTRUCTION:
        result.append(f"reconstruction ends at {last[RECONSTRUCTION]:.3f}, not below {END_RECONSTRUCTION}")
    uniform = math.log(prototypes)
    if not abs(first[DISTILLATION] - uniform) < START_TOLERANCE:
        result.append(f"cross-entropy starts at {first[DISTILLATION]:.3f}, not near ln K = {uniform:.3f}")
    if not last[DISTILLATION] < uniform - END_DISTILLATION:
        result.append(f"cross-entropy ends at {last[DISTILLATION]:.3f}, not below {uniform - END_DISTILLATION:.3f}")
    if not 0.5 < last[ENTROPY] < uniform - 0.05:
        result.append(
            f"the teacher's entropy is {last[ENTROPY]:.3f} nats at the end: near 0 it names one prototype, at ln K none"
        )
    return result
