"""A step of pretraining: where its time goes, what ZeRO-3 costs, and how it grows.

- the parts of a step, as a run's log has them, on drawn people;
- ZeRO-3 in one and in two processes against plain torch in one, at the same global batch and one thread a process; the
  limit of two processes is twice what one reaches;
- time against FLOPs of the step (`training.watch.step_cost`) for 1, 2 and 4 times the tokens of a picture, the batch,
  and for wider and deeper models. A ratio of 1 is growth as that of the arithmetic; small sizes pay what does not grow,
  and are below it.

Small models in float32 on CPUs: shares and ratios of a GPU differ.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from eval.benchmarks.common import Figure, Rate, Report, alternate, compare, note, parser, scratch
from eval.benchmarks.pretrain_ranks import PLAIN, Stepper, measure, small_config
from eval.studies.objectives import export_people
from pipeline.storage import Storage
from training.engine.launch import train_here
from training.engine.single import SingleProcess
from training.engine.stop import StopSignal
from training.pretraining.config import PretrainConfig
from training.pretraining.trainer import run_step_cost

WARM = 2
GROWTH_GOAL = 1.25
"""Most by which time may grow beyond FLOPs (our choice)."""


def split(report: Report, folder: Path, steps: int) -> None:
    """Shares of a step's time of a run by the engine, its loader in the training process; the median step counts."""
    shards = export_people(folder / "shards", 64)
    config = small_config(
        data={"corpora": [{"path": str(shards)}], "workers": 0},
        watch={"every": 1, "tensorboard": False, "pictures_every": 0},
        checkpoint={"every": 1000, "background": False},
    ).model_copy(update={"steps": WARM + steps})
    told: list[tuple[float, Mapping[str, Any]]] = []
    train_here(
        config,
        Storage(folder / "run"),
        StopSignal(),
        lambda step, values, shown: told.append((time.perf_counter(), values)),
    )
    seconds = [after[0] - before[0] for before, after in zip(told[WARM - 1 :], told[WARM:], strict=False)]
    laps = [values for _, values in told[WARM:]]
    names = sorted({name for lap in laps for name in lap if name.startswith("time/")})
    detail = {name.removeprefix("time/"): statistics.median(lap.get(name, 0.0) for lap in laps) for name in names}
    shape = f"{config.batch.size} pictures of {config.views.global_size[0]}x{config.views.global_size[1]}"
    report(Figure(f"step of {shape}, shares of its time", statistics.median(seconds), "s", detail=detail))


def ranks(report: Report, rounds: int, steps: int) -> None:
    """ZeRO-3 against plain torch."""
    config = small_config()
    sides = [partial(measure, config, processes, steps) for processes in (PLAIN, 1, 2)]
    note("starting processes")
    plain, one, two = alternate(rounds, *sides)
    title = f"ZeRO-3, batch {config.batch.size}"
    report(compare(f"{title}, 1 process, against plain torch", "images/s", one, plain))
    double = [Rate(rate.rows, rate.seconds / 2, rate.cpu_seconds) for rate in plain]
    report(compare(f"{title}, 2 processes, against twice plain torch", "images/s", two, double))


def variants() -> dict[str, list[tuple[str, PretrainConfig]]]:
    """What grows: by name, the sizes from the smallest on."""
    base = small_config()
    return {
        "tokens of a picture": [
            ("x1", base),
            ("x2", small_config(views={"global_size": (128, 192), "local_size": (64, 96)})),
            ("x4", small_config(views={"global_size": (256, 192), "local_size": (128, 96)})),
        ],
        "batch": [(f"x{k}", small_config(batch={"size": 8 * k, "micro": 8 * k})) for k in (1, 2, 4)],
        "width": [(f"x{k}", small_config(model={"overrides": {"width": 128 * k, "heads": 4 * k}})) for k in (1, 2, 3)],
        "depth": [(f"x{k}", small_config(model={"overrides": {"depth": 4 * k}})) for k in (1, 2, 4)],
    }


def growth(report: Report, name: str, sizes: Sequence[tuple[str, PretrainConfig]], rounds: int, steps: int) -> None:
    """Time of a step, without loading, against its FLOPs, both as multiples of the smallest size's."""
    steppers = [Stepper(config, SingleProcess(config)) for _, config in sizes]
    for stepper in steppers:
        stepper.step()
    rates = alternate(rounds, *(partial(stepper.rate, steps) for stepper in steppers))
    flops = [run_step_cost(config).total_flops * config.batch.size for _, config in sizes]
    for (label, _), of_size, work in zip(sizes[1:], rates[1:], flops[1:], strict=True):
        grown = [large.seconds / small.seconds for large, small in zip(of_size, rates[0], strict=True)]
        expected = work / flops[0]
        ratios = [value / expected for value in grown]
        ratio = statistics.median(ratios)
        cpu = [large.cpu_seconds / small.cpu_seconds for large, small in zip(of_size, rates[0], strict=True)]
        detail = {
            "cpu ratio": statistics.median(cpu) / expected,
            "s a step": statistics.median(rate.seconds for rate in of_size) / steps,
            "GFLOP/s": work * steps / statistics.median(rate.seconds for rate in of_size) / 1e9,
            "GFLOP/s of x1": flops[0] * steps / statistics.median(rate.seconds for rate in rates[0]) / 1e9,
        }
        report(
            Figure(
                f"{name} {label}, time against FLOPs",
                statistics.median(grown),
                "times x1",
                expected,
                ratio,
                f"at most {GROWTH_GOAL}",
                ratio <= GROWTH_GOAL,
                (min(ratios), max(ratios)),
                detail,
            )
        )


def main() -> None:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--steps", type=int, default=3, help="steps of a round")
    arguments.add_argument(
        "--only", nargs="+", choices=["split", "ranks", "growth"], default=["split", "ranks", "growth"]
    )
    given = arguments.parse_args()
    torch.set_num_threads(1)
    report = Report(given.json)
    if "split" in given.only:
        with scratch(given.data) as folder:
            split(report, folder, 4 * given.steps)
    if "ranks" in given.only:
        ranks(report, given.rounds, 2 * given.steps)
    if "growth" in given.only:
        for name, sizes in variants().items():
            growth(report, name, sizes, given.rounds, given.steps)


if __name__ == "__main__":
    main()
