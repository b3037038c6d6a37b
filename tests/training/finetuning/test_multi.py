"""Several tasks on one backbone: each has its own image of a picture, its head, and its share of the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.fixtures.finetuning import finetune_config
from training.data.keys import generator
from training.data.sampler import BatchPlan
from training.finetuning.model import FinetuneModel
from training.finetuning.multi import MultiSetup
from training.finetuning.pictures import open_pictures
from training.finetuning.samples import Samples, TaskBatch
from training.models.task_model import MultiTaskModel

TURNED = {"rotation_probability": 1.0}


def drawn(*tasks: str) -> tuple[MultiSetup, Any]:
    """Dense tasks whose frames are turned by a drawn angle."""
    config = finetune_config("+".join(tasks))
    section = config.task.model_dump(mode="json")
    section["tasks"] = [part | {"frames": part["frames"] | TURNED} for part in section["tasks"]]
    setup = type(config).model_validate(config.model_dump(mode="json") | {"task": section}).setup()
    assert isinstance(setup, MultiSetup)
    return setup, open_pictures(config.data)[0]


def batch_of(config: Any, micro: int = 4) -> TaskBatch:
    return Samples(open_pictures(config.data)[0], config.setup(), 1, BatchPlan(4, micro), 0)[0, 0]


def test_each_task_has_an_image_and_targets_of_its_own() -> None:
    setup, pictures = drawn("normal", "albedo")
    made = setup.sample(pictures[0], generator(5))
    assert made is not None
    images, targets = made
    assert (images.shape, images.dtype) == ((2, 64, 48, 3), np.uint8)
    assert not np.array_equal(images[0], images[1])
    assert {name.partition("/")[0] for name in targets} == {"normal", "albedo"}
    # What another task draws moves nothing.
    other, _ = drawn("normal", "seg")
    again = other.sample(pictures[0], generator(5))
    assert again is not None
    assert np.array_equal(again[0][0], images[0])
    assert torch.equal(again[1]["normal/normals"], targets["normal/normals"])


def test_a_picture_of_no_use_for_one_task_is_passed_over_by_all() -> None:
    config = finetune_config("seg+normal")
    setup = config.setup()
    pictures = open_pictures(config.data)[0]
    assert setup.sample(pictures[0], generator(1)) is not None
    setup.parts["normal"].task.config = setup.parts["normal"].task.config.model_copy(update={"min_pixels": 10**6})
    assert setup.sample(pictures[0], generator(1)) is None
    assert setup.parts["seg"].sample(pictures[0], generator(1)) is not None


def test_one_pass_of_the_backbone_gives_what_each_head_gives_alone() -> None:
    config = finetune_config("pose+pointmap", size=[144, 112], data={"people": {"size": [144, 112]}})
    torch.manual_seed(0)
    model = FinetuneModel(config)
    images = batch_of(config).images
    passes = []
    model.student.backbone.register_forward_hook(lambda *_: passes.append(1))
    poses, (points, scales) = model.predict(images)
    assert len(passes) == 1
    assert isinstance(model.student, MultiTaskModel)
    for number, (task, output) in enumerate({"pose": (poses,), "pointmap": (points, scales)}.items()):
        alone = FinetuneModel(finetune_config(task, size=[144, 112]))
        alone.student.load_state_dict(model.student.single(task).state_dict())
        expected = alone.predict(images[:, number])
        for mine, own in zip(output, expected if isinstance(expected, tuple) else (expected,), strict=True):
            torch.testing.assert_close(mine, own, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="in the order of the tasks pose, pointmap"):
        model.predict(images[:, :1])


def test_the_loss_is_the_weighted_sum_of_the_tasks() -> None:
    config = finetune_config("seg+normal", task={"weights": {"normal": 0.25}})
    torch.manual_seed(0)
    model, batch = FinetuneModel(config), batch_of(config)
    output = model(batch.images, batch.targets)
    assert model.terms == ("seg/cross_entropy", "seg/dice", "normal/cosine", "normal/l1", "normal/gradient")
    outputs, total = model.predict(batch.images), 0.0
    for (task, part), own, weight in zip(model.setup.parts.items(), outputs, (1.0, 0.25), strict=True):
        targets = {name.removeprefix(f"{task}/"): value for name, value in batch.targets.items() if task in name}
        losses = part.loss(own, targets)
        total += weight * sum(value.item() for name, value in losses.items() if "loss" in name)
    assert output.loss.item() == pytest.approx(total, rel=1e-5)
    output.loss.backward()
    assert all(value.grad is not None for value in model.parameters())


def test_the_backbone_is_frozen_checkpointed_and_decayed_by_layers_as_with_one_task() -> None:
    plain, frozen, again = (
        FinetuneModel(finetune_config("seg+normal", **changes))
        for changes in ({}, {"model": {"freeze_backbone": True}}, {"engine": {"activation_checkpointing": True}})
    )
    optimiser = finetune_config().optimiser
    scales = {group["scale"] for group in plain.parameter_groups(optimiser)}
    assert len(scales) == 3 + 2  # the blocks, what is before, what is after
    trained = {name for name, value in frozen.student.named_parameters() if value.requires_grad}
    assert trained == {name for name, _ in plain.student.named_parameters() if name.startswith("decode_head.")}
    assert {group["scale"] for group in frozen.parameter_groups(optimiser)} == {1.0}
    again.student.load_state_dict(plain.student.state_dict())
    batch = batch_of(finetune_config("seg+normal"))
    gradients = []
    for model in (plain, again):
        model.train()
        model(batch.images, batch.targets).loss.backward()
        gradients.append(torch.cat([value.grad.flatten() for value in model.parameters() if value.grad is not None]))
    torch.testing.assert_close(gradients[0], gradients[1])
