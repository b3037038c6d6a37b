"""The summary is strict JSON beside the ledger that it belongs to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.select.summary import SUMMARY, summary_record, write_summary
from pipeline.storage import Storage


def test_a_summary_comes_back_with_the_ledger_that_it_belongs_to(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    assert summary_record(storage) == {}
    summary = {"duplicates": {"dropped": {"near_duplicate": 3}}, "candidates": 5, "curve": [1, 2.5, None]}
    write_summary(storage, "abc", summary)
    assert summary_record(storage) == {"decision": "abc", **summary}
    written = (tmp_path / SUMMARY).read_bytes()
    assert SUMMARY == "selection/summary.json"
    assert json.loads(written) == summary_record(storage)
    assert written.endswith(b"}\n")
    # The order in which counts were found does not show.
    write_summary(storage, "abc", dict(reversed(summary.items())))
    assert (tmp_path / SUMMARY).read_bytes() == written
    write_summary(storage, "def", {})
    assert summary_record(storage) == {"decision": "def"}


def test_what_is_not_json_is_no_summary(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    write_summary(storage, "abc", {})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_summary(storage, "def", {"effective": float("nan")})
    assert summary_record(storage) == {"decision": "abc"}
    for damaged in (b"", b"{", b"[1]"):
        (tmp_path / SUMMARY).write_bytes(damaged)
        assert summary_record(storage) == {}
