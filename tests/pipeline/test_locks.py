"""Never two holders of one folder: with and without `flock`, while it is set aside, after kills, after renames."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipeline import locks
from pipeline.locks import HeldError, lock_folder
from pipeline.rundir import RunConflictError, RunDirectory

FORK = multiprocessing.get_context("fork")
IDENTITY = {"chunk_rows": 1}
STRESS_S = 4.0


def no_flock(number: int = errno.ENOLCK) -> Any:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    return flock


def hold(folder: Path, ready: Any, without: bool, lock_only: bool = True) -> None:
    if without:
        fcntl.flock = no_flock()
    lock = lock_folder(folder) if lock_only else RunDirectory(str(folder), IDENTITY)
    ready.set()
    time.sleep(60)
    lock.close()


def started_holder(folder: Path, without: bool, lock_only: bool = True) -> Any:
    ready = FORK.Event()
    process = FORK.Process(target=hold, args=(folder, ready, without, lock_only))
    process.start()
    assert ready.wait(20)
    return process


def compete(folder: Path, seed: int, until: float, without: bool, found: Any) -> None:
    """Open the run again and again, one time in three with --new; while it is held, nobody else may be in it."""
    if without:
        fcntl.flock = no_flock()
    chooser = random.Random(seed)
    counts: Counter[str] = Counter()
    while time.monotonic() < until:
        try:
            run = RunDirectory(str(folder), IDENTITY, new=chooser.random() < 1 / 3)
        except RunConflictError as error:
            counts["refused" if "another process" in str(error) or "keep opening" in str(error) else str(error)] += 1
            continue
        counts["held"] += 1
        mark = folder / "inside"
        try:
            mark.mkdir()
            time.sleep(chooser.random() * 0.002)
            mark.rmdir()
        except OSError as error:
            counts[f"two holders: {error}"] += 1
        run.close()
    found.put(dict(counts))


@pytest.mark.parametrize("without", [False, True], ids=["flock", "no flock"])
def test_never_two_holders_while_runs_are_set_aside(tmp_path: Path, without: bool) -> None:
    found = FORK.Queue()
    until = time.monotonic() + STRESS_S
    processes = [
        FORK.Process(target=compete, args=(tmp_path / "run", seed, until, without, found)) for seed in range(6)
    ]
    for process in processes:
        process.start()
    total: Counter[str] = Counter()
    for _ in processes:
        total.update(found.get(timeout=60))
    for process in processes:
        process.join()
    assert set(total) <= {"held", "refused"}, total
    assert total["held"] > 5, total
    # Every run that was set aside is there, whole.
    aside = list(tmp_path.glob("run.old-*"))
    assert aside
    assert all(json.loads((path / "run.json").read_bytes())["identity"] == IDENTITY for path in aside)


def test_a_lock_file_that_was_replaced_between_opening_and_locking_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    real = fcntl.flock
    held: list[Any] = []

    def set_aside_first(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        os.rename(folder, tmp_path / "run.old-1")
        held.append(lock_folder(folder))
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", set_aside_first)
    with pytest.raises(HeldError, match="another process is working in"):
        lock_folder(folder)
    held[0].close()
    lock_folder(folder).close()


def test_a_removed_lock_file_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.flock

    def remove_first(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        (tmp_path / locks.LOCK_FILE).unlink()
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    lock = lock_folder(tmp_path)
    with pytest.raises(HeldError):
        lock_folder(tmp_path)
    lock.close()


@pytest.mark.parametrize("number", sorted(locks.NO_FLOCK))
def test_a_file_system_without_locks_has_one_holder_and_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    monkeypatch.setattr(fcntl, "flock", no_flock(number))
    for _ in range(3):
        run = RunDirectory(str(tmp_path / "run"), IDENTITY)
        with pytest.raises(RunConflictError, match=rf"another process is working in .* \(process {os.getpid()} on "):
            RunDirectory(str(tmp_path / "run"), IDENTITY)
        run.close()
        run.close()
    captured = capsys.readouterr()
    assert captured.err.count("has no locks") == 1
    assert len(captured.err.splitlines()) == 1
    assert len(list((tmp_path / "run").glob(".lock-*"))) <= 2, "claims do not pile up"


def test_another_error_of_flock_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", no_flock(errno.EIO))
    with pytest.raises(RunConflictError, match="cannot be used as a run directory: Input/output error"):
        RunDirectory(str(tmp_path / "run"), IDENTITY)


@pytest.mark.parametrize("without", [False, True], ids=["flock", "no flock"])
def test_a_killed_holder_is_passed_over_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: bool) -> None:
    if without:
        monkeypatch.setattr(fcntl, "flock", no_flock())
    holder = started_holder(tmp_path / "run", without, lock_only=False)
    with pytest.raises(RunConflictError, match="another process is working in"):
        RunDirectory(str(tmp_path / "run"), IDENTITY)
    os.kill(holder.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while True:  # the system takes a moment
        try:
            RunDirectory(str(tmp_path / "run"), IDENTITY).close()
            break
        except RunConflictError:
            assert time.monotonic() < deadline
    holder.join()


def claim_of_elsewhere(folder: Path, age_s: float, **fields: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / ".lock-7"
    path.write_text(json.dumps({"host": "node-3", "boot": "b", "processes": "p", "pid": 1, "started": "5", **fields}))
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_a_holder_on_another_host_lives_by_its_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", no_flock())
    folder = tmp_path / "run"
    claim = claim_of_elsewhere(folder, locks.STALE_S - 30)
    with pytest.raises(HeldError, match=r"process 1 on node-3\).*5 minutes after its last sign of life"):
        lock_folder(folder)
    os.utime(claim, (time.time() - locks.STALE_S - 30,) * 2)
    lock = lock_folder(folder)
    assert (folder / ".lock-8").exists()
    lock.close()
    # One that was let go of is free at once, half-written ones when they are old.
    claim_of_elsewhere(tmp_path / "over", 0, over=True)
    lock_folder(tmp_path / "over").close()
    for age, free in ((0.0, False), (locks.STALE_S + 30, True)):
        half = claim_of_elsewhere(tmp_path / f"half-{free}", age)
        stamp = half.stat().st_mtime
        half.write_text("")
        os.utime(half, (stamp, stamp))
        if free:
            lock_folder(half.parent).close()
        else:
            with pytest.raises(HeldError):
                lock_folder(half.parent)


def take_over(folder: Path, start: Any, found: Any) -> None:
    fcntl.flock = no_flock()
    start.wait()
    try:
        lock = lock_folder(folder)
    except HeldError:
        found.put(False)
    else:
        found.put(True)
        time.sleep(1.0)
        lock.close()


def test_one_of_many_takes_an_abandoned_folder_over(tmp_path: Path) -> None:
    for number in range(3):
        folder = tmp_path / f"run-{number}"
        claim_of_elsewhere(folder, locks.STALE_S + 30)
        start, found = FORK.Event(), FORK.Queue()
        processes = [FORK.Process(target=take_over, args=(folder, start, found)) for _ in range(8)]
        for process in processes:
            process.start()
        start.set()
        assert sum(found.get(timeout=30) for _ in processes) == 1
        for process in processes:
            process.join()


def beat_fast(folder: Path, ready: Any) -> None:
    locks.BEAT_S = 0.05
    hold(folder, ready, True)


def test_a_holder_gives_signs_of_life_and_ends_when_it_was_taken_over(tmp_path: Path) -> None:
    ready = FORK.Event()
    process = FORK.Process(target=beat_fast, args=(tmp_path / "run", ready))
    process.start()
    assert ready.wait(20)
    claim = tmp_path / "run" / ".lock-1"
    os.utime(claim, (1, 1))
    deadline = time.monotonic() + 20
    while claim.stat().st_mtime < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (tmp_path / "run" / ".lock-2").write_text("{}")
    process.join(20)
    assert process.exitcode == 1
