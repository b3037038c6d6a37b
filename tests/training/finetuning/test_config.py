"""The finetune section: defaults of the release, and mistakes that are said before anything starts."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tests.fixtures.finetuning import TASKS, finetune_config, settings
from training.finetuning.config import FinetuneConfig


def test_defaults_are_the_released_recipe() -> None:
    config = FinetuneConfig.model_validate({"steps": 20_000, "task": {"kind": "seg"}, "batch": {"size": 8}})
    optimiser = config.optimiser
    assert (optimiser.lr, optimiser.final_lr, optimiser.warmup) == (5e-4, 0.0, 500)
    assert (optimiser.betas, optimiser.weight_decay) == ((0.9, 0.999), 0.1)
    assert config.size == (1024, 768)
    assert config.checkpoint.keep_best == 1


@pytest.mark.parametrize("task", TASKS)
def test_a_task_has_its_setup(task: str) -> None:
    config = finetune_config(task)
    assert config.setup().name == task
    assert config.task.kind == task
    assert FinetuneConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 2}, "optimiser.warmup is 2 of 2 steps: give fewer"),
        ({"model": {"backbone": "sapiens2_0.4b_seg"}}, "is a task model; give its backbone, 'sapiens2_0.4b'"),
        ({"model": {"backbone": "huge"}}, "there is no model 'huge'"),
        ({"model": {"overrides": {"widht": 3}}}, "did you mean 'width'"),
        ({"size": [60, 48]}, "60"),
        ({"batch": {"size": 4, "micro": 3}}, "batch.micro 3 does not divide batch.size 4"),
        ({"model": {"from_pretrain": True, "initial_weights": "x"}}, "give one of them"),
        ({"task": {"kind": "gaze"}}, "gaze"),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as error:
        finetune_config(**changes)
    assert message in str(error.value)


def several(*tasks: str, **more: Any) -> dict[str, Any]:
    return {"kind": "multi", "tasks": [{"kind": task} for task in tasks], **more}


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (several("seg", "seg"), "tasks are seg, seg: give each task once"),
        (several("seg"), "at least 2 items"),
        (several("seg", "pose", weights={"parts": 2}), "weights has parts, and the tasks are seg, pose"),
        (several("seg", "pose", weights={"pose": 0}), "greater than 0"),
        (several("seg", "multi"), "'multi' found"),
        ({"kind": "pose", "pose": {"ohkm_from": 0.8}}, "ohkm_from is 0.8, but loss is mse: give loss: ohkm"),
    ],
)
def test_mistakes_of_a_task_are_named(task: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as error:
        FinetuneConfig.model_validate(settings() | {"task": task})
    assert message in str(error.value)


def test_several_tasks_have_their_setups_in_order() -> None:
    setup = FinetuneConfig.model_validate(settings() | {"task": several("seg", "pose", "normal")}).setup()
    assert setup.name == "multi"
    assert list(setup.parts) == ["seg", "pose", "normal"]
    assert all(part.name == task and part.size == setup.size for task, part in setup.parts.items())


def test_the_identity_is_what_fixes_the_losses() -> None:
    base = finetune_config()
    free: list[dict[str, Any]] = [
        {"workers": 2},
        {"checkpoint": {"every": 1}},
        {"watch": {"every": 7}},
        {"engine": {"activation_checkpointing": True}},
    ]
    for changes in free:
        assert finetune_config(**changes).identity() == base.identity()
    binding: list[dict[str, Any]] = [
        {"seed": 4}, {"data": {"train": 13}}, {"optimiser": {"layer_decay": 0.8}},
        {"engine": {"precision": "bfloat16"}},
        {"model": {"freeze_backbone": True}}, {"task": {"frames": {"flip_probability": 1.0}}}, {"batch": {"micro": 4}},
    ]  # fmt: skip
    for changes in binding:
        assert finetune_config(**changes).identity() != base.identity(), changes
    assert finetune_config("pose", batch={"micro": 4}).identity() == finetune_config("pose").identity()
    # Of several, the micro-batch is free where it is for all.
    for tasks, free_ in (("pose+seg", True), ("pose+normal", False)):
        assert (finetune_config(tasks, batch={"micro": 4}).identity() == finetune_config(tasks).identity()) == free_
    weighted = finetune_config("pose+seg", task={"weights": {"seg": 2.0}})
    assert weighted.identity() != finetune_config("pose+seg").identity()


def test_a_run_that_goes_on_needs_no_initial_weights() -> None:
    config = FinetuneConfig.model_validate(settings(model={"initial_weights": "gone.safetensors"}))
    assert config.resumed().model.initial_weights is None


@pytest.mark.parametrize("task", ["pointmap", "seg+pointmap"])
def test_pictures_that_are_too_small_for_a_head_are_refused(task: str) -> None:
    with pytest.raises(ValueError, match=r"size 64x48 with task pointmap: grid 4x3 shrinks to 1x1 .* more than 8 tok"):
        finetune_config(task, size=[64, 48])
