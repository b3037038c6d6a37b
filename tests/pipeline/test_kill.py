"""A run that is killed at any moment ends, when it is started again, as one that never was.

The processes are real and die by SIGKILL. Moments are chosen by what is on disk (so that every stage is hit) and at
random.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from pipeline.config import parse_config
from pipeline.curate import curate
from pipeline.progress import RunProgress
from tests.fixtures import pool
from tests.fixtures.processes import start_command

COUNT = 60
CHUNK_ROWS = 8
CHUNKS = -(-COUNT // CHUNK_ROWS)
LIMIT_S = 120


def config(source: Path, output: Path, **sections: Any) -> dict[str, Any]:
    return pool.config(source, output, chunk_rows=CHUNK_ROWS, export={"shard_samples": 6}, **sections)


def start(data: dict[str, Any], address: str | None) -> BaseProcess:
    """The command in a process of its own, beside the run."""
    run = Path(data["output"])
    recipe = run.with_suffix(".yaml")
    recipe.write_text(yaml.safe_dump(data))
    return start_command(["curate", str(recipe), "--quiet", "--json"], run.with_suffix(".log"), address)


def finish(data: dict[str, Any]) -> None:
    """The same run, in this process and on the cluster of the tests."""
    curate(parse_config(data), RunProgress(Console(quiet=True), quiet=True))


def kill_when(process: BaseProcess, condition: Callable[[], bool]) -> bool:
    """Kill the process the moment that the condition holds; False when it finished before."""
    deadline = time.monotonic() + LIMIT_S
    while process.exitcode is None and time.monotonic() < deadline:
        if condition():
            process.kill()
            process.join()
            return True
        time.sleep(0.0005)
    process.join()
    assert process.exitcode == 0
    return False


def count(folder: Path, pattern: str) -> int:
    return sum(1 for _ in folder.glob(pattern))


@dataclass(frozen=True)
class Undisturbed:
    """A run that nobody killed."""

    source: Path
    run: Path
    results: dict[str, dict[str, bytes]]
    seconds: float


@pytest.fixture(scope="module")
def undisturbed(ray_cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    pool.write_folder(folder / "pool", COUNT)
    begun = time.monotonic()
    finish(config(folder / "pool", folder / "run", ray={"max_workers": 2}))
    return Undisturbed(folder / "pool", folder / "run", pool.results(folder / "run"), time.monotonic() - begun)


def test_killed_in_every_stage_again_and_again(undisturbed: Undisturbed, ray_cluster: str, tmp_path: Path) -> None:
    """One run, killed many times on its way: the state of each kill is what the next start finds."""
    chooser = random.Random(20)
    run = tmp_path / "run"
    data = config(undisturbed.source, run)
    moments: list[tuple[str, Callable[[], bool]]] = [
        ("plan", lambda: (run / "run.json").exists()),
        ("listed", lambda: (run / "work/plan/chunks.parquet").exists()),
    ]
    for parts in sorted(chooser.sample(range(1, CHUNKS), 2)):
        moments.append(("annotate", lambda parts=parts: count(run, "work/scores/part-*.parquet") >= parts))
    moments += [
        ("select", lambda: count(run, "work/scores/part-*.parquet") >= CHUNKS),
        ("ledger staged", lambda: (run / "ledger.incomplete").exists()),
        ("ledger published", lambda: (run / "ledger/_complete.json").exists()),
        ("export", lambda: count(run, "shards.incomplete/*.tar") >= 1),
        ("manifest", lambda: (run / "shards.incomplete/manifest.json").exists()),
        ("shards published", lambda: (run / "shards/manifest.json").exists()),
    ]
    killed = []
    for name, condition in moments:
        if kill_when(start(data, ray_cluster), condition):
            killed.append(name)
            if not (run / "shards/manifest.json").exists():
                assert not (run / "shards").exists(), "a killed export must not look finished"
            if (run / "ledger").exists():
                assert (run / "ledger/_complete.json").exists()
    assert len(killed) >= 7, f"too few kills hit: {killed}"
    finish(data)
    assert pool.results(run) == undisturbed.results
    assert count(run, "**/.*.tmp") == 0


@pytest.mark.parametrize("seed", range(2))
def test_killed_at_a_random_moment(undisturbed: Undisturbed, ray_cluster: str, tmp_path: Path, seed: int) -> None:
    """At any time between the first file and the last one of a run; what the kill left is finished."""
    run = tmp_path / "run"
    data = config(undisturbed.source, run, ray={"max_workers": 2})
    after = random.Random(seed).uniform(0, undisturbed.seconds)
    process = start(data, ray_cluster)
    while not (run / "run.json").exists() and process.exitcode is None:
        time.sleep(0.0005)
    begun = time.monotonic()
    kill_when(process, lambda: time.monotonic() - begun > after)
    finish(data)
    assert pool.results(run) == undisturbed.results


def test_whole_machine_dies_with_its_cluster(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """A cluster of its own, of one core, killed together with the driver; another one finds the bytes that it makes."""
    run = tmp_path / "run"
    data = config(undisturbed.source, run, ray={"num_cpus": 1, "object_store_gb": 0.25})
    # Late, so that nearly all of the bytes come from a single core.
    assert kill_when(start(data, None), lambda: count(run, "shards.incomplete/*.tar") >= 2)
    made = {name: data for name, data in pool.folder_bytes(run / "shards.incomplete").items() if name.endswith(".tar")}
    assert made.items() <= undisturbed.results["shards"].items()
    finish(data)
    assert pool.results(run) == undisturbed.results


def test_retired_shards_do_not_stand_beside_another_ledger(
    undisturbed: Undisturbed, ray_cluster: str, tmp_path: Path
) -> None:
    """Killed between the new ledger and its shards, a run has no shards rather than those of the old policy."""
    run = tmp_path / "run"
    shutil.copytree(undisturbed.run, run)
    finish(config(undisturbed.source, run, policy={"low_entropy": {"min": 7.0}}))
    old = (run / "ledger/_complete.json").read_bytes()
    assert pool.results(run)["shards"] != undisturbed.results["shards"]
    data = config(undisturbed.source, run)
    assert kill_when(
        start(data, ray_cluster),
        lambda: (run / "ledger/_complete.json").exists() and (run / "ledger/_complete.json").read_bytes() != old,
    )
    assert not (run / "shards").exists()
    finish(data)
    assert pool.results(run) == undisturbed.results


def raylets(parent: int) -> list[int]:
    """Those that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, fields = stat.read_text().partition("(")[2].rpartition(") ")
            if name == "raylet" and int(fields.split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def test_a_killed_raylet_is_told_and_the_run_goes_on_later(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """Ray's core ends the process without a word, some time after."""
    run = tmp_path / "run"
    process = start(config(undisturbed.source, run, ray={"num_cpus": 1, "object_store_gb": 0.25}), None)
    deadline = time.monotonic() + LIMIT_S
    while not (run / "work/attempts").exists() and process.exitcode is None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert process.pid is not None
    (raylet,) = raylets(process.pid)
    os.kill(raylet, signal.SIGKILL)
    process.join(LIMIT_S)
    assert process.exitcode not in (None, 0)
    said = ""
    while "raylet" not in said and time.monotonic() < deadline:  # a moment after the end
        said = run.with_suffix(".log").read_text()
        time.sleep(0.05)
    assert said.startswith("error: ")
    assert "Ray's process on this machine (raylet)" in said
    assert f"(log: {run}/logs" in said
    assert "Traceback" not in said
    finish(config(undisturbed.source, run))
    assert pool.results(run) == undisturbed.results


def test_an_output_that_is_removed_while_it_is_written_begins_again(
    undisturbed: Undisturbed, ray_cluster: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    data = config(undisturbed.source, run)
    process = start(data, ray_cluster)
    while not count(run, "work/scores/part-*.parquet") and process.exitcode is None:
        time.sleep(0.005)
    shutil.rmtree(run, ignore_errors=True)
    process.join(LIMIT_S)
    assert process.exitcode == 1
    said = run.with_suffix(".log").read_text()
    assert f"{run} was removed while the run was writing into it" in said
    assert len(said.splitlines()) == 1
    assert not (run / "run.json").exists()
    finish(data)
    assert pool.results(run) == undisturbed.results
