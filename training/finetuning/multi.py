"""Several tasks on one backbone: every picture gives each of them an image of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from training.data.keys import generator
from training.data.labelled import Picture
from training.finetuning.tasks import Image, Setup, Targets, TaskSetup


class MultiSetup(Setup):
    """Tasks side by side. Names of targets, terms and figures are "<task>/<name>".

    Args:
        parts: at least one task by name, all of one size.
        weights: factor on the loss of each; 1 where it has none.
    """

    name = "multi"

    def __init__(self, parts: Mapping[str, TaskSetup], weights: Mapping[str, float]) -> None:
        self._parts, self._weights = dict(parts), dict(weights)
        self.size = next(iter(parts.values())).size

    @property
    def parts(self) -> Mapping[str, TaskSetup]:
        return self._parts

    def label(self, task: str, name: str) -> str:
        return f"{task}/{name}"

    def sample(self, picture: Picture, rng: np.random.Generator) -> tuple[Image, Targets] | None:
        """As `Setup` has it; a picture that is no use for one task is none for all."""
        # A key for each, so that what one task draws does not move the others.
        keys = rng.integers(0, 2**63, len(self._parts)).tolist()
        images, targets = [], {}
        for (task, part), key in zip(self._parts.items(), keys, strict=True):
            made = part.sample(picture, generator(key))
            if made is None:
                return None
            images.append(made[0])
            targets.update({self.label(task, name): value for name, value in made[1].items()})
        return np.stack(images), targets

    def loss(self, output: Any, targets: Targets, progress: float = 0.0) -> dict[str, Tensor]:
        """Terms `loss_<task>/<name>`: those of each task on its part of the output, times its weight."""
        losses = {}
        for (task, part), own in zip(self._parts.items(), output, strict=True):
            start = self.label(task, "")
            mine = {name.removeprefix(start): value for name, value in targets.items() if name.startswith(start)}
            for name, value in part.loss(own, mine, progress).items():
                kind, _, rest = name.partition("_")
                weight = self._weights.get(task, 1.0) if kind == "loss" else 1.0
                losses[f"{kind}_{self.label(task, rest)}"] = weight * value
        return losses
