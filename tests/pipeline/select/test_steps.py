"""A task that has its record is never run again; a complete step is one record, and its files may go."""

from __future__ import annotations

import os
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import ray
from rich.console import Console

from pipeline.progress import RunProgress
from pipeline.select import Steps
from pipeline.select.steps import COMPLETE, task_name
from pipeline.storage import Storage

pytestmark = pytest.mark.usefixtures("ray_cluster")


def steps(folder: Path) -> Steps:
    return Steps(Storage(folder), RunProgress(Console(file=StringIO()), quiet=True))


@dataclass(frozen=True)
class Work:
    """Publishes a file, counts its calls in a folder, and fails on one item as long as `broken` is there."""

    storage: Storage
    calls: Path
    bad: int = -1

    def __call__(self, item: int) -> dict[str, Any]:
        (self.calls / f"{item}-{os.urandom(4).hex()}").touch()
        self.storage.write_bytes(f"step/{item}.txt", str(item).encode())
        if item == self.bad and (self.calls / "broken").exists():
            raise ValueError(f"no luck with {item}")
        return {"square": item * item, "list": [item]}


def called(folder: Path) -> dict[int, int]:
    names = [name.partition("-")[0] for name in os.listdir(folder) if "-" in name]
    return {int(name): names.count(name) for name in names}


@pytest.fixture
def work(tmp_path: Path) -> Work:
    (tmp_path / "calls").mkdir()
    return Work(Storage(tmp_path / "run"), tmp_path / "calls", bad=5)


def test_records_come_in_the_order_of_the_items_and_are_then_one_file(tmp_path: Path, work: Work) -> None:
    run = steps(tmp_path / "run")
    items = [3, 1, 4, 0, 2]
    records = run.run("step", "squares", work, items)
    assert records == [{"square": item * item, "list": [item]} for item in items]
    assert run.storage.names("step") == [*(f"{item}.txt" for item in range(5)), COMPLETE]
    assert run.storage.read_json(f"step/{COMPLETE}") == {"tasks": records}
    # Complete: nothing is called again, whatever the items are.
    assert steps(tmp_path / "run").run("step", "squares", work, items) == records
    assert called(work.calls) == dict.fromkeys(items, 1)


def test_after_an_error_the_rest_is_done_and_nothing_twice(tmp_path: Path, work: Work) -> None:
    (work.calls / "broken").touch()
    items = list(range(12))
    with pytest.raises(ray.exceptions.RayTaskError, match="no luck with 5"):
        steps(tmp_path / "run").run("step", "squares", work, items)
    assert not work.storage.exists(f"step/{COMPLETE}")
    before = called(work.calls)
    recorded = {int(name.removesuffix(".json")) for name in work.storage.names("step/records")}
    assert 5 in before  # it has written its file, and has no record
    assert 5 not in recorded
    assert recorded
    (work.calls / "broken").unlink()
    records = steps(tmp_path / "run").run("step", "squares", work, items)
    assert [record["square"] for record in records] == [item * item for item in items]
    after = called(work.calls)
    assert {item: after[item] for item in recorded} == dict.fromkeys(recorded, 1)
    assert set(after) == set(items)
    assert not work.storage.exists("step/records")


def test_a_killed_driver_continues_where_the_records_end(tmp_path: Path, work: Work) -> None:
    run = steps(tmp_path / "run")
    for number in (0, 2):
        run.storage.write_bytes(f"step/records/{task_name(number)}.json", b'{"square": -1}')
    records = run.run("step", "squares", work, [7, 8, 9])
    assert [record["square"] for record in records] == [-1, 64, -1]
    assert called(work.calls) == {8: 1}


def test_all_records_are_there_and_the_step_is_not_marked(tmp_path: Path, work: Work) -> None:
    run = steps(tmp_path / "run")
    run.storage.write_bytes(f"step/records/{task_name(0)}.json", b'{"square": 1}')
    assert run.run("step", "squares", work, [1]) == [{"square": 1}]
    assert called(work.calls) == {}
    assert run.storage.read_json(f"step/{COMPLETE}") == {"tasks": [{"square": 1}]}


def test_a_step_without_items_is_complete(tmp_path: Path, work: Work) -> None:
    run = steps(tmp_path / "run")
    assert run.run("step", "squares", work, []) == []
    assert run.storage.names("step") == [COMPLETE]


def test_files_go_and_records_stay(tmp_path: Path, work: Work) -> None:
    run = steps(tmp_path / "run")
    records = run.run("step", "squares", work, [1, 2])
    run.storage.write_bytes("step/folder/deep.txt", b"x")
    run.storage.write_bytes("other/1.txt", b"x")
    run.drop("step", "never-run")
    assert run.storage.names("step") == [COMPLETE]
    assert run.storage.names("other") == ["1.txt"]
    run.drop("step")
    assert run.run("step", "squares", work, [1, 2]) == records
    assert called(work.calls) == {1: 1, 2: 1}


def test_a_summary_that_is_no_json_is_an_error_and_leaves_no_record(tmp_path: Path) -> None:
    with pytest.raises(ray.exceptions.RayTaskError, match="not JSON serializable"):
        steps(tmp_path / "run").run("step", "sets", lambda item: {"set": {item}}, [1])
    assert Storage(tmp_path / "run").names("step/records") == []
