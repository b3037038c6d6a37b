"""A measured selection is the selection, with a record of what each step took."""

from __future__ import annotations

import mmap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from eval.benchmarks.select_once import Task, TreeMeter, file_sizes, select_apart, select_here
from eval.benchmarks.select_pool import plant, write_pool

STEPS = ["candidates", "keys", "links-bytes", "links-bands", "resolved", "stars"]


@pytest.fixture(scope="module")
def task(ray_cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Task:
    folder = tmp_path_factory.mktemp("pool")
    write_pool(folder, plant(400), 200)
    return Task(str(folder), "here", 400, 200, False, {}, 2)


def test_each_step_is_measured(task: Task) -> None:
    cost = select_here(task)
    assert [step.name for step in cost.steps] == STEPS
    assert cost.summary["duplicates"]["dropped"] == {"exact_duplicate": 40, "near_duplicate": 40}
    assert all(step.seconds > 0 and step.written > 0 and step.driver_mib > 0 for step in cost.steps)
    assert max(step.worker_mib for step in cost.steps) > 0
    # Bytes of keys: 24 for the content and 17 for each of five bands, compressed.
    assert 20 < cost.sum("keys").written / 400 < 24 + 5 * 17
    whole = cost.sum()
    assert whole.tasks == sum(step.tasks for step in cost.steps)
    assert whole.written == cost.sum(*STEPS[:3]).written + cost.sum(*STEPS[3:]).written


def test_a_child_process_does_the_same(task: Task, ray_cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster)
    cost = select_apart(replace(task, name="apart"))
    assert [step.name for step in cost.steps] == STEPS
    assert cost.summary["duplicates"]["dropped"] == {"exact_duplicate": 40, "near_duplicate": 40}
    assert not list(Path(task.folder).glob("apart-*"))


def test_a_failure_says_what_failed(task: Task) -> None:
    with pytest.raises(RuntimeError, match="chunk_size"):
        select_apart(replace(task, name="bad", config={"chunk_size": 1}))


def test_the_meter_sees_time_and_memory() -> None:
    with TreeMeter(every=0.02) as meter:
        before = meter.start()
        until = time.process_time() + 0.3
        while time.process_time() < until:
            pass
        after, quiet, _ = meter.stop()
        assert 0.25 < after - before < 3
        meter.start()
        # Fresh pages: an array could lie in memory that an earlier test has left to the process.
        with mmap.mmap(-1, 100 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
            held.write(b"1" * len(held))
            _, full, _ = meter.stop()
        assert full - quiet > 80


def test_files_are_counted_with_their_sizes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"123")
    assert file_sizes(tmp_path) == {str(tmp_path / "a" / "b"): 3}
    assert file_sizes(tmp_path / "none") == {}
