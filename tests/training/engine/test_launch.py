"""Training on Ray Train workers that are killed, asked to go, and of another number afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.train.v2.api.exceptions import WorkerGroupError

from pipeline.storage import Storage
from tests.conftest import ROOT, free_port
from tests.fixtures.pretraining import make_corpus, pretrain_config
from training.engine.checkpoint import complete_checkpoints
from training.engine.journal import MESSAGE
from training.engine.launch import cause_of, train
from training.engine.stop import StopSignal
from training.watch.events import read_metrics

STEPS, EVERY = 12, 3


def _workers() -> list[psutil.Process]:
    """The Ray Train workers of the tests' own cluster."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "RayTrainWorker" in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _config(corpus: Path, workers: int, kind: str = "zero3") -> Any:
    return pretrain_config(
        corpus,
        steps=STEPS,
        engine={"kind": kind, "workers": workers, "precision": "float32", "max_failures": 3},
        checkpoint={"every": EVERY},
    )


def _disturb(
    marks: dict[int, int], stop: StopSignal, stop_at: int, told: list[str]
) -> Callable[[int, Mapping[str, Any], bool], None]:
    """A report that sends a signal to a worker at some steps, each once, and wants to stop at another."""
    sent: set[int] = set()

    def report(step: int, values: Mapping[str, Any], shown: bool) -> None:
        if MESSAGE in values:
            told.append(values[MESSAGE])
        for mark, number in marks.items():
            if step >= mark and mark not in sent:
                sent.add(mark)
                os.kill(_workers()[-1].pid, number)
        if step >= stop_at:
            stop.request("the test")

    return report


def test_a_run_survives_what_happens_to_its_workers(ray_cluster: str, tmp_path: Path) -> None:
    """SIGKILL, then SIGTERM to a worker, then the starting process stops; plain torch finishes what two began."""
    corpus = tmp_path / "corpus"
    make_corpus(corpus)
    undisturbed = tmp_path / "undisturbed"
    file = tmp_path / "specification.json"
    file.write_text(
        json.dumps([{"world": 2, "folder": str(undisturbed), "config": _config(corpus, 2).model_dump(mode="json")}])
    )
    reference = subprocess.Popen(
        [sys.executable, "-m", "tests.fixtures.zero_pretrain", str(file), str(free_port())],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    folder, stop = tmp_path / "run", StopSignal()
    marks, told = {4: signal.SIGKILL, 6: signal.SIGTERM}, list[str]()
    outcome = train(_config(corpus, 2), Storage(folder), stop, _disturb(marks, stop, 8, told))
    assert outcome.ended == "stopped"
    assert "the test" in outcome.reason
    assert 8 < outcome.steps < STEPS
    assert [text for text in told if "workers were lost" in text] == [
        f"workers were lost or changed: 2 start, the {count}. time" for count in (2, 3)
    ]
    assert "goes on from step 3 with 2 workers" in told
    assert complete_checkpoints(Storage(folder))[-1].step == outcome.steps

    finished = train(_config(corpus, 1, "single"), Storage(folder), StopSignal())
    assert (finished.ended, finished.steps) == ("finished", STEPS)
    assert reference.wait(timeout=120) == 0
    ours, theirs = (list(read_metrics(Storage(place))) for place in (folder, undisturbed))
    assert [record["step"] for record in ours] == list(range(STEPS))
    losses = [record["loss/total"] for record in ours]
    expected = [record["loss/total"] for record in theirs]
    # Two workers: the very numbers. The one process after them adds up in another order.
    assert losses[: outcome.steps] == expected[: outcome.steps]
    assert losses == pytest.approx(expected, abs=2e-4)


def test_the_error_of_a_worker_is_what_is_said() -> None:
    failure = WorkerGroupError("2 workers failed", {1: FileNotFoundError("line one\nthere is no weights.safetensors")})
    assert cause_of(failure) == "FileNotFoundError: line one there is no weights.safetensors"
    assert cause_of(RuntimeError("no more restarts")) == "no more restarts"
