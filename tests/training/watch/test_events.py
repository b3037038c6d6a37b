"""One sequence of lines, whatever was killed: nothing twice, nothing missing, every line valid JSON."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.storage import Storage
from training.watch.events import METRICS_FILE, MetricsLog, read_metrics


def loss(step: int) -> float:
    return math.sin(step) / 3


def run(storage: Storage, first: int, end: int, every: int = 1) -> None:
    """What a training loop does, without its end."""
    log = MetricsLog(storage, resume_step=first)
    for step in range(first, end):
        if step % every == 0:
            log.write(step, {"loss/total": loss(step)}, images=8 * (step + 1), tokens=80 * (step + 1))
    log.sync()


def assert_whole(storage: Storage, end: int) -> None:
    records = list(read_metrics(storage))
    assert [record["step"] for record in records] == list(range(end))
    assert [record["loss/total"] for record in records] == [loss(step) for step in range(end)]
    assert [record["images"] for record in records] == [8 * (step + 1) for step in range(end)]
    for line in storage.read_bytes(METRICS_FILE).decode().splitlines():
        json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


@pytest.fixture(params=["local", "object store"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return Storage(tmp_path) if request.param == "local" else Storage(f"memory://{uuid.uuid4().hex}/run")


def test_a_line(tmp_path: Path) -> None:
    with MetricsLog(Storage(tmp_path)) as log:
        before = time.time()
        log.write(7, {"loss/total": math.nan, "speed/mfu": None, "note": "text"}, images=64)
        # In the file when write returns.
        line = (tmp_path / METRICS_FILE).read_text()
    record = json.loads(line)
    assert record.keys() == {"step", "images", "time", "loss/total", "note", "speed/mfu"}
    assert (record["step"], record["images"], record["loss/total"], record["speed/mfu"]) == (7, 64, "nan", None)
    assert before - 1 < record["time"] < time.time() + 1
    assert math.isnan(next(read_metrics(Storage(tmp_path)))["loss/total"])


def test_a_resumed_run_has_every_step_once(storage: Storage) -> None:
    run(storage, 0, 37)
    run(storage, 20, 45)
    run(storage, 45, 50)
    assert_whole(storage, 50)


def test_a_new_run_in_an_old_folder_starts_empty(storage: Storage) -> None:
    run(storage, 0, 5)
    with MetricsLog(storage):
        assert list(read_metrics(storage)) == []


@given(cut=st.integers(0, 2000), resume=st.integers(0, 12))
@settings(max_examples=40, deadline=None)
def test_killed_in_the_middle_of_a_line(tmp_path_factory: pytest.TempPathFactory, cut: int, resume: int) -> None:
    storage = Storage(tmp_path_factory.mktemp("run"))
    run(storage, 0, 12)
    path = Path(storage.path(METRICS_FILE))
    # Whatever of the file is left, at least the lines before the checkpoint are: sync comes first.
    least = sum(len(line) for line in path.read_bytes().splitlines(keepends=True)[:resume])
    os.truncate(path, min(path.stat().st_size, least + cut))
    run(storage, resume, 15)
    assert_whole(storage, 15)


def test_a_line_that_lacks_only_its_end_is_kept(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    run(storage, 0, 5)
    path = tmp_path / METRICS_FILE
    os.truncate(path, path.stat().st_size - 1)
    run(storage, 5, 7)
    assert_whole(storage, 7)


def test_half_a_line_is_dropped_even_before_the_resumed_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage = Storage(tmp_path)
    run(storage, 0, 5)
    path = tmp_path / METRICS_FILE
    os.truncate(path, path.stat().st_size - 10)
    assert [record["step"] for record in read_metrics(storage)] == [0, 1, 2, 3]
    with MetricsLog(storage, resume_step=5) as log:
        log.write(5, {})
    assert [record["step"] for record in read_metrics(storage)] == [0, 1, 2, 3, 5]
    assert caplog.text == ""


WRITER = """
import sys
from pipeline.storage import Storage
from training.watch.events import MetricsLog
log = MetricsLog(Storage(sys.argv[1]), resume_step=int(sys.argv[2]))
print("ready", flush=True)
import math
step = int(sys.argv[2])
while True:
    log.write(step, {"loss/total": math.sin(step) / 3, "filler": "x" * 500}, images=8 * (step + 1))
    step += 1
"""


def test_kill_9(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    first = 0
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(first)], stdout=subprocess.PIPE, text=True,
            cwd=Path(__file__).parents[3], env={**os.environ, "PYTHONPATH": "."},
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        steps = [record["step"] for record in read_metrics(storage)]
        assert steps == list(range(len(steps)))
        assert len(steps) > first + 10
        first = len(steps) - 5
    run(storage, first, first + 20)
    assert_whole(storage, first + 20)


def test_an_earlier_process_that_is_still_alive_spoils_nothing(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    old = MetricsLog(storage)
    for step in range(6):
        old.write(step, {"loss/total": loss(step)}, images=8 * (step + 1))
    new = MetricsLog(storage, resume_step=4)
    old.write(6, {"loss/total": -1.0})
    for step in range(4, 9):
        new.write(step, {"loss/total": loss(step)}, images=8 * (step + 1))
    old.close()
    new.close()
    assert_whole(storage, 9)


def test_damaged_lines_are_dropped_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage = Storage(tmp_path)
    run(storage, 0, 6)
    path = tmp_path / METRICS_FILE
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = b"\0" * 40 + b"\n"
    lines[3] = b'{"step": true}\n'
    path.write_bytes(b"".join(lines))
    with caplog.at_level(logging.WARNING):
        run(storage, 6, 8)
    assert [record["step"] for record in read_metrics(storage)] == [0, 1, 4, 5, 6, 7]
    assert "2 damaged lines" in caplog.text


def test_lines_reach_an_object_store_with_sync() -> None:
    storage = Storage(f"memory://{uuid.uuid4().hex}/run")
    log = MetricsLog(storage)
    log.write(0, {"loss/total": 1.0})
    assert list(read_metrics(storage)) == []
    log.sync()
    assert len(list(read_metrics(storage))) == 1
    log.write(1, {"loss/total": 1.0})
    log.close()
    assert len(list(read_metrics(storage))) == 2


def test_a_file_larger_than_one_block(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    with MetricsLog(storage) as log:
        for step in range(30):
            log.write(step, {"text": "x" * 100_000})
    with MetricsLog(storage, resume_step=25) as log:
        log.write(25, {"text": "y"})
    assert [record["step"] for record in read_metrics(storage)] == list(range(26))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda log: log.write(3, {}), "step 3 comes after step 3 .*open the log with resume_step=3"),
        (lambda log: log.write(2, {}), "step 2 comes after step 3"),
        (lambda log: log.write(4, {"step": 1}), "step cannot be a metric's name"),
        (lambda log: (log.close(), log.write(4, {})), "is closed"),
        (lambda log: MetricsLog(log._storage, resume_step=-1), "resume_step is -1"),
    ],
)
def test_wrong_use(tmp_path: Path, call: Callable[[MetricsLog], object], message: str) -> None:
    with MetricsLog(Storage(tmp_path)) as log:
        log.write(3, {})
        with pytest.raises(ValueError, match=message):
            call(log)


def test_a_value_that_is_no_number_leaves_no_half_line(tmp_path: Path) -> None:
    with MetricsLog(Storage(tmp_path)) as log:
        with pytest.raises(TypeError):
            log.write(0, {"loss/total": object()})
        log.write(0, {"loss/total": 1.0})
    assert len(list(read_metrics(Storage(tmp_path)))) == 1
