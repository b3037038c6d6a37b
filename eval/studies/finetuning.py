"""Is it worth to pretrain before fine-tuning: at toy scale, on synthetic people.

For every task the tiny recipe (`configs/finetune-tiny-TASK.yaml`) runs from random weights and from a pretrained
backbone, with the same pictures, order, augmentation, steps and seeds, by the real engine in this process. Beside them
stand what the model is worth untrained, and the mean predictor (`eval/baselines.py`), which does not look at pictures.

The backbone is pretrained on rendered people without their labels, none of whom any task trains or is measured on: with
reconstruction alone (mae), or with the joint objective of the paper and the teacher of `configs/pretrain-tiny.yaml`
(joint-sharp; see `eval/studies/objectives.py`). Fine-tuning has equal budgets; the seconds of pretraining come on top.

    python -m eval.studies.finetuning --tasks seg normal
    python -m eval.studies.finetuning --tasks seg --pretrained backbone.safetensors   # no pretraining here
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from eval.baselines import mean_predictor_figures
from eval.probe.checkpoints import checkpoint_backbone
from eval.studies.objectives import LOSS_WEIGHTS, Budget, export_jpegs, pretrain_config
from eval.studies.people import jpeg
from pipeline.config import load_config
from pipeline.storage import Storage
from training.data.people import PeopleConfig
from training.engine.checkpoint import complete_checkpoints
from training.engine.launch import train_here
from training.engine.stop import StopSignal
from training.finetuning.config import FinetuneConfig
from training.finetuning.pictures import SyntheticPeople, open_pictures
from training.finetuning.trainer import MEASURED
from training.models import save_weights
from training.pretraining.config import PretrainConfig

TASKS = ("pose", "seg", "normal", "pointmap", "albedo")
RECIPES = Path(__file__).resolve().parents[2] / "configs"
SCRATCH = "scratch"
PRETRAINING = 2**41
"""Key of the first person of pretraining: recipes train from 0 on, and measure from 2^40 on."""
PEOPLE = PeopleConfig(size=(160, 120), people=(1, 1))
"""Pictures of pretraining; views of 128 x 96 are cut out of them."""
SHOWN = {"pose": "pck_box@0.05"}
"""Figures of tasks that stand for the one that counts: a tiny model's average precision of 308 keypoints is 0."""
FITTED = 512
"""Training pictures that the mean predictor is fitted to, at most."""


@dataclass(frozen=True)
class Outcome:
    """A fine-tuning run.

    Attributes:
        task: of `TASKS`.
        start: "scratch", an objective of pretraining, or the name of a file.
        seed: of fine-tuning (and of pretraining).
        metric: the task's figure that counts (or that of `SHOWN`), of which the next three are.
        untrained, mean_predictor, trained: on the held-out pictures; trained after the last step, not the best one.
        steps: of fine-tuning.
        seconds: of fine-tuning, its measuring included.
        figures: all of them, after the last step.
    """

    task: str
    start: str
    seed: int
    metric: str
    untrained: float
    mean_predictor: float
    trained: float
    steps: int
    seconds: float
    figures: dict[str, float]


def recipe(task: str, steps: int | None, seed: int, weights: Path | None) -> FinetuneConfig:
    """The tiny recipe of a task, perhaps shorter, measured at both ends only.

    Args:
        steps: None: as the recipe has it.
        weights: of the backbone; None: random.
    """
    config = load_config(RECIPES / f"finetune-tiny-{task}.yaml", ["output=-"]).finetune
    assert config is not None
    sections: dict[str, Any] = config.model_dump()
    sections["seed"], sections["steps"] = seed, steps or config.steps
    sections["optimiser"]["warmup"] = min(config.optimiser.warmup, sections["steps"] // 2)
    sections["model"]["initial_weights"] = None if weights is None else str(weights)
    sections["checkpoint"] |= {"every": sections["steps"], "background": False}
    sections["watch"] |= {"tensorboard": False, "pictures_every": 0}
    return FinetuneConfig.model_validate(sections)


def export_people(folder: Path, count: int) -> Path:
    """Shards of rendered people without labels, as curation exports them."""
    pictures = SyntheticPeople(PEOPLE, PRETRAINING, count)
    return export_jpegs(folder, count, lambda index: jpeg(pictures[index].image))


def pretrained(
    shards: Path, folder: Path, objective: str, seed: int, budget: Budget, overrides: dict[str, Any]
) -> tuple[Path, float]:
    """Pretrain a backbone of the recipe's sizes; returns the teacher's weights and the seconds it took."""
    sections = pretrain_config(shards, objective, seed, budget).model_dump()
    sections["model"]["overrides"] = overrides
    config, storage = PretrainConfig.model_validate(sections), Storage(folder)
    started = time.perf_counter()
    train_here(config, storage, StopSignal())
    seconds = time.perf_counter() - started
    teacher = checkpoint_backbone(storage, complete_checkpoints(storage)[-1], config.model.backbone_config())
    return save_weights(teacher, folder / "backbone.safetensors"), seconds


def fine_tuned(config: FinetuneConfig, folder: Path, start: str, mean_predictor: dict[str, float]) -> Outcome:
    """Run a recipe to its end."""
    storage = Storage(folder)
    started = time.perf_counter()
    train_here(config, storage, StopSignal())
    seconds = time.perf_counter() - started
    first, last = (storage.read_json(f"{MEASURED}/step-{step:09d}.json") or {} for step in (0, config.steps))
    metric, figures = SHOWN.get(config.task.kind, last["metric"]), last["figures"]
    values = (first["figures"][metric], mean_predictor[metric], figures[metric])
    return Outcome(config.task.kind, start, config.seed, metric, *values, config.steps, seconds, figures)


def study(
    folder: Path,
    tasks: Sequence[str],
    objectives: Sequence[str],
    seeds: Sequence[int],
    steps: int | None,
    budget: Budget,
    given: Path | None = None,
) -> list[Outcome]:
    """Fine-tune every task from scratch, from every objective's backbone and from a given one, with every seed.

    Backbones of equal sizes are pretrained once for all tasks.
    """
    shards = export_people(folder / "shards", budget.pictures) if objectives else folder
    backbones: dict[tuple[Any, ...], Path] = {}
    outcomes = []
    for task in tasks:
        plain = recipe(task, steps, seeds[0], None)
        train, held_out = open_pictures(plain.data)
        mean = mean_predictor_figures(plain.setup().parts[task], train, held_out, FITTED)
        for seed in seeds:
            starts: dict[str, Path | None] = {SCRATCH: None}
            for objective in objectives:
                key = (objective, seed, *sorted(plain.model.overrides.items()))
                if key not in backbones:
                    name = folder / f"pretrain-{len(backbones)}"
                    backbones[key], seconds = pretrained(shards, name, objective, seed, budget, plain.model.overrides)
                    print(f"  pretrained {objective}, seed {seed}: {seconds:.0f} s", file=sys.stderr, flush=True)
                starts[objective] = backbones[key]
            if given is not None:
                starts[given.name] = given
            for start, weights in starts.items():
                config = recipe(task, steps, seed, weights)
                outcomes.append(fine_tuned(config, folder / f"{task}-{start}-{seed}", start, mean))
                print(f"  {_line(outcomes[-1])}", file=sys.stderr, flush=True)
    return outcomes


def _line(outcome: Outcome) -> str:
    return (
        f"{outcome.task} from {outcome.start}, seed {outcome.seed}: {outcome.metric} {outcome.trained:.4f} after "
        f"{outcome.steps} steps, {outcome.seconds:.0f} s (untrained {outcome.untrained:.4f}, mean predictor "
        f"{outcome.mean_predictor:.4f})"
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """Means over seeds, and the range, a line for each task, as Markdown."""
    starts = list(dict.fromkeys(item.start for item in outcomes))
    names = ["task", "figure", "steps", "untrained", "mean predictor", *starts, "seconds of a run"]
    lines = [" | ".join(names), " | ".join("---" for _ in names)]
    for task in dict.fromkeys(item.task for item in outcomes):
        group = [item for item in outcomes if item.task == task]
        first = group[0]
        scratch = [item.untrained for item in group if item.start == SCRATCH]
        cells = [task, first.metric, str(first.steps), _spread(scratch), f"{first.mean_predictor:.4g}"]
        cells += [_spread([item.trained for item in group if item.start == start]) for start in starts]
        lines.append(" | ".join([*cells, f"{statistics.fmean(item.seconds for item in group):.0f}"]))
    return "\n".join(f"| {line} |" for line in lines)


def _spread(values: Sequence[float]) -> str:
    mean = f"{statistics.fmean(values):.4g}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.4g}..{max(values):.4g})"


def main() -> None:
    """Command line."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    arguments.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    arguments.add_argument("--steps", type=int, help="of fine-tuning; default: the recipe's")
    arguments.add_argument("--objectives", nargs="*", choices=list(LOSS_WEIGHTS), help="default: mae, joint-sharp")
    arguments.add_argument("--pretrained", type=Path, help="a backbone's weights, of the recipe's sizes")
    arguments.add_argument("--pretrain-steps", type=int, default=Budget.steps)
    arguments.add_argument("--pretrain-batch", type=int, default=Budget.batch)
    arguments.add_argument("--pretrain-pictures", type=int, default=Budget.pictures)
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--json", type=Path, help="file for every outcome")
    given = arguments.parse_args()
    torch.set_num_threads(given.threads)
    objectives = given.objectives
    if objectives is None:
        objectives = [] if given.pretrained else ["mae", "joint-sharp"]
    budget = Budget(steps=given.pretrain_steps, batch=given.pretrain_batch, pictures=given.pretrain_pictures)
    with tempfile.TemporaryDirectory(prefix="populace-study-") as folder:
        outcomes = study(Path(folder), given.tasks, objectives, given.seeds, given.steps, budget, given.pretrained)
    if given.json:
        given.json.write_text(json.dumps([asdict(item) for item in outcomes], indent=1))
    pretraining = f"pretraining {budget.steps} steps of {budget.batch}, " if objectives else ""
    print(f"{pretraining}seeds {given.seeds}, {given.threads} threads")
    print(table(outcomes))


if __name__ == "__main__":
    main()
