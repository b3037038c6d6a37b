"""What a run says beside its progress goes into files of the run."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pipeline.logs import LOG_FILE, RAY_FILE, run_log

Captured = pytest.CaptureFixture[str]


def test_messages_go_to_the_log_while_the_run_lasts(tmp_path: Path) -> None:
    with run_log(tmp_path):
        logging.getLogger("pipeline.curate").warning("one")
        logging.getLogger("curation.scorers.base").warning("two ü")
    logging.getLogger("pipeline.curate").warning("three")
    lines = (tmp_path / LOG_FILE).read_text(encoding="utf-8").splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == [
        "WARNING pipeline.curate: one", "WARNING curation.scorers.base: two ü",
    ]  # fmt: skip


@pytest.mark.parametrize("local", [True, False])
def test_stdout_stays_for_results(tmp_path: Path, capsys: Captured, local: bool) -> None:
    print("before")
    with run_log(tmp_path if local else None):
        print("(raylet) a worker died")
    print("result")
    assert capsys.readouterr().out == "before\nresult\n"
    if local:
        assert (tmp_path / RAY_FILE).read_text() == "(raylet) a worker died\n"


def test_a_failure_leaves_its_traceback_and_goes_on(tmp_path: Path, capsys: Captured) -> None:
    def fail() -> None:
        with run_log(tmp_path):
            raise RuntimeError("boom")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="boom"):
            fail()
    text = (tmp_path / LOG_FILE).read_text()
    assert text.count("Traceback") == 2
    assert "RuntimeError: boom" in text
    print("still there")
    assert capsys.readouterr().out == "still there\n"


def test_no_file_without_a_message(tmp_path: Path) -> None:
    with run_log(tmp_path):
        pass
    assert not (tmp_path / LOG_FILE).exists()


@pytest.mark.usefixtures("ray_cluster")
def test_a_dead_worker_is_not_announced_on_stdout(tmp_path: Path, capsys: Captured) -> None:
    import time

    from pipeline.tasks import run_tasks
    from tests.pipeline.test_tasks import Stumble

    (tmp_path / "tries").mkdir()
    with run_log(tmp_path):
        assert list(run_tasks(Stumble(tmp_path / "tries", "kill", 1), [7])) == [(0, 7)]
        deadline = time.monotonic() + 20
        while "failed" not in (tmp_path / RAY_FILE).read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
    assert "retries remaining" in (tmp_path / RAY_FILE).read_text()
    assert capsys.readouterr().out == ""
