"""The tasks' metrics over held-out pictures, by all ranks together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from training.data.labelled import Picture
from training.engine.parallel import Parallel
from training.finetuning.model import FinetuneModel
from training.finetuning.pictures import Pictures
from training.finetuning.tasks import Setup, stacked
from training.tasks.frames import Frame

Seen = Callable[[int, Picture, Mapping[str, list[Frame]], Mapping[str, Any]], None]
"""Told of every picture of this rank: its place, the picture, and by task its frames and the output for them."""


@torch.no_grad()
def measured(
    model: FinetuneModel, setup: Setup, pictures: Pictures, parallel: Parallel, seen: Seen | None = None
) -> dict[str, float]:
    """Figures over all pictures, alike on every rank; those of several tasks are named "<task>/<figure>".

    Ranks take turns at pictures. Under ZeRO-3 a forward pass needs every rank and every head, so all ranks make as
    many, with an image for each task: crops one at a time, and blank ones where there is nothing left.
    """
    parts = setup.parts
    metrics = {task: part.new_metric() for task, part in parts.items()}
    was_training = model.training
    model.eval()
    blank = np.zeros((*setup.size, 3), np.uint8)
    for first in range(0, len(pictures), parallel.world):
        place = first + parallel.rank
        picture = pictures[place] if place < len(pictures) else None
        crops = {task: [] if picture is None else part.crops(picture) for task, part in parts.items()}
        most = max(parallel.gather_objects(max(map(len, crops.values()))))
        outputs: dict[str, list[Any]] = {task: [] for task in parts}
        for number in range(most):
            shown = [own[number][1] if number < len(own) else blank for own in crops.values()]
            images = torch.from_numpy(np.stack(shown).transpose(0, 3, 1, 2).copy())[None].to(parallel.device)
            for own, output in zip(outputs.values(), model.predict_each(images), strict=True):
                own.append(_on_cpu(output))
        if picture is None:
            continue
        frames = {task: [frame for frame, _ in own] for task, own in crops.items()}
        found = {task: stacked(outputs[task][: len(own)]) for task, own in frames.items() if own}
        for task in found:
            parts[task].add(metrics[task], picture, frames[task], found[task])
        if seen is not None:
            seen(place, picture, frames, found)
    model.train(was_training)
    figures: dict[str, float] = {}
    for task, part in parts.items():
        merged = part.new_metric()
        for state in parallel.gather_objects(metrics[task].state()):
            merged.merge(type(merged).from_state(state))
        figures.update({setup.label(task, name): value for name, value in merged.compute().items()})
    return figures


def _on_cpu(output: Any) -> Any:
    return tuple(part.float().cpu() for part in output) if isinstance(output, tuple) else output.float().cpu()
