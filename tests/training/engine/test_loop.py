"""Runs in one process: stopped and resumed at any step they are the run that nothing disturbed."""

from __future__ import annotations

import json
import logging
import math
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from pipeline.storage import Storage
from tests.fixtures.exports import export
from tests.fixtures.pretraining import losses, make_corpus, pretrain_config, run, trainer
from training.data.corpus import open_corpus
from training.engine.checkpoint import CheckpointError, complete_checkpoints, load_tensors, load_whole
from training.engine.single import SingleProcess
from training.engine.stop import StopSignal
from training.objectives.schedules import warmup_cosine
from training.pretraining.config import PretrainConfig
from training.watch.events import read_metrics
from training.watch.guard import GuardStopError

STEPS = 5
DIVERGES = {"optimiser": {"lr": 1e36, "warmup": 0}}
# Skips every step whose loss is above that of the last one that was taken.
SKIPS = {"guard": {"on_spike": "skip", "spike_factor": 1.0001, "warmup": 0, "window": 1}}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of 40 pictures."""
    folder = tmp_path_factory.mktemp("corpus") / "shards"
    make_corpus(folder)
    return folder


def config_of(corpus: Path, **changes: Any) -> PretrainConfig:
    """Five steps of four pictures."""
    return pretrain_config(corpus, **{"steps": STEPS, "batch": {"size": 4}, "checkpoint": {"every": 2}, **changes})


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that went through."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run(config_of(corpus), folder)
    return folder


def newest(folder: Path | str) -> dict[str, Tensor]:
    """All tensors of the newest checkpoint."""
    storage = Storage(folder)
    last = complete_checkpoints(storage)[-1]
    return load_whole(storage, last, "") | load_tensors(storage, last)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Bit-equal."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def assert_same_run(folder: Path | str, other: Path | str) -> None:
    """Losses of all steps and the state at the end are bit-equal."""
    assert losses(folder) == losses(other)
    assert same(newest(folder), newest(other))


def states(folder: Path) -> list[dict[str, Tensor]]:
    """The tensors of all checkpoints, oldest first."""
    storage = Storage(folder)
    return [load_whole(storage, item, "") | load_tensors(storage, item) for item in complete_checkpoints(storage)]


# Resuming ---


def test_losses_are_finite_and_all_there(undisturbed: Path) -> None:
    lines = losses(undisturbed)
    assert [line["step"] for line in lines] == list(range(STEPS))
    wanted = {"step", "loss/total", "loss/reconstruction", "loss/distillation", "loss/koleo", "optimiser/grad_norm"}
    wanted |= {f"collapse/{name}" for name in ("teacher_entropy", "active_prototypes", "cls_std", "neighbour_distance")}
    for line in lines:
        assert line.keys() == wanted
        assert all(math.isfinite(value) for value in line.values())
        weighted = line["loss/reconstruction"] + 0.4 * line["loss/distillation"] + 0.04 * line["loss/koleo"]
        assert line["loss/total"] == pytest.approx(weighted)
    assert lines[0]["loss/distillation"] == pytest.approx(math.log(64), abs=0.1)
    assert len({line["loss/total"] for line in lines}) == STEPS


@pytest.mark.parametrize("background", [True, False])
def test_a_run_that_stops_after_every_step_is_the_undisturbed_one(
    corpus: Path, undisturbed: Path, tmp_path: Path, background: bool
) -> None:
    config = config_of(corpus, checkpoint={"every": 2, "background": background})
    for done in range(1, STEPS):
        outcome = run(config, tmp_path, stop_after=done)
        assert (outcome.steps, outcome.ended, outcome.reason) == (done, "stopped", "enough")
        assert outcome.checkpoint == f"checkpoints/step-{done:09d}"
    outcome = run(config, tmp_path)
    assert (outcome.steps, outcome.ended, outcome.reason) == (STEPS, "finished", "")
    assert_same_run(tmp_path, undisturbed)


@pytest.mark.parametrize("dies", [1, 3, 4])
def test_a_run_that_dies_goes_on_from_its_last_checkpoint(
    corpus: Path, undisturbed: Path, tmp_path: Path, dies: int
) -> None:
    def die(step: int, *_: object) -> None:
        if step == dies:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config_of(corpus), tmp_path, report=die)
    run(config_of(corpus), tmp_path)
    assert_same_run(tmp_path, undisturbed)


@pytest.mark.parametrize(
    "changes",
    [
        {"distillation": {"weight": 0}, "koleo": {"weight": 0}},
        {"reconstruction": {"weight": 0}, "distillation": {"centring": "sinkhorn_knopp", "patch_weight": 0.5}},
        {"watch": SKIPS},
    ],
)
def test_other_objectives_resume_exactly_too(corpus: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    config = config_of(corpus, **changes)
    run(config, tmp_path / "through")
    for done in (2, 3):
        run(config, tmp_path / "stopped", stop_after=done)
    run(config, tmp_path / "stopped")
    assert_same_run(tmp_path / "stopped", tmp_path / "through")
    skipped = [line["optimiser/skipped"] for line in read_metrics(Storage(tmp_path / "stopped"))]
    assert skipped == [line["optimiser/skipped"] for line in read_metrics(Storage(tmp_path / "through"))]
    assert (skipped[-1] > 0) is ("watch" in changes)


def test_an_object_store_holds_a_run(corpus: Path, undisturbed: Path) -> None:
    root = f"memory://{uuid.uuid4().hex}"
    run(config_of(corpus), root, stop_after=3)
    run(config_of(corpus), root)
    assert_same_run(root, undisturbed)


def test_a_finished_run_trains_no_more(corpus: Path, tmp_path: Path) -> None:
    config = config_of(corpus, steps=3)
    first, before = run(config, tmp_path), losses(tmp_path)
    assert run(config, tmp_path) == first
    assert losses(tmp_path) == before


def flip(file: Path) -> None:
    """Change a bit in the midst of a file."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)


def cut(file: Path) -> None:
    """Lose the end of a file."""
    file.write_bytes(file.read_bytes()[:-5])


@pytest.mark.parametrize("damage", [flip, cut])
@pytest.mark.parametrize("name", ["rank-00000-of-00001.safetensors", "state.safetensors"])
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(
    corpus: Path, undisturbed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Any, name: str
) -> None:
    run(config_of(corpus), tmp_path, stop_after=2)
    run(config_of(corpus), tmp_path, stop_after=3)
    damage(tmp_path / "checkpoints" / "step-000000003" / name)
    with caplog.at_level(logging.WARNING):
        run(config_of(corpus), tmp_path)
    (warning,) = [record.message for record in caplog.records if record.name == "training.engine.keeper"]
    assert "resumed from checkpoints/step-000000002" in warning
    assert "step-000000003" in warning
    assert_same_run(tmp_path, undisturbed)


@pytest.mark.parametrize("damage", [flip, cut])
def test_a_run_whose_checkpoints_are_all_damaged_does_not_begin_again_silently(
    corpus: Path, tmp_path: Path, damage: Any
) -> None:
    run(config_of(corpus), tmp_path, stop_after=2)
    damage(tmp_path / "checkpoints" / "step-000000002" / "rank-00000-of-00001.safetensors")
    with pytest.raises(CheckpointError, match=r"no checkpoint of this run can be read: .*step-000000002"):
        run(config_of(corpus), tmp_path)
    assert (tmp_path / "checkpoints" / "step-000000002").exists()


def test_checkpoints_of_other_shards_or_another_model_are_refused(corpus: Path, tmp_path: Path) -> None:
    run(config_of(corpus), tmp_path / "run", stop_after=1)
    export(tmp_path / "shards", (10, 10), first=100, size=(80, 60))
    with pytest.raises(CheckpointError, match="other data"):
        run(config_of(tmp_path / "shards"), tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"another model: .*last_layer"):
        run(config_of(corpus, model={"prototypes": 32}), tmp_path / "run")


# Checkpoints ---


def test_a_request_to_stop_saves_at_once(corpus: Path, tmp_path: Path) -> None:
    stop = StopSignal()
    stop.request("SIGTERM")
    outcome = trainer(config_of(corpus, checkpoint={"every": 100}), tmp_path, stop).run()
    assert (outcome.steps, outcome.ended, outcome.reason) == (1, "stopped", "SIGTERM")
    assert [item.step for item in complete_checkpoints(Storage(tmp_path))] == [1]
    assert len(losses(tmp_path)) == 1


def test_checkpoints_are_kept_by_policy(corpus: Path, tmp_path: Path) -> None:
    run(config_of(corpus, checkpoint={"every": 1, "keep_last": 1, "keep_every": 3}), tmp_path)
    assert [item.step for item in complete_checkpoints(Storage(tmp_path))] == [3, 5]
    (last,) = [item for item in complete_checkpoints(Storage(tmp_path)) if item.step == 5]
    assert (last.state["position"], last.state["adam_step"]) == (20, 5)


def test_one_that_is_written_in_the_foreground_is_there_before_the_next_step(corpus: Path, tmp_path: Path) -> None:
    stop, found = StopSignal(), []
    made = trainer(config_of(corpus, checkpoint={"every": 2, "background": False}), tmp_path, stop)
    stop.watch(lambda: found.append([item.step for item in complete_checkpoints(Storage(tmp_path))]))
    made.run()
    assert found == [[], [], [2], [2], [2, 4]]


@contextmanager
def slow_checkpoints(storage: Storage) -> Iterator[None]:
    """Let the files of checkpoints take some time."""
    write = storage.open_write

    @contextmanager
    def slow(name: str) -> Iterator[IO[bytes]]:
        if name.startswith("checkpoints/"):
            time.sleep(0.2)
        with write(name) as file:
            yield file

    storage.open_write = slow  # type: ignore[method-assign]
    yield


def test_slow_storage_holds_nothing_back_but_the_next_checkpoint(
    corpus: Path, undisturbed: Path, tmp_path: Path
) -> None:
    made = trainer(config_of(corpus), tmp_path)
    with slow_checkpoints(made.storage):
        made.run()
    assert_same_run(tmp_path, undisturbed)


def test_an_error_while_writing_ends_the_run(corpus: Path, tmp_path: Path) -> None:
    made = trainer(config_of(corpus), tmp_path)

    def full(name: str, write: Any = made.storage.write_bytes) -> None:
        raise OSError(28, "No space left on device")

    writer = made.keeper._writer
    writer.storage = Storage(tmp_path)
    writer.storage.write_bytes = full  # type: ignore[method-assign,assignment]
    with pytest.raises(OSError, match="No space left"):
        made.run()
    assert complete_checkpoints(Storage(tmp_path)) == []


# Steps ---


def test_accumulation_changes_losses_by_rounding_only(corpus: Path, tmp_path: Path) -> None:
    found = {}
    for micro in (8, 4, 2):
        folder = tmp_path / str(micro)
        # From weights that tell pictures apart: at the start KoLeo divides by distances of 1e-5.
        run(pretrain_config(corpus, steps=4, batch={"micro": micro}, optimiser={"warmup": 1}), folder)
        found[micro] = losses(folder)
    assert found[8] != found[2]
    for micro in (4, 2):
        for one, other in zip(found[micro], found[8], strict=True):
            for name in ("reconstruction", "distillation"):
                assert one[f"loss/{name}"] == pytest.approx(other[f"loss/{name}"], rel=1e-3)
            assert one["loss/koleo"] == pytest.approx(other["loss/koleo"], rel=2e-2)
        first = {name: value for name, value in found[micro][0].items() if name.startswith("loss/")}
        assert first == pytest.approx({name: found[8][0][name] for name in first}, rel=1e-4)


def test_every_sample_comes_once_per_epoch(corpus: Path, tmp_path: Path) -> None:
    config = pretrain_config(corpus, steps=10, views={"local_count": 1})
    everyone = set(open_corpus(config.data).ids(range(40)))
    seen: list[str] = []
    for done in (3, 10):
        stop = StopSignal()
        made = trainer(config, tmp_path, stop)
        stop.watch(lambda made=made, done=done: "enough" if made.state.step + 1 >= done else None)
        prepare = made.parallel.model.prepare

        def watched(batch: Any, prepare: Any = prepare) -> Any:
            seen.extend(batch.ids)
            return prepare(batch)

        made.parallel.model.prepare = watched  # type: ignore[method-assign]
        made.run()
    assert len(seen) == 80
    assert set(seen[:40]) == set(seen[40:]) == everyone
    assert seen[:40] != seen[40:]


def test_the_teacher_is_the_moving_average_of_the_student_at_every_step(corpus: Path, tmp_path: Path) -> None:
    save_all = {"every": 1, "keep_last": 50}
    run(config_of(corpus, checkpoint=save_all, ema={"momentum": 0.9, "final_momentum": 1.0}), tmp_path)
    momenta = [line["optimiser/momentum"] for line in read_metrics(Storage(tmp_path))]
    assert momenta[0] == 0.9
    assert momenta == sorted(set(momenta))
    saved = states(tmp_path)
    for before, after, momentum in zip(saved, saved[1:], momenta[1:], strict=False):
        for name in before:
            if name.startswith("teacher/"):
                student = after[name.replace("teacher/", "student/")]
                wanted = momentum * before[name].double() + (1 - momentum) * student.double()
                torch.testing.assert_close(after[name].double(), wanted, rtol=1e-5, atol=1e-7)
                assert not torch.equal(after[name], before[name]), name
        assert not torch.equal(before["centre"], after["centre"])


def test_rates_follow_the_schedule_and_prototypes_are_held(corpus: Path, tmp_path: Path) -> None:
    config = config_of(corpus, optimiser={"freeze_last_layer": 3}, checkpoint={"every": 1, "keep_last": 50})
    start = SingleProcess(config).model.student.projection
    assert start is not None
    run(config, tmp_path)
    rates = [line["optimiser/lr"] for line in read_metrics(Storage(tmp_path))]
    assert rates == [warmup_cosine(step, peak=3e-3, final=1e-7, warmup=2, total=STEPS) for step in range(STEPS)]
    name = "projection.last_layer.weight"
    moved = [not torch.equal(state[f"student/{name}"], start.last_layer.weight) for state in states(tmp_path)]
    assert moved == [False, False, False, True, True]
    assert torch.equal(states(tmp_path)[2][f"teacher/{name}"], start.last_layer.weight)


def test_pictures_are_drawn(corpus: Path, tmp_path: Path) -> None:
    run(config_of(corpus, watch={"pictures_every": 2, "pictures_count": 3}), tmp_path)
    files = sorted((tmp_path / "pictures").iterdir())
    assert [file.name for file in files] == [f"step-{step:08d}.png" for step in (1, 3, 4)]
    with Image.open(files[0]) as picture:
        assert picture.size == (4 * 48 + 3 * 4, 3 * 64 + 2 * 4)
        assert len(picture.getcolors(1 << 20) or ()) > 100
    assert files[0].read_bytes() != files[1].read_bytes()


def test_pictures_do_not_change_the_run(corpus: Path, undisturbed: Path, tmp_path: Path) -> None:
    run(config_of(corpus, watch={"pictures_every": 1}), tmp_path)
    assert losses(tmp_path) == losses(undisturbed)


def test_samples_that_cannot_be_read_are_counted_also_after_a_stop(tmp_path: Path) -> None:
    bad = dict.fromkeys((2, 13, 25), b"no picture")
    export(tmp_path / "shards", (10, 10, 10), size=(80, 60), contents=bad)
    config = config_of(tmp_path / "shards", views={"local_count": 1}, steps=8)
    run(config, tmp_path / "through")
    run(config, tmp_path / "stopped", stop_after=5)
    run(config, tmp_path / "stopped")
    counts = [
        [line["data/replaced"] for line in read_metrics(Storage(tmp_path / name))] for name in ("through", "stopped")
    ]
    assert counts[0] == counts[1]
    assert counts[0] == sorted(counts[0])
    assert counts[0][-1] >= 3


def test_bfloat16_trains(corpus: Path, undisturbed: Path, tmp_path: Path) -> None:
    run(config_of(corpus, engine={"precision": "bfloat16"}), tmp_path)
    for low, high in zip(losses(tmp_path), losses(undisturbed), strict=True):
        for name in ("reconstruction", "distillation"):
            assert low[f"loss/{name}"] == pytest.approx(high[f"loss/{name}"], rel=0.03)
    assert losses(tmp_path) != losses(undisturbed)


# The guard ---


def ids_of(config: PretrainConfig, step: int) -> list[str]:
    """The samples of a step, by the order alone."""
    corpus = open_corpus(config.data)
    size = config.batch.size
    rows, _ = corpus.order(config.seed).row(range(step * size, (step + 1) * size))
    return corpus.ids(rows)


def test_a_loss_that_is_not_finite_stops_the_run_and_puts_the_batch_on_record(corpus: Path, tmp_path: Path) -> None:
    config = config_of(corpus, checkpoint={"every": 1, "keep_last": 9}, **DIVERGES)
    made = trainer(config, tmp_path)
    with slow_checkpoints(made.storage), pytest.raises(GuardStopError, match=r"step 1 is nan.*step-1\.json"):
        made.run()
    record = json.loads((tmp_path / "incidents" / "step-1.json").read_bytes())
    assert (record["action"], record["kind"], record["losses"]["loss/total"]) == ("stop", "nonfinite", "nan")
    assert [item["id"] for item in record["samples"]] == ids_of(config, 1)
    assert [item["position"] for item in record["samples"]] == [4, 5, 6, 7]
    # The checkpoint that was being written is finished first.
    assert [item.step for item in complete_checkpoints(Storage(tmp_path))] == [1]
    assert [line["step"] for line in losses(tmp_path)] == [0]


def test_steps_that_are_not_finite_are_skipped_until_there_are_too_many(corpus: Path, tmp_path: Path) -> None:
    guard = {"on_nonfinite": "skip", "max_consecutive_skips": 2}
    config = config_of(corpus, checkpoint={"every": 1, "keep_last": 9}, watch={"guard": guard}, **DIVERGES)
    with pytest.raises(GuardStopError, match="2 steps before it were skipped in a row"):
        run(config, tmp_path)
    records = [json.loads((tmp_path / "incidents" / f"step-{step}.json").read_bytes()) for step in (1, 2, 3)]
    assert [record["action"] for record in records] == ["skip", "skip", "stop"]
    assert [[item["id"] for item in record["samples"]] for record in records] == [
        ids_of(config, step) for step in (1, 2, 3)
    ]
    saved = states(tmp_path)
    assert len(saved) == 3
    assert same(saved[0], saved[1])
    assert same(saved[0], saved[2])
    assert [line["optimiser/skipped"] for line in read_metrics(Storage(tmp_path))] == [0, 1, 2]


def test_a_skipped_step_leaves_weights_moments_teacher_and_centre_and_the_next_goes_on(
    corpus: Path, tmp_path: Path
) -> None:
    config = config_of(corpus, steps=8, checkpoint={"every": 1, "keep_last": 50}, watch=SKIPS)
    run(config, tmp_path)
    skipped = [line["optimiser/skipped"] for line in read_metrics(Storage(tmp_path))]
    saved = states(tmp_path)
    stayed = [same(before, after) for before, after in pairwise(saved)]
    assert stayed == [after > before for before, after in pairwise(skipped)]
    assert True in stayed
    assert False in stayed
    steps = [item.state["adam_step"] for item in complete_checkpoints(Storage(tmp_path))]
    assert steps == [number + 1 - left for number, left in enumerate(skipped)]
