"""Fine-tuning learns every task, goes on as if nothing had happened, and keeps what its metric likes best."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from pipeline.storage import Storage
from tests.fixtures.finetuning import finetune_config, losses, run, trainer
from training.data.labelled import Picture, pointmap
from training.engine.checkpoint import complete_checkpoints, load_whole
from training.finetuning.measure import measured
from training.finetuning.pictures import open_pictures
from training.finetuning.trainer import MEASURED, PROBE, FinetuneTrainer
from training.tasks.dense_pictures import normals_picture
from training.tasks.frames import stretch
from training.tasks.keypoint_sets import keypoint_set
from training.tasks.parts import RELEASED_NAMES
from training.tasks.warp import warp
from training.watch.pictures import FOLDER as PICTURES
from training.watch.pictures import picture_name


class InMemory(list[Picture]):
    """Pictures that are rendered once."""

    fingerprint = "in memory"


def overfitted(task: str, folder: Path, pictures: int, steps: int, size: tuple[int, int]) -> FinetuneTrainer:
    """Trained on a few pictures without augmentation."""
    config = finetune_config(
        task,
        steps=steps,
        size=list(size),
        data={"train": pictures, "held_out": 1, "people": {"size": list(size)}},
        batch={"size": pictures, "micro": pictures},
        optimiser={"lr": 3e-3, "warmup": 5, "layer_decay": 1.0, "weight_decay": 0.0},
        checkpoint={"every": steps},
        watch={"every": 5},
    )
    made = trainer(config, folder)
    made.train_pictures = InMemory(made.train_pictures[number] for number in range(pictures))  # type: ignore[assignment]
    made.run()
    lines = losses(folder)
    assert lines[-1]["loss/total"] < 0.5 * lines[0]["loss/total"]
    return made


def figures(made: FinetuneTrainer) -> dict[str, float]:
    return measured(made.model, made.setup, made.train_pictures, made.parallel)


def constant(made: FinetuneTrainer, kind: str) -> dict[str, float]:
    """The figures of the best constant: the mean over the pixels of people."""
    metric = made.setup.new_metric()

    def true(picture: Picture) -> np.ndarray:
        if kind == "points":
            return pointmap(picture.depth, picture.intrinsics)
        return np.asarray(getattr(picture, kind))

    pictures = list(made.train_pictures)
    mean = np.concatenate([true(picture)[picture.mask] for picture in pictures]).mean(0)
    for picture in pictures:
        filled = np.broadcast_to(mean, (*picture.size, 3)).astype(np.float32)
        metric.update(filled, true(picture), picture.mask)
    return metric.compute()


def test_normals_are_overfitted(tmp_path: Path) -> None:
    made = overfitted("normal", tmp_path, 3, 40, (64, 48))
    # A wrong axis or a flip of the target's sign is 90 degrees and more.
    assert figures(made)["mean_deg"] < 0.4 * constant(made, "normals")["mean_deg"]


def test_albedo_is_overfitted(tmp_path: Path) -> None:
    made = overfitted("albedo", tmp_path, 3, 100, (64, 48))
    assert figures(made)["mae"] < 0.6 * constant(made, "albedo")["mae"]


def test_points_are_overfitted(tmp_path: Path) -> None:
    made = overfitted("pointmap", tmp_path, 2, 60, (144, 112))
    assert figures(made)["l2"] < 0.8 * constant(made, "points")["l2"]


def test_parts_are_overfitted(tmp_path: Path) -> None:
    made = overfitted("seg", tmp_path, 4, 50, (64, 48))
    parts = np.concatenate([picture.parts.ravel() for picture in made.train_pictures if picture.parts is not None])
    names, counts = np.unique(parts, return_counts=True)
    found = figures(made)
    # The largest class alone has all its own pixels, and no other.
    assert found["macc"] > 0.5 > 4 / len(names)
    assert found["miou"] > 3 * counts.max() / counts.sum() / len(names)


def overfitted_with_flips(
    task: str, folder: Path, steps: int, batch: int, lr: float, changes: dict[str, Any]
) -> tuple[dict[str, float], dict[str, float]]:
    """Figures of two pictures and of their mirror images, after training that mirrors them half of the time."""
    config = finetune_config(
        task,
        steps=steps,
        task=changes,
        data={"train": 2, "held_out": 1, "people": {"portraits": 0.0}},
        batch={"size": batch, "micro": batch},
        optimiser={"lr": lr, "warmup": 5, "layer_decay": 1.0, "weight_decay": 0.0},
        checkpoint={"every": steps},
        watch={"every": steps},
    )
    made = trainer(config, folder)
    pictures = [made.train_pictures[number] for number in range(2)]
    made.train_pictures = InMemory(pictures)  # type: ignore[assignment]
    made.run()
    mirrored = InMemory(map(mirror_image, pictures))
    return figures(made), measured(made.model, made.setup, mirrored, made.parallel)


def mirror_image(picture: Picture) -> Picture:
    """Left is right and right is left, by the names of parts and keypoints and not by the permutations under test."""

    def other_side(names: Sequence[str]) -> list[int]:
        exchanged = {"left": "right", "right": "left", "Left": "Right", "Right": "Left"}
        swapped = [re.sub("|".join(exchanged), lambda match: exchanged[match[0]], name) for name in names]
        return [list(names).index(name) for name in swapped]

    assert picture.parts is not None
    assert picture.keypoints is not None
    assert picture.boxes is not None
    width = picture.size[1]
    keypoints, boxes = picture.keypoints[:, other_side(keypoint_set("sapiens308").names)], picture.boxes.copy()
    keypoints[..., 0] = width - 1 - keypoints[..., 0]
    boxes[:, [0, 2]] = width - picture.boxes[:, [2, 0]]
    parts = np.array(other_side(RELEASED_NAMES), np.uint8)[picture.parts[:, ::-1]]
    image = np.ascontiguousarray(picture.image[:, ::-1])
    return replace(picture, image=image, parts=parts, keypoints=keypoints, boxes=boxes)


def test_parts_are_overfitted_with_their_mirror_images(tmp_path: Path) -> None:
    flips = {"frames": {"flip_probability": 0.5}}
    for found in overfitted_with_flips("seg", tmp_path, 90, 2, 4e-3, flips):
        assert found["macc"] > 0.85  # about 0.4 of the mirror images where left and right are not exchanged


def test_keypoints_are_overfitted_with_their_mirror_images(tmp_path: Path) -> None:
    flips = {"pose": {"frames": {"flip_probability": 0.5}}}
    for found in overfitted_with_flips("pose", tmp_path, 100, 4, 4e-3, flips):
        assert found["pck_box@0.2"] > 0.85  # about 0.6 of the mirror images where left and right are not exchanged


def test_keypoints_are_overfitted(tmp_path: Path) -> None:
    made = overfitted("pose", tmp_path, 4, 80, (64, 48))
    found = figures(made)
    # 0.2 untrained.
    assert found["pck_box@0.2"] > 0.8
    assert found["pck_box@0.05"] > 0.5


OHKM = {"pose": {"loss": "ohkm", "ohkm_from": 0.5, "hardest": 3}}
"""In the last half: after it was stopped."""


@pytest.mark.parametrize(("task", "changes"), [("pose", OHKM), ("seg+normal", {})])
def test_a_run_that_was_stopped_ends_with_the_same_bits(task: str, changes: dict[str, Any], tmp_path: Path) -> None:
    config = finetune_config(task, steps=5, workers=0, task=changes)
    assert run(config, tmp_path / "whole").ended == "finished"
    assert run(config, tmp_path / "cut", stop_after=2).ended == "stopped"
    assert run(config, tmp_path / "cut").ended == "finished"
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    last = Path("checkpoints/step-000000005")
    assert (tmp_path / "cut" / last / PROBE).read_bytes() == (tmp_path / "whole" / last / PROBE).read_bytes()
    (weights,) = (tmp_path / "whole" / last).glob("rank-*.safetensors")
    theirs = load_file(tmp_path / "cut" / last / weights.name)
    assert all(torch.equal(value, theirs[name]) for name, value in load_file(weights).items())


@pytest.mark.parametrize("task", ["pose", "seg"])
def test_micro_batches_do_not_change_losses_that_are_means_over_pictures(task: str, tmp_path: Path) -> None:
    """Normals, points and albedo are means over the pixels of people in a micro-batch: there it is part of the run."""
    first = []
    for micro in (4, 2):
        config = finetune_config(task, steps=3, batch={"size": 4, "micro": micro})
        assert "micro" not in config.identity()["batch"]
        run(config, tmp_path / str(micro))
        first.append(losses(tmp_path / str(micro))[0]["loss/total"])
    assert first[0] == pytest.approx(first[1], rel=1e-5)
    assert finetune_config("normal").identity()["batch"] == {"size": 4, "micro": 2}


def test_every_layer_has_its_rate(tmp_path: Path) -> None:
    config = finetune_config(steps=4, optimiser={"lr": 1e-3, "warmup": 2, "layer_decay": 0.5})
    made = trainer(config, tmp_path)
    optimizer: Any = made.parallel._optimizer  # type: ignore[attr-defined]
    rates = made.rates(1)
    made.parallel.micro_step(*_batch(made), last=True)
    made.parallel.step(rates.lr, rates.head_lr, 1.0, lambda norm: True)
    by_name = {
        name: group["lr"]
        for group in optimizer.param_groups
        for parameter in group["params"]
        for name, own in made.model.student.named_parameters()
        if own is parameter
    }
    # Halfway from a thousandth to the peak; three blocks, the last of them one layer below the head.
    expected = 1e-3 * (1e-3 + 0.999 / 2)
    assert by_name["decode_head.conv_normal.weight"] == pytest.approx(expected)
    for block in range(3):
        assert by_name[_weight(by_name, block)] == (pytest.approx(expected * 0.5 ** (3 - block)))
    assert min(by_name.values()) == pytest.approx(expected * 0.5**4)  # the embedding


def _weight(names: dict[str, float], block: int) -> str:
    return next(name for name in names if name.startswith(f"backbone.blocks.{block}."))


def _batch(made: FinetuneTrainer) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    with made.batches() as batches:
        batch = next(batches)
    return batch.images, batch.targets


def test_the_rate_rises_from_a_thousandth_and_falls_linearly_to_nothing(tmp_path: Path) -> None:
    made = trainer(finetune_config(steps=10, optimiser={"lr": 1.0, "warmup": 4, "final_lr": 0.0}), tmp_path)
    rates = [made.rates(step).lr for step in range(11)]
    assert rates[0] == 1e-3
    assert rates[4] == 1.0
    assert np.diff(rates[:5]) == pytest.approx([0.999 / 4] * 4)
    assert np.diff(rates[4:]) == pytest.approx([-1 / 6] * 6)


def test_a_frozen_backbone_stays_and_is_saved(tmp_path: Path) -> None:
    config = finetune_config(steps=3, model={"freeze_backbone": True})
    made = trainer(config, tmp_path)
    before = {name: value.clone() for name, value in made.model.student.named_parameters()}
    made.run()
    (checkpoint,) = complete_checkpoints(Storage(tmp_path))
    saved = load_whole(Storage(tmp_path), checkpoint, "student/")
    assert saved.keys() == before.keys()
    for name, value in before.items():
        assert torch.equal(saved[name], value) == name.startswith("backbone."), name
    moments = [name for name in checkpoint.record["tensors"] if name.startswith("exp_avg/")]
    assert moments
    assert all(name.startswith("exp_avg/decode_head.") for name in moments)
    # And it goes on.
    assert run(config, tmp_path).steps == 3


def test_the_best_checkpoint_by_the_metric_is_kept(tmp_path: Path) -> None:
    """The rate is so high that training gets worse somewhere; whatever the figures, the best is there at the end."""
    changes = {"checkpoint": {"every": 1, "keep_last": 1}, "optimiser": {"lr": 0.03, "warmup": 1}}
    changes["watch"] = {"pictures_every": 0}
    run(finetune_config("seg", steps=6, **changes), tmp_path)
    records = [json.loads(path.read_bytes()) for path in sorted((tmp_path / MEASURED).iterdir())]
    assert [record["step"] for record in records] == list(range(7))
    assert records[0]["metric"] == "miou"
    assert not (tmp_path / PICTURES).exists()  # none were wanted
    kept = {item.step for item in complete_checkpoints(Storage(tmp_path))}
    best = max(records[1:], key=lambda record: (record["score"], record["step"]))
    assert best["step"] in kept
    assert 6 in kept
    assert len(kept) <= 2
    for item in complete_checkpoints(Storage(tmp_path)):
        assert json.loads((tmp_path / item.name / PROBE).read_bytes()) == records[item.step]


def test_the_hardest_keypoints_alone_count_from_a_step_on(tmp_path: Path) -> None:
    """Half of four steps are as without; then three of the keypoints count, which have more loss than the mean."""
    plain = finetune_config("pose", steps=4)
    run(finetune_config("pose", steps=4, task=OHKM), tmp_path / "ohkm")
    run(plain, tmp_path / "mse")
    hard, soft = (losses(tmp_path / name) for name in ("ohkm", "mse"))
    assert hard[:2] == soft[:2]
    assert hard[2]["loss/heatmap"] > 1.2 * soft[2]["loss/heatmap"]
    assert hard[3]["loss/heatmap"] > 1.2 * soft[3]["loss/heatmap"]
    assert finetune_config("pose", steps=4, task=OHKM).identity() != plain.identity()


def test_smaller_is_better_where_the_metric_is_an_error(tmp_path: Path) -> None:
    run(finetune_config("normal", steps=3), tmp_path)
    record = json.loads((tmp_path / "checkpoints/step-000000003" / PROBE).read_bytes())
    assert record["score"] == -record["figures"]["mean_deg"]


def test_every_measurement_is_drawn(tmp_path: Path) -> None:
    """Input, prediction and truth of the first held-out pictures, one below the other."""
    config = finetune_config("normal", steps=3, data={"held_out": 3}, watch={"pictures_count": 2, "picture_height": 32})
    run(config, tmp_path)
    first, last = (np.asarray(Image.open(tmp_path / picture_name(step))) for step in (0, 3))
    assert first.shape == last.shape == (2 * 32 + 4, 3 * 24 + 2 * 4, 3)
    columns = [slice(start, start + 24) for start in (0, 28, 56)]
    same = [np.array_equal(first[:, column], last[:, column]) for column in columns]
    assert same == [True, False, True]
    picture = open_pictures(config.data)[1][0]
    assert picture.normals is not None
    small = stretch(picture.size, (32, 24))
    assert np.array_equal(first[:32, columns[0]], warp(picture.image, small, "auto"))
    assert np.array_equal(first[:32, columns[2]], warp(normals_picture(picture.normals, picture.mask), small, "auto"))
