"""One directory is one run: foreign folders, other inputs, a second process, setting aside."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.plan import CHUNKS
from pipeline.rundir import RUN_FILE, RunConflictError, RunDirectory
from pipeline.storage import DamagedFileError, RemovedError, Storage

IDENTITY: dict[str, Any] = {"chunk_rows": 256, "source": {"kind": "folder", "path": "/pool/one", "extensions": ["jpg"]}}
HOLD = """
import sys
from pipeline.rundir import RunDirectory
run = RunDirectory(sys.argv[1], {"chunk_rows": 1}, new=len(sys.argv) > 2)
print("held", flush=True)
sys.stdin.read()
"""


def open_and_close(output: Path, identity: dict[str, Any] | None = None, new: bool = False) -> bool:
    run = RunDirectory(str(output), identity or IDENTITY, new)
    run.close()
    return run.resumed


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_new_directory_is_made_and_the_same_run_resumes(tmp_path: Path) -> None:
    output = tmp_path / "deep" / "er" / "run"
    assert open_and_close(output) is False
    record = json.loads((output / RUN_FILE).read_bytes())
    assert record == {"format": 1, "identity": IDENTITY}
    before = files(output)
    assert open_and_close(output, json.loads(json.dumps(IDENTITY))) is True
    assert files(output) == before


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    assert open_and_close(tmp_path) is False


@pytest.mark.parametrize("new", [False, True])
def test_a_directory_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path, new: bool) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "photos").mkdir()
    for _ in range(2):
        with pytest.raises(
            RunConflictError, match=r"not empty and not a Populace run \(it holds photos, thesis\.tex\)"
        ):
            open_and_close(tmp_path, new=new)
    assert sorted(os.listdir(tmp_path)) == ["photos", "thesis.tex"]


@pytest.mark.parametrize("text", ["[]", "{}", "nonsense", '{"format": 1}'])
def test_a_run_json_of_somebody_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / RUN_FILE).write_text(text)
    with pytest.raises(RunConflictError, match=r"run\.json was not written by Populace"):
        open_and_close(tmp_path)


def listed(output: str | Path) -> None:
    """What makes a run directory binding: its source was listed."""
    Storage(output).write_bytes(CHUNKS, b"")


def test_what_was_never_listed_binds_nobody_and_leaves_nothing_behind(tmp_path: Path) -> None:
    open_and_close(tmp_path / "run")
    units = tmp_path / "run" / "work" / "plan" / "units"
    units.mkdir(parents=True)
    (units / "unit-00000000.parquet").write_bytes(b"of the other source")
    other = {**IDENTITY, "chunk_rows": 8}
    assert open_and_close(tmp_path / "run", other) is False
    assert not (tmp_path / "run/work").exists()
    # Scores bind as well, also where the plan was removed.
    Storage(tmp_path / "run").write_bytes("work/scores/part-00000000.parquet", b"")
    with pytest.raises(RunConflictError, match="chunk_rows"):
        open_and_close(tmp_path / "run")


def test_another_source_is_refused_with_both_values(tmp_path: Path) -> None:
    open_and_close(tmp_path / "run")
    listed(tmp_path / "run")
    other = {**IDENTITY, "chunk_rows": 8, "source": {**IDENTITY["source"], "path": "/pool/two", "more": 1}}
    before = files(tmp_path / "run")
    for _ in range(2):
        with pytest.raises(RunConflictError) as caught:
            open_and_close(tmp_path / "run", other)
        message = str(caught.value)
        assert "source.path: the run has '/pool/one', now given '/pool/two'" in message
        assert "chunk_rows: the run has 256, now given 8" in message
        assert "source.more: the run has None, now given 1" in message
        assert "extensions" not in message
        assert "--new" in message
    assert files(tmp_path / "run") == before
    assert open_and_close(tmp_path / "run") is True


def test_a_run_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / RUN_FILE).write_text(json.dumps({"format": 99, "identity": IDENTITY}))
    with pytest.raises(RunConflictError, match="written in run format 99, this version writes 1"):
        open_and_close(tmp_path)


def test_new_sets_aside_without_deleting(tmp_path: Path) -> None:
    output = tmp_path / "run"
    states = []
    for number in range(3):
        other = {**IDENTITY, "chunk_rows": number + 1}
        assert open_and_close(output, other, new=True) is False
        (output / "ledger").mkdir()
        (output / "ledger" / "part").write_text(str(number))
        states.append(files(output))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.old-1", "run.old-2"]
    assert [files(tmp_path / name) for name in ("run.old-1", "run.old-2", "run")] == states


def test_new_on_nothing_is_a_new_run(tmp_path: Path) -> None:
    assert open_and_close(tmp_path / "run", new=True) is False
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_only_one_process_at_a_time_also_after_sigkill(tmp_path: Path) -> None:
    output = tmp_path / "run"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(output)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        for new in (False, True):
            with pytest.raises(RunConflictError, match="another process is working in"):
                open_and_close(output, {"chunk_rows": 1}, new=new)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert open_and_close(output, {"chunk_rows": 1}) is True


def test_a_child_of_the_run_does_not_keep_the_lock(tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path / "run"), IDENTITY)
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        run.close()
        assert open_and_close(tmp_path / "run") is True
    finally:
        child.kill()
        child.wait()


def test_what_a_killed_run_left_half_written_is_swept(tmp_path: Path) -> None:
    output = tmp_path / "run"
    open_and_close(output)
    (output / "work").mkdir()
    (output / "work" / ".part.1234.tmp").write_bytes(b"half")
    open_and_close(output)
    assert not list((output / "work").iterdir())


def test_a_place_that_cannot_be_a_directory_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for output in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunConflictError, match=r"cannot be used as a run directory: .*Give a directory"):
            open_and_close(output)


def test_a_run_on_an_object_store(tmp_path: Path) -> None:
    output = f"memory://{tmp_path.name}/run"
    run = RunDirectory(output, IDENTITY)
    assert (run.resumed, run.log_folder) == (False, None)
    listed(output)
    assert RunDirectory(output, IDENTITY).resumed is True
    with pytest.raises(RunConflictError, match="chunk_rows"):
        RunDirectory(output, {**IDENTITY, "chunk_rows": 3})
    with pytest.raises(RunConflictError, match="--new cannot set aside a run on an object store"):
        RunDirectory(output, IDENTITY, new=True)


def test_logs_have_a_folder(tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path / "run"), IDENTITY)
    assert run.log_folder == tmp_path / "run" / "logs"
    assert run.log_folder.is_dir()
    run.close()


# Removed while it is written


def test_a_run_that_is_removed_meanwhile_is_not_made_again_and_begins_again(tmp_path: Path) -> None:
    output = tmp_path / "run"
    run = RunDirectory(str(output), IDENTITY)
    run.storage.write_bytes("work/scores/one", b"1")
    shutil.rmtree(output)
    for storage in (run.storage, run.storage.child("work/select/x"), pickle.loads(pickle.dumps(run.storage))):
        with pytest.raises(RemovedError, match=r"run was removed while the run was writing into it .*begins again"):
            storage.write_bytes("two", b"2")
    assert not output.exists()
    # Whatever the first error is, that is what it comes from.
    with pytest.raises(RemovedError), run.working():
        raise DamagedFileError("work/plan/units/unit-00000000.parquet is damaged")
    assert open_and_close(output) is False


def test_another_error_stays_what_it_is_and_the_lock_is_let_go(tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path / "run"), IDENTITY)
    with pytest.raises(ValueError, match="of its own"), run.working():
        raise ValueError("of its own")
    assert open_and_close(tmp_path / "run") is True


@pytest.mark.parametrize("new", [False, True])
def test_what_an_interrupted_removal_left_is_taken(tmp_path: Path, new: bool) -> None:
    for name in (
        "work/scores/part-00000000.parquet",
        "work/plan/source.json",
        "logs/populace.log",
        "shards.incomplete/a",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert open_and_close(tmp_path, new=new) is False
    assert sorted(os.listdir(tmp_path)) == [".lock", "logs", "run.json"]


@pytest.mark.parametrize("name", ["work/report.docx", "logs/nginx.log", "ledger/part", "work/plan/chunks.parquet"])
def test_what_may_be_somebody_elses_or_a_result_is_not_taken(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text("years of work")
    with pytest.raises(RunConflictError, match="is not empty and not a Populace run"):
        open_and_close(tmp_path)
    assert (tmp_path / name).read_text() == "years of work"


def test_a_folder_of_a_run_may_be_a_link_to_another_disk(tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path / "run"), IDENTITY)
    (tmp_path / "disk").mkdir()
    (tmp_path / "run/work").symlink_to(tmp_path / "disk")
    run.storage.write_bytes("work/scores/one", b"1")
    run.storage.child("work").write_bytes("scores/two", b"2")
    assert sorted(files(tmp_path / "disk")) == ["scores/one", "scores/two"]
    run.close()
