"""Many small jobs: every item once, a bounded number at a time, errors come out, hiccups and deaths are tried again."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.tasks import RETRIES, run_tasks, slices


@dataclass(frozen=True)
class Square:
    """Marks its item while it works, in a folder."""

    folder: Path

    def __call__(self, item: int) -> int:
        mark = self.folder / f"{item}-{os.getpid()}"
        mark.touch()
        time.sleep(0.02 * (item % 3))
        mark.unlink()
        return item * item


@dataclass(frozen=True)
class Stumble:
    """Fails as told at the first tries of each item, counted in a folder."""

    folder: Path
    kind: str
    failures: int

    def __call__(self, item: int) -> int:
        tries = len(list(self.folder.glob(f"{item}-*")))
        (self.folder / f"{item}-{tries}").touch()
        if tries < self.failures:
            if self.kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise {"os": OSError, "value": ValueError}[self.kind](f"no luck with {item}")
        return item


@pytest.mark.usefixtures("ray_cluster")
def test_every_item_once_with_its_position_in_any_order(tmp_path: Path) -> None:
    items = [5, 3, 3, 8, 0, 1, 2, 9]
    results = list(run_tasks(Square(tmp_path), items, in_flight=3))
    assert sorted(position for position, _ in results) == list(range(len(items)))
    assert all(result == items[position] ** 2 for position, result in results)
    assert dict(results) == dict(run_tasks(Square(tmp_path), items, in_flight=1))


@pytest.mark.usefixtures("ray_cluster")
def test_no_items_no_results() -> None:
    assert list(run_tasks(Square(Path()), [])) == []


@pytest.mark.usefixtures("ray_cluster")
def test_items_are_submitted_as_results_are_taken(tmp_path: Path) -> None:
    class Items(list[int]):
        taken = 0

        def __iter__(self):  # type: ignore[no-untyped-def]
            for item in super().__iter__():
                self.taken += 1
                yield item

    items = Items(range(30))
    results = run_tasks(Square(tmp_path), items, num_cpus=0.1, in_flight=4)
    most = 0
    for done, _ in enumerate(results):
        # The one being taken is finished; never more than four others are open.
        assert items.taken <= done + 4
        most = max(most, items.taken - done)
    assert (most, items.taken) == (4, 30)


@pytest.mark.usefixtures("ray_cluster")
def test_a_result_does_not_wait_for_those_before_it(tmp_path: Path) -> None:
    def work(item: int) -> int:
        while item == 0 and not (tmp_path / "go").exists():
            time.sleep(0.02)
        return item

    results = run_tasks(work, [0, 1, 2], num_cpus=0.1)
    assert sorted(next(results)[0] for _ in range(2)) == [1, 2]
    (tmp_path / "go").touch()
    assert next(results) == (0, 0)


@pytest.mark.usefixtures("ray_cluster")
def test_an_error_comes_out_with_its_type_and_text(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no luck with 1"):
        list(run_tasks(Stumble(tmp_path, "value", 1), [1]))
    assert len(list(tmp_path.iterdir())) == 1  # a fault of the job is not tried again


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("kind", ["os", "kill"])
def test_a_hiccup_and_a_dead_worker_are_tried_again(tmp_path: Path, kind: str) -> None:
    assert list(run_tasks(Stumble(tmp_path, kind, 1), [7])) == [(0, 7)]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.usefixtures("ray_cluster")
def test_an_error_that_stays_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no luck with 7"):
        list(run_tasks(Stumble(tmp_path, "os", 99), [7]))
    assert len(list(tmp_path.iterdir())) == RETRIES + 1


@pytest.mark.usefixtures("ray_cluster")
def test_large_items_and_results_come_through() -> None:
    items = [np.arange(300_000) + number for number in range(3)]
    results = dict(run_tasks(lambda item: item * 2, items))
    assert all((results[number] == items[number] * 2).all() for number in range(3))


@given(st.lists(st.integers(), max_size=50), st.integers(1, 60))
def test_slices_are_even_and_in_order(items: list[int], parts: int) -> None:
    runs = slices(items, parts)
    assert [item for run in runs for item in run] == items
    assert len(runs) == min(parts, len(items))
    lengths = [len(run) for run in runs]
    assert not lengths or max(lengths) - min(lengths) <= 1


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("how", ["error", "close"])
def test_nothing_goes_on_after_the_caller_stopped(tmp_path: Path, how: str) -> None:
    def work(item: int) -> None:
        if item == 0:
            if how == "error":
                raise ValueError("stop")
            return
        (tmp_path / f"begun-{item}").touch()
        time.sleep(0.5)
        (tmp_path / f"ended-{item}").touch()

    results = run_tasks(work, list(range(6)), num_cpus=0.5)
    if how == "error":
        with pytest.raises(ValueError, match="stop"):
            list(results)
    else:
        next(results)
        results.close()  # type: ignore[attr-defined]
    before = sorted(tmp_path.iterdir())
    time.sleep(0.8)
    assert sorted(tmp_path.iterdir()) == before
    assert len(before) < 10
