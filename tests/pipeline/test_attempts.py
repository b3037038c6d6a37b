"""A row that kills its worker is found, costs itself only, and an innocent row is never blamed for one accident."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from curation.decode import DecodeConfig
from curation.policy import Policy, PolicyConfig
from pipeline.annotate import AnnotateSpec, Operator
from pipeline.attempts import CAREFUL_FROM, STRIKES, Attempt
from pipeline.storage import Storage
from tests.fixtures.processes import CONTEXT

RECORD = "work/attempts/chunk-00000003-1.json"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path)


def test_the_third_attempt_is_careful(storage: Storage) -> None:
    assert (CAREFUL_FROM, STRIKES) == (3, 2)
    assert [Attempt(storage, 3, 1).careful for _ in range(4)] == [False, False, True, True]
    assert not Attempt(storage, 4, 1).careful
    assert not Attempt(storage, 3, 0).careful


def test_a_clean_close_starts_afresh(storage: Storage) -> None:
    for _ in range(5):
        attempt = Attempt(storage, 3, 1)
    attempt.close()
    assert not storage.exists(RECORD)
    attempt.close()
    assert not Attempt(storage, 3, 1).careful


def die(storage: Storage, row: int, session: str = "") -> None:
    """An attempt whose process dies inside a row: nothing after the row is entered is ever run."""
    attempt = Attempt(storage, 3, 1, session)
    attempt.row(row).__enter__()


def test_a_row_is_passed_over_after_two_strikes(storage: Storage) -> None:
    die(storage, 7)
    die(storage, 7)
    assert Attempt(storage, 3, 1).crashed == [7]
    # It stays on record while the chunk is not done.
    assert Attempt(storage, 3, 1).crashed == [7]


def test_one_accident_is_not_enough_and_rows_are_counted_apart(storage: Storage) -> None:
    for row in (7, 2, 9):
        die(storage, row)
    assert Attempt(storage, 3, 1).crashed == []
    die(storage, 9)
    die(storage, 2)
    assert Attempt(storage, 3, 1).crashed == [2, 9]


def test_a_row_that_came_through_is_off_the_record(storage: Storage) -> None:
    for _ in range(4):
        attempt = Attempt(storage, 3, 1)
        with attempt.row(0):
            assert json.loads(storage.read_bytes(RECORD))["current"] == 0
        assert json.loads(storage.read_bytes(RECORD))["current"] is None
    assert Attempt(storage, 3, 1).crashed == []


def test_a_death_with_the_whole_run_is_no_strike(storage: Storage) -> None:
    for session in ("monday", "tuesday", "wednesday"):
        die(storage, 7, session)
        assert Attempt(storage, 3, 1, f"after {session}").crashed == []
    # The attempts still count: the chunk is handled with care at once. Within one run the row is to blame.
    assert Attempt(storage, 3, 1, "thursday").careful
    die(storage, 7, "thursday")
    die(storage, 7, "thursday")
    assert Attempt(storage, 3, 1, "thursday").crashed == [7]


def work(folder: str, bad: list[str]) -> None:
    """A worker on its only chunk; leaves the number of living rows in a file."""
    import numpy as np

    (alive,) = operator_of(folder, bad)({"chunk": np.array([0])})["alive"]
    Path(folder, "alive").write_text(str(alive))


def operator_of(folder: str, bad: list[str]) -> Operator:
    """The one operator of a run over a folder of pictures, whose scorer kills the process on bad rows."""
    from curation.sources import FolderConfig, open_source
    from pipeline.fetch import Reader
    from pipeline.plan import list_unit, load_plan, make_plan
    from tests.fixtures.counting import BlueScorer, KillingScorer, stage_set

    storage = Storage(f"{folder}/run")
    source = open_source(FolderConfig(path=f"{folder}/pool"))
    units = source.units()
    plan = load_plan(storage) or make_plan(
        storage, source, units, 100, lambda items: ((n, list_unit(storage, source, n, unit, 100)) for n, unit in items)
    )
    stages = stage_set(KillingScorer(bad=tuple(bad)), BlueScorer())
    policy = PolicyConfig(too_small=None, low_entropy=None, person_too_small=None)
    reader, compiled = Reader(storage, source), Policy(policy, stages.names)
    # Ray runs a dead actor's chunk again within one run.
    spec = AnnotateSpec(storage, plan, reader, stages, compiled, DecodeConfig(), session="one")
    return Operator(spec, stages.names, 0, True, 1.0)


def test_killed_again_and_again_all_other_rows_are_measured(tmp_path: Path) -> None:
    from curation.records import record_id
    from pipeline.scores import read_scores
    from tests.fixtures.counting import BlueScorer, MeanScorer, stage_set
    from tests.fixtures.pool import encode, picture

    (tmp_path / "pool").mkdir()
    for number in range(6):
        (tmp_path / "pool" / f"{number}.jpg").write_bytes(encode(picture(number)))
    bad = [record_id("4.jpg", "")]
    deaths = 0
    for _ in range(12):
        worker = CONTEXT.Process(target=work, args=(str(tmp_path), bad))
        worker.start()
        worker.join()
        if worker.exitcode == 0:
            break
        assert worker.exitcode == -signal.SIGKILL
        deaths += 1
        assert not (tmp_path / "run" / "work" / "scores").exists()
    # Two attempts on the whole chunk, then two strikes for the bad row.
    assert deaths == 2 + 2
    assert (tmp_path / "alive").read_text() == "5"
    stages = stage_set(MeanScorer(bad=tuple(bad)), BlueScorer())
    table = read_scores(Storage(tmp_path / "run"), 0, stages)
    assert table.column("problem").to_pylist() == [None, None, None, None, "worker_crashed", None]
    assert table.column("person_count").to_pylist() == [1, 1, 1, 1, None, 1]
    assert table.column("text_share").is_valid().to_pylist() == [True, True, True, True, False, True]
    assert Storage(tmp_path / "run").names("work/attempts") == []
