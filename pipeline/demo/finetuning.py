"""The demo's last stage: is the task learnt, and what does the model say of pictures that were curated?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval.baselines import mean_predictor_figures
from pipeline.task_weights import load_task
from training.finetuning.config import FinetuneConfig
from training.finetuning.pictures import open_pictures
from training.prediction.config import InputConfig
from training.prediction.ledger_boxes import LedgerBoxes
from training.prediction.run import Summary, predict_to_folder

FIGURE = "pck_box@0.05"
"""Share of keypoints within 5 % of the box's longer side. AP needs more than minutes of training to leave 0."""
MEAN_PICTURES = 256
"""That the mean predictor is fitted to."""
OVER_UNTRAINED, OVER_MEAN = 3.0, 1.5
"""Times the figure of the untrained model, and of the mean predictor, that the trained one has to reach."""
SHOWN = 24
"""Curated pictures that the model predicts."""


def mean_predictor(config: FinetuneConfig) -> dict[str, float]:
    """The figures of a predictor that does not look at the picture, on the same held-out people."""
    (setup,) = config.setup().parts.values()
    train, held_out = open_pictures(config.data)
    return mean_predictor_figures(setup, train, held_out, MEAN_PICTURES)


def failures(numbers: Mapping[str, Any], mean: Mapping[str, float]) -> list[str]:
    """What is wrong, one sentence each; empty when it passes.

    Args:
        numbers: of `pipeline.finetune_report.finetune_numbers`.
        mean: of `mean_predictor`.
    """
    first, last = (numbers["measured"][which]["figures"][FIGURE] for which in ("first", "last"))
    result = []
    for what, figure, times in (("untrained", first, OVER_UNTRAINED), ("mean predictor's", mean[FIGURE], OVER_MEAN)):
        if not last >= times * figure:
            result.append(f"{FIGURE} ends at {last:.3f}, less than {times:g} times the {what} {figure:.3f}")
    return result


def predict_curated(run: Path, task: str, output: Path) -> Summary:
    """Predictions of curated pictures, people from the ledger, with a page to look at.

    Args:
        run: folder of a run that has curated and fine-tuned the task.
        output: folder for the predictions.
    """
    predictor = load_task(task, str(run)).predictor
    boxes = LedgerBoxes(run)
    about = {"boxes": boxes.fingerprint}
    return predict_to_folder(predictor, run, output, inputs=InputConfig(limit=SHOWN), boxes=boxes, about=about)
