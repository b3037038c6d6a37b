"""The command: exit codes, results on stdout and nothing else there, messages on stderr without a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import build_parser, main
from pipeline.config import load_config
from pipeline.rundir import RunDirectory
from tests.fixtures import pool

ROOT = Path(__file__).resolve().parents[2]
POLICY = {"too_small": {"min": 64}, "no_person": None, "person_too_small": None}
Captured = pytest.CaptureFixture[str]


def write_recipe(folder: Path, **sections: Any) -> str:
    # Starting a worker takes longer than a small pool does.
    data = {
        "source": {"kind": "folder"}, "chunk_rows": 16, "policy": POLICY, "ray": {"max_workers": 1}, **sections
    }  # fmt: skip
    (folder / "recipe.yaml").write_text(yaml.safe_dump(data))
    return str(folder / "recipe.yaml")


def usage_error(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code


# Arguments


@pytest.mark.parametrize(
    "arguments", [["--help"], ["curate", "--help"], ["config", "show", "--help"], ["pretrain", "--help"]]
)
def test_help_is_a_result(arguments: list[str], capsys: Captured) -> None:
    assert usage_error(*arguments) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("usage: populace")
    assert captured.err == ""


@pytest.mark.parametrize(
    "arguments",
    [[], ["curat"], ["config"], ["curate"], ["funnel"], ["funnel", "a", "b"], ["curate", "c.yaml", "--nwe"],
     ["curate", "c.yaml", "--json", "word"], ["config", "schema", "a=1"], ["funnel", "run", "a=1"],
     ["curate", "c.yaml", "-x=1"]],
)  # fmt: skip
def test_a_wrong_command_is_exit_2_with_the_usage(arguments: list[str], capsys: Captured) -> None:
    assert usage_error(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: populace" in captured.err
    assert "error: " in captured.err


def test_overrides_may_stand_before_and_after_flags(tmp_path: Path, capsys: Captured) -> None:
    recipe = write_recipe(tmp_path)
    overrides = ["source.path=p", "output=o", "chunk_rows=9"]
    orders = [
        [recipe, *overrides, "--json"], ["--json", recipe, *overrides], [recipe, "--json", *overrides],
        [recipe, overrides[0], "--json", *overrides[1:]],
    ]  # fmt: skip
    for order in orders:
        assert main(["config", "show", *order]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["source"]["path"], shown["output"], shown["chunk_rows"]) == ("p", "o", 9)


def test_the_help_of_every_command_names_every_argument() -> None:
    commands = build_parser()._subparsers
    assert commands is not None
    (action,) = commands._group_actions
    assert isinstance(action.choices, dict)
    assert list(action.choices) == [
        "curate", "pretrain", "finetune", "run", "export-weights", "check-data", "pack", "predict", "evaluate",
        "verify", "funnel", "duplicates", "config", "doctor", "demo", "models",
    ]  # fmt: skip


# Configurations


@pytest.mark.parametrize("recipe", sorted(path.name for path in (ROOT / "configs").glob("*.yaml")))
def test_every_recipe_is_shown_without_saying_which_images_and_where_to(recipe: str, capsys: Captured) -> None:
    assert main(["config", "show", str(ROOT / "configs" / recipe), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["output"] == ""
    assert shown["source"] is None or shown["source"]["path"] == ""
    task = (shown["finetune"] or {}).get("task", {})
    for section in task.get("tasks", [task] if task else []):
        assert section["augmentation"]["brightness"] == 32.0
        assert section["kind"] == "pose" or 0 <= section["frames"]["flip_probability"] <= 1


def test_show_masks_credentials_inside_of_urls(tmp_path: Path, capsys: Captured) -> None:
    corpora = "pretrain.data.corpora=[{path: 'https://user:SECRET@example.org/shards?sig=SECRET'}]"
    for flags in ([], ["--json"]):
        assert (
            main(
                ["config", "show", write_recipe(tmp_path), "output=o", "source.path=s3://u:SECRET@b/x", corpora, *flags]
            )
            == 0
        )
        shown = capsys.readouterr().out
        assert "SECRET" not in shown
        assert "https://example.org/shards?sig=REDACTED" in shown


@pytest.mark.parametrize(
    "output",
    ["s3://AKIASECRET:SE/CRETSECRET@bucket/run", "s3://bucket/run?X-Amz-Signature=SECRETSECRET&part=SECRETSEC"],
)
def test_no_credentials_of_the_output_are_printed(
    tmp_path: Path, capsys: Captured, output: str, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "logs"))
    (tmp_path / "logs").mkdir()
    pool.write_folder(tmp_path / "pool", 3)
    recipe = write_recipe(tmp_path)
    assert main(["curate", recipe, f"source.path={tmp_path}/pool", f"output={output}"]) in (1, 2)
    assert main(["funnel", output]) in (1, 2)
    assert main(["config", "show", recipe, f"source.path={tmp_path}/pool", f"output={output}"]) == 0
    captured = capsys.readouterr()
    said = [captured.out, captured.err, *(path.read_text() for path in (tmp_path / "logs").iterdir())]
    assert all("SECRET" not in text for text in said)
    assert captured.err.count("error: ") == 2


def test_an_unexpected_error_is_one_line_with_its_log(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr("pipeline.storage.Storage.exists", fail)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(["funnel", "run"]) == 1
    captured = capsys.readouterr()
    (log,) = tmp_path.iterdir()
    assert captured.err.startswith("error: TimeoutError in test_cli.py, line ")
    assert captured.err.splitlines()[0].endswith(f" (log: {log})")
    assert "Traceback" in log.read_text()


def test_a_full_disk_behind_stdout_is_an_error_in_one_line(finished: tuple[Path, dict[str, Any], str]) -> None:
    folder, _, _ = finished
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pipeline.cli", "funnel", f"{folder}/run", "--json"], cwd=ROOT, stdout=full,
            stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("error: No space left on device (free some space, or give another place) (log: ")
    assert len(done.stderr.splitlines()) == 2


def test_schema_and_show_print_results_only(tmp_path: Path, capsys: Captured) -> None:
    assert main(["config", "schema"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["title"] == "PopulaceConfig"
    assert captured.err == ""
    recipe = write_recipe(tmp_path)
    assert main(["config", "show", recipe, "source.path=007", "output=o"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    (tmp_path / "again.yaml").write_text(captured.out)
    assert load_config(tmp_path / "again.yaml") == load_config(recipe, ["source.path=007", "output=o"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["config", "show", "absent.yaml"], "error: cannot read the configuration 'absent.yaml'"),
        (["config", "show", "RECIPE", "polcy.x=1"], "unknown key polcy: did you mean policy?"),
        (["config", "show", "RECIPE", "=1"], "error: override '=1' is not of the form key.path=value"),
        (["curate", "RECIPE", "source.path=/no/such/pool"], "error: source.path: /no/such/pool does not exist."),
        (["curate", "RECIPE", "source.path=POOL", "policy.nsfw.max=0.5"], "error: policy.nsfw is set, and"),
        (["curate", "RECIPE", "source.path=POOL", "select.quality=[pixel]"], "'pixel' is no number that"),
        (
            ["curate", "RECIPE", "source.path=POOL", "scorers.person={kind: yolo, weights: /no/w.onnx}"],
            "/no/w.onnx",
        ),
        (["curate", "RECIPE", "source.path=POOL", "output=FILE"], "cannot be used as a run directory"),
        (["curate", "RECIPE", "source.path=POOL", "output=FOREIGN"], "is not empty and not a Populace run"),
    ],
)  # fmt: skip
def test_what_a_user_can_mend_is_exit_2_one_message_and_nothing_started(
    tmp_path: Path, capsys: Captured, arguments: list[str], message: str
) -> None:
    pool.write_folder(tmp_path / "pool", 3)
    (tmp_path / "file").write_text("x")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis").write_text("x")
    recipe = write_recipe(tmp_path, output=str(tmp_path / "run"))
    places = {
        "RECIPE": recipe, "POOL": str(tmp_path / "pool"), "FILE": str(tmp_path / "file"),
        "FOREIGN": str(tmp_path / "foreign"),
    }  # fmt: skip
    for name, place in places.items():
        arguments = [argument.replace(name, place) for argument in arguments]
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err
    assert not (tmp_path / "run").exists()


# Runs


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, ray_cluster: str) -> tuple[Path, dict[str, Any], str]:
    """A finished run in a folder with its pool and recipe, its funnel, and what was printed on stderr."""
    folder = tmp_path_factory.mktemp("cli")
    expected = pool.write_folder(folder / "pool", 30)
    kept = expected.pop("kept")
    recipe = write_recipe(folder, output=str(folder / "run"))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main(["curate", recipe, "--json", f"source.path={folder}/pool"]) == 0
    assert json.loads(out.getvalue()) == {"inputs": 30, "kept": kept, "dropped": dict(expected)}
    return folder, json.loads(out.getvalue()), err.getvalue()


def test_a_run_prints_its_funnel_on_stdout_and_its_progress_on_stderr(
    finished: tuple[Path, dict[str, Any], str],
) -> None:
    folder, _, stderr = finished
    for stage in ("list", "annotate", "select", "export"):
        assert any(line.startswith(stage) for line in stderr.splitlines())
    assert "Traceback" not in stderr
    assert len(stderr.splitlines()) < 12  # no wall of Ray's messages
    names = {path.name for path in (folder / "run").iterdir() if not path.name.startswith(".")}
    assert names == {"run.json", "work", "ledger", "selection", "shards", "lineage.json", "logs"}


def test_funnel_as_json_and_as_a_table(finished: tuple[Path, dict[str, Any], str], capsys: Captured) -> None:
    folder, counts, _ = finished
    assert main(["funnel", str(folder / "run"), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == counts
    assert list(json.loads(captured.out)) == ["inputs", "kept", "dropped"]
    assert main(["funnel", f"{folder}/run/"]) == 0
    captured = capsys.readouterr()
    assert "exact_duplicate" in captured.out
    assert captured.err == ""


def test_funnel_of_no_run_and_of_an_unfinished_run(tmp_path: Path, capsys: Captured) -> None:
    for place in (tmp_path, tmp_path / "absent"):
        assert main(["funnel", str(place), "--json"]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(f"error: {place} is not a run directory")
    RunDirectory(str(tmp_path / "run"), {"chunk_rows": 1}).close()
    assert main(["funnel", str(tmp_path / "run"), "--json"]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "has no finished ledger yet: run `populace curate`" in captured.err


def test_a_second_call_without_json_shows_the_outcome(
    finished: tuple[Path, dict[str, Any], str], capsys: Captured
) -> None:
    folder, _, _ = finished
    assert main(["curate", f"{folder}/recipe.yaml", f"source.path={folder}/pool", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "Funnel" in captured.out
    assert f"{folder}/run/ledger/" in captured.out


@pytest.mark.usefixtures("ray_cluster")
def test_what_changes_under_a_run_is_found(tmp_path: Path, capsys: Captured) -> None:
    pool.write_folder(tmp_path / "pool", 12)
    recipe = write_recipe(tmp_path, output=str(tmp_path / "run"))
    command = ["curate", recipe, f"source.path={tmp_path}/pool", "--json", "--quiet"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["inputs"] == 12

    # Other bytes of the same length: only export can see it. The run fails.
    victim = tmp_path / "pool" / "00" / "00001.jpg"
    data = victim.read_bytes()
    victim.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert main([*command, "export.shard_samples=5"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: the run failed: ")
    assert "the source changed under the run" in captured.err
    assert "The same command continues where it stopped" in captured.err
    assert "Traceback" not in captured.err
    assert "Traceback" in (tmp_path / "run" / "logs" / "populace.log").read_text()

    # Another listing, or other chunks: refused before anything starts.
    (tmp_path / "pool" / "new.jpg").write_bytes(data)
    for override, message in (
        ("export.title=Other", "the source has changed"),
        ("chunk_rows=3", "chunk_rows: the run has 16, now given 3"),
    ):
        assert main([*command, override]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert message in captured.err
        assert "--new" in captured.err

    assert main([*command, "--new"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"] == 13
    assert (tmp_path / "run.old-1" / "ledger").is_dir()


@pytest.mark.parametrize(
    ("sent", "code", "message"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_has_its_exit_code_and_the_run_goes_on_later(
    sent: signal.Signals, code: int, message: str, tmp_path: Path, ray_cluster: str, capsys: Captured
) -> None:
    pool.write_folder(tmp_path / "pool", 20)
    recipe = write_recipe(tmp_path, output=str(tmp_path / "run"))
    arguments = ["curate", recipe, f"source.path={tmp_path}/pool", "--json"]
    running = subprocess.Popen(
        [sys.executable, "-m", "pipeline.cli", *arguments, f"ray.address={ray_cluster}"], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        # Tests that a shell runs in the background ignore SIGINT, and so would what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "run" / "work" / "plan").exists() and running.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        running.send_signal(sent)
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == code
    assert out == ""
    assert f"{message}; the same command continues where it stopped" in err
    assert "Traceback" not in err
    assert main([*arguments, "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"] == 20


def test_a_reader_that_goes_away_is_no_error(finished: tuple[Path, dict[str, Any], str]) -> None:
    folder, _, _ = finished
    for arguments in (["config", "schema"], ["funnel", f"{folder}/run", "--json"]):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            [sys.executable, "-m", "pipeline.cli", *arguments], cwd=ROOT, stdout=write, stderr=subprocess.PIPE,
            check=False,
        )  # fmt: skip
        os.close(write)
        assert (done.returncode, done.stderr) == (0, b"")


def test_doctor_as_json(tmp_path: Path, capsys: Captured) -> None:
    code = main(["doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)
    assert code == (0 if all(item["ok"] for item in findings) else 1)
    recipe = write_recipe(tmp_path, output=str(tmp_path / "run"))
    assert main(["doctor", recipe, "--json", "source.path=/no/such/pool"]) == 1
    captured = capsys.readouterr()
    assert not json.loads(captured.out)[-1]["ok"]
    assert captured.err == ""


def test_the_installed_command_is_this_one() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("populace")), "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "curate" in done.stdout
