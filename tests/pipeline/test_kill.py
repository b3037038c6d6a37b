"""A run that is killed at any moment ends, when it is started again, as one that never was.

The processes are real and die by SIGKILL. Moments are chosen by what is on disk (so that every stage is hit) and at
random.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.fixtures import pool

COUNT = 120
LIMIT_S = 120


def command(recipe: Path) -> list[str]:
    return [sys.executable, "-m", "pipeline.cli", "curate", str(recipe), "--quiet", "--json"]


def write_recipe(folder: Path, source: Path, output: Path) -> Path:
    path = folder / f"{output.name}.yaml"
    path.write_text(yaml.safe_dump(pool.config(source, output)))
    return path


def start(recipe: Path, address: str | None) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    environment.pop("RAY_ADDRESS", None)
    if address is not None:
        environment["RAY_ADDRESS"] = address
    return subprocess.Popen(
        command(recipe), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def kill_when(process: subprocess.Popen[bytes], condition: Callable[[], bool]) -> bool:
    """Kill the process the moment that the condition holds; False when it finished before."""
    deadline = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        if condition():
            process.send_signal(signal.SIGKILL)
            process.communicate()
            return True
        time.sleep(0.0005)
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    return False


def finish(recipe: Path, address: str | None) -> None:
    process = start(recipe, address)
    _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors.decode()


def count(folder: Path, pattern: str) -> int:
    return sum(1 for _ in folder.glob(pattern))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pool") / "tars"
    pool.write_folder(folder, COUNT)
    return folder


@pytest.fixture(scope="module")
def undisturbed(
    source: Path, ray_cluster: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, bytes]]:
    folder = tmp_path_factory.mktemp("reference")
    finish(write_recipe(folder, source, folder / "run"), ray_cluster)
    return pool.results(folder / "run")


def test_killed_in_every_stage_again_and_again(
    source: Path, ray_cluster: str, undisturbed: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    """One run, killed many times on its way: the state of each kill is what the next start finds."""
    chooser = random.Random(20)
    run = tmp_path / "run"
    recipe = write_recipe(tmp_path, source, run)
    chunks = -(-COUNT // 16)
    moments: list[tuple[str, Callable[[], bool]]] = [
        ("plan", lambda: (run / "run.json").exists()),
        ("listed", lambda: (run / "work/plan/chunks.parquet").exists()),
    ]
    for parts in sorted(chooser.sample(range(1, chunks), 3)):
        moments.append(("annotate", lambda parts=parts: count(run, "work/scores/part-*.parquet") >= parts))
    moments += [
        ("select", lambda: count(run, "work/scores/part-*.parquet") >= chunks),
        ("ledger staged", lambda: (run / "ledger.incomplete").exists()),
        ("ledger published", lambda: (run / "ledger/_complete.json").exists()),
        ("export begun", lambda: count(run, "shards.incomplete/*.tar") >= 1),
        ("export", lambda: count(run, "shards.incomplete/*.tar") >= 4),
        ("manifest", lambda: (run / "shards.incomplete/manifest.json").exists()),
        ("shards published", lambda: (run / "shards/manifest.json").exists()),
    ]
    killed = []
    for name, condition in moments:
        if kill_when(start(recipe, ray_cluster), condition):
            killed.append(name)
            if not (run / "shards/manifest.json").exists():
                assert not (run / "shards").exists(), "a killed export must not look finished"
            if (run / "ledger").exists():
                assert (run / "ledger/_complete.json").exists()
    assert len(killed) >= 9, f"too few kills hit: {killed}"
    finish(recipe, ray_cluster)
    assert pool.results(run) == undisturbed
    assert count(run, "**/.*.tmp") == 0


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments(
    source: Path, ray_cluster: str, undisturbed: dict[str, dict[str, bytes]], tmp_path: Path, seed: int
) -> None:
    chooser = random.Random(seed)
    recipe = write_recipe(tmp_path, source, tmp_path / "run")
    for _ in range(2):
        begun = time.monotonic()
        after = chooser.uniform(2.0, 7.0)
        kill_when(start(recipe, ray_cluster), lambda begun=begun, after=after: time.monotonic() - begun > after)
    finish(recipe, ray_cluster)
    assert pool.results(tmp_path / "run") == undisturbed


def test_whole_machine_dies_with_its_cluster(
    source: Path, undisturbed: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    """A cluster of its own, of one core, killed together with the driver; finished on one core, with equal bytes."""
    run = tmp_path / "run"
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(pool.config(source, run, ray={"num_cpus": 1, "object_store_gb": 0.25})))
    process = start(path, None)
    assert kill_when(process, lambda: count(run, "work/scores/part-*.parquet") >= 3)
    finish(path, None)
    assert pool.results(run) == undisturbed


def test_retired_shards_do_not_stand_beside_another_ledger(source: Path, ray_cluster: str, tmp_path: Path) -> None:
    """Killed between the new ledger and its shards, a run has no shards rather than those of the old policy."""
    run = tmp_path / "run"
    recipe = write_recipe(tmp_path, source, run)
    finish(recipe, ray_cluster)
    old = (run / "ledger/_complete.json").read_bytes()
    changed = pool.config(source, run, policy={"low_entropy": {"min": 7.0}})
    recipe.write_text(yaml.safe_dump(changed))
    assert kill_when(
        start(recipe, ray_cluster),
        lambda: (run / "ledger/_complete.json").exists() and (run / "ledger/_complete.json").read_bytes() != old,
    )
    assert not (run / "shards").exists()
    finish(recipe, ray_cluster)
    fresh = tmp_path / "fresh"
    recipe.write_text(yaml.safe_dump({**changed, "output": str(fresh)}))
    finish(recipe, ray_cluster)
    assert pool.results(run) == pool.results(fresh)
