"""What is left of a step that could not be trusted."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from pipeline.storage import Storage
from training.watch.guard import GuardStopError, Verdict
from training.watch.incidents import incident_record, stop_error, write_incident

VERDICT = Verdict("stop", "nonfinite", "the loss of step 1200 is nan")


def test_a_record_names_every_sample(tmp_path: Path) -> None:
    record = incident_record(
        1200, VERDICT, ids=["a" * 32, "b" * 32], positions=[9600, 9601],
        losses={"loss/total": math.nan, "loss/koleo": 0.5}, grad_norm=math.inf,
        per_sample={"loss/reconstruction": [0.9, math.nan]}, context={"optimiser/lr": 1e-4},
    )  # fmt: skip
    path = write_incident(Storage(tmp_path), record)
    assert path == str(tmp_path / "incidents" / "step-1200.json")
    assert json.loads(Path(path).read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON")) == {
        "step": 1200,
        "action": "stop",
        "kind": "nonfinite",
        "reason": "the loss of step 1200 is nan",
        "losses": {"loss/total": "nan", "loss/koleo": 0.5},
        "grad_norm": "inf",
        "context": {"optimiser/lr": 1e-4},
        "samples": [
            {"id": "a" * 32, "position": 9600, "loss/reconstruction": 0.9},
            {"id": "b" * 32, "position": 9601, "loss/reconstruction": "nan"},
        ],
    }


def test_the_same_step_again_replaces_it(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    for ids in (["a"], ["b"]):
        write_incident(storage, incident_record(7, VERDICT, ids=ids, positions=[1], losses={}))
    assert storage.names("incidents") == ["step-7.json"]
    record = storage.read_json("incidents/step-7.json")
    assert record is not None
    assert record["samples"][0]["id"] == "b"


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 ids but 1 of positions"):
        incident_record(0, VERDICT, ids=["a", "b"], positions=[1], losses={})
    with pytest.raises(ValueError, match="1 ids but 2 of per_sample x"):
        incident_record(0, VERDICT, ids=["a"], positions=[1], losses={}, per_sample={"x": [1.0, 2.0]})


def test_the_error_says_where_to_look_and_how_to_go_on() -> None:
    error = stop_error(VERDICT, "/runs/x/incidents/step-1200.json")
    assert isinstance(error, GuardStopError)
    for part in (VERDICT.reason, "/runs/x/incidents/step-1200.json", "watch.guard.on_nonfinite: skip", "learning rate"):
        assert part in str(error)
    assert "watch.guard.on_spike: skip" in str(stop_error(Verdict("stop", "spike", "r"), "p"))
