"""ZeRO-3 on real gloo processes: the same losses as plain torch, a teacher that moves, any number of ranks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.storage import Storage
from tests.conftest import ROOT, free_port
from tests.fixtures.pretraining import make_corpus, pretrain_config
from training.engine.checkpoint import complete_checkpoints, load_whole
from training.engine.launch import train_here
from training.engine.stop import StopSignal
from training.watch.events import read_metrics

STEPS = 6
SKIPS = {"every": 1, "guard": {"on_spike": "skip", "spike_factor": 1.0001, "warmup": 0, "window": 1}}
ACROSS = {"koleo": {"group": 4}, "distillation": {"centring": "sinkhorn_knopp"}}
RECOMPUTE = {"activation_checkpointing": True}
SAVE_ALL = {"checkpoint": {"every": 1, "keep_last": 50}}


def _config(corpus: Path, kind: str, workers: int = 1, engine: dict[str, Any] | None = None, **more: Any) -> Any:
    settings = {"kind": kind, "workers": workers, "precision": "float32"} | (engine or {})
    return pretrain_config(corpus, steps=STEPS, engine=settings, **more)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of finished runs, of ZeRO-3 and of plain torch."""
    base = tmp_path_factory.mktemp("zero")
    corpus = base / "corpus"
    make_corpus(corpus)

    def run(world: int, folder: str, until: int | None = None, **more: Any) -> dict[str, Any]:
        config = _config(corpus, "zero3", world, **more).model_dump(mode="json")
        return {"world": world, "folder": str(base / folder), "config": config, "until": until}

    specification = [
        run(2, "two", **SAVE_ALL),
        run(2, "changing", 2, engine=RECOMPUTE),
        run(1, "changing", 4, engine=RECOMPUTE),
        run(2, "changing", engine=RECOMPUTE),
        run(2, "bfloat16", engine={"precision": "bfloat16"}, ema={"momentum": 0.9999}, **SAVE_ALL),
        run(2, "across", **ACROSS, watch=SKIPS),
    ]
    file = base / "specification.json"
    file.write_text(json.dumps(specification))
    done = subprocess.run(
        [sys.executable, "-m", "tests.fixtures.zero_pretrain", str(file), str(free_port())],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]

    def single(folder: str, **more: Any) -> None:
        train_here(_config(corpus, "single", **more), Storage(base / folder), StopSignal())

    single("single")
    single("single across", **ACROSS, watch=SKIPS, batch={"size": 8, "micro": 4})
    # Plain torch goes on from what two ranks wrote.
    third = Path("checkpoints", "step-000000003")
    shutil.copytree(base / "two" / third, base / "handed over" / third)
    single("handed over")
    return base


def _losses(folder: Path) -> list[float]:
    return [record["loss/total"] for record in read_metrics(Storage(folder))]


def test_two_ranks_have_the_losses_of_one_process(runs: Path) -> None:
    two, single = _losses(runs / "two"), _losses(runs / "single")
    assert len(two) == STEPS
    # Measured: 4e-8 at the first step, 2e-5 at the sixth: other orders of sums, amplified by training.
    assert two[0] == pytest.approx(single[0], abs=1e-6)
    assert two == pytest.approx(single, abs=2e-4)


def test_other_numbers_of_ranks_go_on_with_the_same_batches(runs: Path) -> None:
    """Two ranks, then one, then two again; they also compute activations twice, which changes nothing."""
    changing, two = _losses(runs / "changing"), _losses(runs / "two")
    assert changing[:2] == two[:2]
    assert changing == pytest.approx(two, abs=5e-5)


def test_plain_torch_goes_on_from_a_checkpoint_of_zero3(runs: Path) -> None:
    assert _losses(runs / "handed over") == pytest.approx(_losses(runs / "two")[3:], abs=2e-4)


@pytest.mark.parametrize(("name", "momentum"), [("two", 0.992), ("bfloat16", 0.9999)])
def test_the_teacher_is_the_moving_average_of_the_student(runs: Path, name: str, momentum: float) -> None:
    """Against float64 arithmetic over the student's masters of every step; each of 2 ranks holds a part of both."""
    storage = Storage(runs / name)
    checkpoints = complete_checkpoints(storage)
    assert [item.step for item in checkpoints] == list(range(1, STEPS + 1))
    teacher = {key: value.double() for key, value in load_whole(storage, checkpoints[0], "teacher/").items()}
    start = dict(teacher)
    assert set(teacher) >= {"backbone.cls_token", "projection.last_layer.weight"}
    for checkpoint in checkpoints[1:]:
        student = load_whole(storage, checkpoint, "student/")
        teacher = {key: momentum * old + (1 - momentum) * student[key].double() for key, old in teacher.items()}
        stored = load_whole(storage, checkpoint, "teacher/")
        for key, expected in teacher.items():
            assert torch.allclose(stored[key].double(), expected, rtol=1e-5, atol=1e-7), key
    assert all((teacher[key] != start[key]).any() for key in start)


def test_bfloat16_stays_near(runs: Path) -> None:
    assert _losses(runs / "bfloat16")[0] == pytest.approx(_losses(runs / "single")[0], rel=5e-3)
    assert _losses(runs / "bfloat16") == pytest.approx(_losses(runs / "single"), rel=0.1)


def test_sums_over_ranks_and_steps_that_the_guard_skips(runs: Path) -> None:
    """Sinkhorn-Knopp and KoLeo over both ranks' rows equal those of one process that has them all; a step that is
    skipped leaves everything as it was, on both ranks."""
    across, single = (list(read_metrics(Storage(runs / name))) for name in ("across", "single across"))
    losses = [record["loss/total"] for record in across]
    assert losses[0] == pytest.approx(single[0]["loss/total"], abs=1e-5)
    assert losses == pytest.approx([record["loss/total"] for record in single], abs=1e-3)
    skipped = [record["optimiser/skipped"] for record in across]
    assert skipped[-1] > 0
    assert skipped == [record["optimiser/skipped"] for record in single]
    step = next(step for step in range(1, STEPS) if skipped[step] > skipped[step - 1])
    incident = json.loads((runs / "across" / "incidents" / f"step-{step}.json").read_text())
    assert len({sample["id"] for sample in incident["samples"]}) == 8
