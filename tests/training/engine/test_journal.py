"""What rank 0 writes down: which steps get a line, rates per image, pictures, and one sequence after a resume."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pipeline.storage import Storage
from tests.fixtures.pretraining import pretrain_config
from training.engine.journal import Journal
from training.pretraining.config import PretrainConfig
from training.pretraining.trainer import run_step_cost
from training.watch.events import read_metrics


def journal_of(config: PretrainConfig, folder: Path | str, first: int = 0, report: Any = None) -> Journal:
    """Of one rank on the CPU."""
    cost = run_step_cost(config)
    return Journal(
        config, Storage(folder), first, 1, torch.device("cpu"), report,
        flops=cost.total_flops, tokens=cost.tokens, draws=config.trains_reconstruction,
    )  # fmt: skip


def keep(journal: Journal, steps: range, value: float = 1.0) -> int:
    """Log steps; returns how often numbers were asked for."""
    asked = 0

    def values() -> Mapping[str, Any]:
        nonlocal asked
        asked += 1
        return {"loss/total": value}

    for step in steps:
        journal.step(step, values)
    return asked


@pytest.mark.parametrize(("every", "logged"), [(1, [0, 1, 2, 3, 4, 5, 6, 7]), (3, [2, 5, 7]), (8, [7]), (100, [7])])
def test_every_so_many_steps_and_the_last_are_logged(tmp_path: Path, every: int, logged: list[int]) -> None:
    told: list[tuple[int, dict[str, Any], bool]] = []
    config = pretrain_config(watch={"every": every})
    journal = journal_of(config, tmp_path, report=lambda step, values, shown: told.append((step, dict(values), shown)))
    assert keep(journal, range(8)) == len(logged)  # numbers cost a wait for the device
    journal.close()
    lines = list(read_metrics(Storage(tmp_path)))
    assert [line["step"] for line in lines] == logged
    tokens = run_step_cost(config).tokens
    assert [(line["images"], line["tokens"]) for line in lines] == [
        (8 * (step + 1), 8 * (step + 1) * tokens) for step in logged
    ]
    assert [step for step, _, shown in told if shown] == logged
    assert [step for step, _, _ in told] == list(range(8))
    assert all(bool(values) is shown for _, values, shown in told)
    assert lines[-1].keys() >= {"speed/images_per_s", "speed/seconds_left", "memory/peak_bytes", "loss/total"}


def test_lines_of_steps_that_are_done_again_are_replaced(tmp_path: Path) -> None:
    config = pretrain_config()
    journal = journal_of(config, tmp_path)
    keep(journal, range(5), value=1.0)
    journal.close()
    again = journal_of(config, tmp_path, first=3)
    keep(again, range(3, 8), value=2.0)
    again.close()
    assert [line["loss/total"] for line in read_metrics(Storage(tmp_path))] == [1, 1, 1, 2, 2, 2, 2, 2]


def test_what_was_logged_before_a_sync_survives_on_an_object_store() -> None:
    storage = Storage("memory://journal-sync")
    journal = journal_of(pretrain_config(), "memory://journal-sync")
    keep(journal, range(2))
    assert [line["step"] for line in read_metrics(storage)] == []
    journal.sync()
    assert [line["step"] for line in read_metrics(storage)] == [0, 1]
    journal.close()


def test_tensorboard_gets_the_same_steps(tmp_path: Path) -> None:
    journal = journal_of(pretrain_config(watch={"tensorboard": True}), tmp_path)
    keep(journal, range(3))
    journal.close()
    files = [path for path in tmp_path.rglob("*tfevents*") if path.is_file()]
    assert len(files) == 1
    assert b"loss/total" in files[0].read_bytes()


@pytest.mark.parametrize(
    ("changes", "drawn"),
    [
        ({"watch": {"pictures_every": 3}}, [2, 5, 7]),
        ({"watch": {"pictures_every": 0}}, []),
        ({"watch": {"pictures_every": 3}, "reconstruction": {"weight": 0}}, []),
    ],
)
def test_when_a_picture_is_drawn(tmp_path: Path, changes: dict[str, Any], drawn: list[int]) -> None:
    journal = journal_of(pretrain_config(**changes), tmp_path)
    assert [step for step in range(8) if journal.wants_picture(step)] == drawn
    journal.close()


def test_a_picture_is_a_file_and_in_tensorboard(tmp_path: Path) -> None:
    journal = journal_of(pretrain_config(watch={"tensorboard": True}), tmp_path)
    journal.picture(6, "reconstruction", np.zeros((5, 7, 3), np.uint8))
    journal.close()
    with Image.open(tmp_path / "pictures" / "step-00000006.png") as picture:
        assert picture.size == (7, 5)
    (file,) = [path for path in tmp_path.rglob("*tfevents*") if path.is_file()]
    assert b"reconstruction" in file.read_bytes()
