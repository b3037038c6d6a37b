"""TensorBoard's own reader sees one sequence; without the package a run goes on."""

from __future__ import annotations

import logging
import math
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest

from pipeline.storage import Storage
from training.watch.tensorboard import TensorBoardLog


def read(folder: Path) -> object:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    return accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0}).Reload()


def steps_and_values(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read(folder).Scalars(tag)]  # type: ignore[attr-defined]


def test_scalars_and_pictures(tmp_path: Path) -> None:
    picture = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    with TensorBoardLog(Storage(tmp_path)) as log:
        assert log.active
        log.scalars(3, {"loss/total": 0.5, "collapse/std": math.nan, "images": 8, "note": "text", "speed/mfu": None})
        log.image(3, "pictures/reconstruction", picture)
    events = read(tmp_path / "tensorboard")
    assert sorted(events.Tags()["scalars"]) == ["collapse/std", "loss/total", "run/images"]  # type: ignore[attr-defined]
    assert steps_and_values(tmp_path / "tensorboard", "loss/total") == [(3, 0.5)]
    (image,) = events.Images("pictures/reconstruction")  # type: ignore[attr-defined]
    assert (image.step, image.height, image.width) == (3, 4, 6)


def test_a_resumed_run_has_every_step_once(tmp_path: Path) -> None:
    for first, end in ((0, 12), (8, 15), (15, 17)):
        log = TensorBoardLog(Storage(tmp_path), resume_step=first)
        for step in range(first, end):
            log.scalars(step, {"loss/total": 1000 * first + step})
        log.sync()  # and killed: not closed
    owner = [0] * 8 + [8] * 7 + [15] * 2
    expected = [(step, 1000 * owner[step] + step) for step in range(17)]
    assert steps_and_values(tmp_path / "tensorboard", "loss/total") == expected


def test_on_an_object_store(tmp_path: Path) -> None:
    storage = Storage(f"memory://{uuid.uuid4().hex}/run")
    for first in (0, 2):
        with TensorBoardLog(storage, resume_step=first) as log:
            for step in range(first, first + 4):
                log.scalars(step, {"loss/total": step})
    names = storage.names("tensorboard")
    assert len(names) == 2
    for name in names:
        (tmp_path / name).write_bytes(storage.read_bytes(f"tensorboard/{name}"))
    assert steps_and_values(tmp_path, "loss/total") == [(step, step) for step in range(6)]


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with caplog.at_level(logging.WARNING), TensorBoardLog(Storage(tmp_path)) as log:
        assert not log.active
        log.scalars(0, {"loss/total": 1.0})
        log.image(0, "a", np.zeros((2, 2, 3), np.uint8))
        log.sync()
    assert "pip install tensorboard" in caplog.text
    assert list(tmp_path.iterdir()) == []
