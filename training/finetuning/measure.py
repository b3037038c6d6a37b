"""The task's metric over held-out pictures, by all ranks together."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from training.engine.parallel import Parallel
from training.finetuning.model import FinetuneModel
from training.finetuning.pictures import Pictures
from training.finetuning.tasks import TaskSetup, stacked


@torch.no_grad()
def measured(model: FinetuneModel, setup: TaskSetup, pictures: Pictures, parallel: Parallel) -> dict[str, float]:
    """Figures over all pictures, alike on every rank.

    Ranks take turns at pictures. Under ZeRO-3 a forward pass needs every rank, so all of them make as many: images one
    at a time, and blank ones where a rank has nothing left.
    """
    metric = setup.new_metric()
    was_training = model.training
    model.eval()
    blank = np.zeros((*setup.size, 3), np.uint8)

    def one(image: npt.NDArray[np.uint8]) -> Any:
        batch = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))[None].to(parallel.device)
        output = model.predict(batch)
        return tuple(part.float().cpu() for part in output) if isinstance(output, tuple) else output.float().cpu()

    for first in range(0, len(pictures), parallel.world):
        mine = first + parallel.rank
        picture = pictures[mine] if mine < len(pictures) else None
        crops = [] if picture is None else setup.crops(picture)
        most = max(parallel.gather_objects(len(crops)))
        outputs = [one(crops[number][1] if number < len(crops) else blank) for number in range(most)]
        if picture is not None and crops:
            setup.add(metric, picture, [frame for frame, _ in crops], stacked(outputs[: len(crops)]))
    model.train(was_training)
    merged = setup.new_metric()
    for state in parallel.gather_objects(metric.state()):
        merged.merge(type(merged).from_state(state))
    figures: dict[str, float] = merged.compute()
    return figures
