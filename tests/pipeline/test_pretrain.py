"""`populace pretrain`: one command that starts, continues and finishes a training run, and says what is wrong."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import main
from pipeline.lineage import LINEAGE
from pipeline.rundir import lock_folder
from pipeline.storage import Storage
from tests.fixtures.exports import export
from tests.fixtures.pretraining import losses, make_corpus, settings
from training.engine.checkpoint import complete_checkpoints
from training.watch.events import METRICS_FILE, read_metrics

pytestmark = pytest.mark.usefixtures("one_thread")

Captured = pytest.CaptureFixture[str]
STEPS = 6


def write_recipe(output: Path, **changes: Any) -> str:
    data = {"output": str(output), "pretrain": settings(None, steps=STEPS, **changes)}
    path = output.parent / f"{output.name}.yaml"
    path.write_text(yaml.safe_dump(data))
    return str(path)


def curated(output: Path, first: int = 0) -> Path:
    """A folder with shards, as curation leaves them; `first` tells one corpus from another."""
    if first:
        export(output / "shards", (10, 10, 10, 10), first=first, size=(80, 60))
    else:
        make_corpus(output / "shards")
    return output


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a finished run. Not to be changed."""
    output = curated(tmp_path_factory.mktemp("finished") / "run")
    assert main(["pretrain", write_recipe(output), "--quiet"]) == 0
    return output


def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def refused(capsys: Captured, *arguments: str, code: int = 2) -> str:
    """What a command that does not start says."""
    assert main(["pretrain", *arguments, "--quiet"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err


def test_it_trains_on_the_shards_of_the_run(finished: Path) -> None:
    folder = finished / "pretrain"
    assert {"run.json", "checkpoints", METRICS_FILE, LINEAGE, "logs"} <= set(os.listdir(folder))
    steps = [record["step"] for record in read_metrics(Storage(folder))]
    assert steps == list(range(STEPS))
    identity = json.loads((folder / "run.json").read_bytes())["identity"]
    assert identity["steps"] == STEPS
    assert "engine" not in identity


def test_a_finished_run_is_left_as_it_is(finished: Path, tmp_path: Path, capsys: Captured) -> None:
    output = copied(finished, tmp_path)
    before = {path: path.read_bytes() for path in (output / "pretrain").rglob("*") if path.is_file()}
    assert main(["pretrain", write_recipe(output), "--json"]) == 0
    captured = capsys.readouterr()
    outcome = json.loads(captured.out)
    assert (outcome["ended"], outcome["steps"], outcome["trained"], outcome["images"]) == ("finished", STEPS, 0, 48)
    first, *_, last = read_metrics(Storage(output / "pretrain"))
    assert outcome["first"]["loss/reconstruction"] == first["loss/reconstruction"]
    assert outcome["last"]["collapse/teacher_entropy"] == last["collapse/teacher_entropy"]
    assert {path: path.read_bytes() for path in (output / "pretrain").rglob("*") if path.is_file()} == before


def damage(checkpoint: Path) -> Path:
    """Flip bits in the middle of a checkpoint's tensors; their file keeps its size."""
    (file,) = checkpoint.glob("rank-*.safetensors")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)
    return file


def test_a_damaged_last_checkpoint_is_no_finished_run(finished: Path, tmp_path: Path, capsys: Captured) -> None:
    output = copied(finished, tmp_path)
    before = (output / "pretrain" / LINEAGE).read_bytes()
    *_, earlier, last = sorted((output / "pretrain/checkpoints").iterdir())
    whole = {path.name: path.read_bytes() for path in last.iterdir()}
    damaged = damage(last)
    assert main(["pretrain", write_recipe(output), "--json"]) == 0
    captured = capsys.readouterr()
    outcome = json.loads(captured.out)
    assert (outcome["ended"], outcome["steps"], outcome["trained"]) == ("finished", STEPS, STEPS - 3)
    assert f"checkpoints/{last.name}/{damaged.name} is damaged" in captured.err
    assert "The steps from 3 on are trained again." in captured.err
    assert {path.name: path.read_bytes() for path in last.iterdir()} == whole
    assert (output / "pretrain" / LINEAGE).read_bytes() == before
    # Without a whole one to go on from, it says so and leaves everything as it is.
    damage(earlier)
    damage(last)
    assert main(["pretrain", write_recipe(output)]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "its last checkpoint is not whole, nor is an earlier one" in said
    assert "train again with --new" in said


def test_the_summary_names_losses_and_places(finished: Path, tmp_path: Path, capsys: Captured) -> None:
    output = copied(finished, tmp_path)
    assert main(["pretrain", write_recipe(output)]) == 0
    printed = capsys.readouterr().out
    for word in ("already finished", "reconstruction", "distillation", "teacher entropy", METRICS_FILE, "checkpoints/"):
        assert word in printed


def test_sigterm_saves_and_the_same_command_continues(finished: Path, tmp_path: Path, capsys: Captured) -> None:
    output = curated(tmp_path / "run")
    recipe = write_recipe(output, checkpoint={"every": 100})
    metrics = output / "pretrain" / METRICS_FILE

    def terminate() -> None:
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < 2:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=terminate)
    thread.start()
    assert main(["pretrain", recipe]) == 143
    thread.join()
    messages = capsys.readouterr().err
    assert "saving after this step" in messages
    assert "the same command continues there" in messages
    (checkpoint,) = complete_checkpoints(Storage(output / "pretrain"))
    assert 2 <= checkpoint.step < STEPS
    assert not (output / "pretrain" / LINEAGE).exists()
    assert main(["pretrain", recipe]) == 0
    assert f"goes on from step {checkpoint.step}" in capsys.readouterr().err
    assert losses(output / "pretrain") == losses(finished / "pretrain")


def test_other_settings_are_refused_with_their_keys(finished: Path, tmp_path: Path, capsys: Captured) -> None:
    output = copied(finished, tmp_path)
    message = refused(capsys, write_recipe(output), "pretrain.optimiser.lr=0.002", "pretrain.seed=4")
    assert "optimiser.lr: the run has 0.003, now given 0.002" in message
    assert "seed: the run has 3, now given 4" in message
    assert "--new" in message


def test_what_only_says_where_and_how_fast_may_change(finished: Path, tmp_path: Path) -> None:
    output = copied(finished, tmp_path)
    changes = ["pretrain.batch.micro=4", "pretrain.checkpoint.every=2", "pretrain.watch.every=2", "ray.num_cpus=1"]
    assert main(["pretrain", write_recipe(output), *changes, "--quiet"]) == 0


def test_other_shards_are_refused(finished: Path, tmp_path: Path, capsys: Captured) -> None:
    output = copied(finished, tmp_path)
    shutil.rmtree(output / "shards")
    curated(output, first=100)
    assert "corpus: the run has " in refused(capsys, write_recipe(output))


def test_new_sets_the_training_run_aside_and_no_shard(finished: Path, tmp_path: Path) -> None:
    output = copied(finished, tmp_path)
    assert main(["pretrain", write_recipe(output), "pretrain.seed=4", "--new", "--quiet"]) == 0
    assert losses(output / "pretrain.old-1") == losses(finished / "pretrain")
    assert losses(output / "pretrain") != losses(finished / "pretrain")
    assert (output / "shards/manifest.json").exists()


def test_without_shards_it_says_to_curate(tmp_path: Path, capsys: Captured) -> None:
    message = refused(capsys, write_recipe(tmp_path / "run"))
    assert "shards holds no finished corpus: run `populace curate`" in message
    assert not (tmp_path / "run").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, capsys: Captured) -> None:
    output = curated(tmp_path / "run")
    (output / "pretrain").mkdir()
    (output / "pretrain/thesis.tex").write_text("years of work")
    assert "is not empty and not a Populace run" in refused(capsys, write_recipe(output))


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["pretrain=null", "source={kind: folder, path: p}"], "pretrain: missing"),
        (["pretrain.engine.use_gpu=true"], "torch finds no GPU here"),
        (["pretrain.data.corpora=[{path: nowhere}]"], "nowhere/manifest.json cannot be read"),
        (["pretrain.optimiser.warmup=6"], "the learning rate would never"),
    ],
)
def test_mistakes_in_the_set_up_are_exit_2(
    tmp_path: Path, capsys: Captured, overrides: list[str], expected: str
) -> None:
    assert expected in refused(capsys, write_recipe(curated(tmp_path / "run")), *overrides)


def test_more_workers_than_the_machine_has_are_refused_at_once(
    tmp_path: Path, capsys: Captured, ray_cluster: str
) -> None:
    changes = ["pretrain.engine={kind: zero3, workers: 4}", "pretrain.batch.micro=1"]
    assert "need 4 CPU, but Ray has 2 here" in refused(capsys, write_recipe(curated(tmp_path / "run")), *changes)


def test_a_second_process_is_refused(tmp_path: Path, capsys: Captured) -> None:
    output = curated(tmp_path / "run")
    lock = lock_folder(output)
    try:
        assert f"another process is working in {output}" in refused(capsys, write_recipe(output))
    finally:
        lock.close()


def test_a_loss_that_is_not_finite_ends_the_run_with_a_message(tmp_path: Path, capsys: Captured) -> None:
    output = curated(tmp_path / "run")
    recipe = write_recipe(output, optimiser={"lr": 1e30, "clip_norm": None, "warmup": 0})
    message = refused(capsys, recipe, code=1)
    assert "the loss of step" in message or "the gradient norm of step" in message
    assert "GuardStopError" in (output / "pretrain/logs/populace.log").read_text()


# Lineage


def test_one_record_has_what_was_curated_and_what_was_trained(finished: Path, tmp_path: Path) -> None:
    output = copied(finished, tmp_path)
    (output / "pretrain" / LINEAGE).unlink()
    curation = {"format": 1, "ledger": {"rows": 3}, "pretrain": "of before"}
    (output / LINEAGE).write_text(json.dumps(curation))
    assert main(["pretrain", write_recipe(output), "--quiet"]) == 0
    whole = json.loads((output / LINEAGE).read_bytes())
    part = whole.pop("pretrain")
    assert whole == {"format": 1, "ledger": {"rows": 3}}
    assert part == json.loads((output / "pretrain" / LINEAGE).read_bytes())
    manifest = (output / "shards/manifest.json").read_bytes()
    assert part["corpus"]["manifest_sha256"] == [hashlib.sha256(manifest).hexdigest()]
    assert (part["steps"], part["images"], part["corpus"]["samples"]) == (STEPS, STEPS * 8, 40)
    assert part["packages"].keys() >= {"torch", "deepspeed"}
    folder = output / "pretrain" / part["checkpoint"]["name"]
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())]
    assert part["checkpoint"]["sha256"] == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_the_same_run_elsewhere_has_the_same_record(finished: Path, tmp_path: Path) -> None:
    output = curated(tmp_path / "elsewhere")
    assert main(["pretrain", write_recipe(output), "--quiet"]) == 0
    for name in (LINEAGE, f"pretrain/{LINEAGE}"):
        assert (output / name).read_bytes() == (finished / name).read_bytes()


def test_what_was_trained_on_a_corpus_elsewhere_stays_on_record(tmp_path: Path) -> None:
    corpus = curated(tmp_path / "other") / "shards"
    recipe = write_recipe(tmp_path / "run", data={"corpora": [{"path": str(corpus)}]})
    assert main(["pretrain", recipe, "--quiet"]) == 0
    part = json.loads((tmp_path / "run" / LINEAGE).read_bytes())["pretrain"]
    assert part["corpus"]["own_shards"] is False
    assert str(tmp_path) not in json.dumps(part)


# ZeRO-3


def test_two_workers_train_as_one_process_does(finished: Path, tmp_path: Path, ray_cluster: str) -> None:
    output = curated(tmp_path / "run")
    changes = {"engine": {"kind": "zero3", "workers": 2, "precision": "float32"}}
    assert main(["pretrain", write_recipe(output, **changes), "--quiet"]) == 0
    ours, expected = losses(output / "pretrain"), losses(finished / "pretrain")
    assert [line["step"] for line in ours] == list(range(STEPS))
    for line, other in zip(ours, expected, strict=True):
        assert line["loss/total"] == pytest.approx(other["loss/total"], rel=1e-3)
    # The engine may change inside a run: one process continues from what two workers left.
    assert main(["pretrain", write_recipe(output), "--quiet"]) == 0
