"""A task model, or one of several tasks, and its loss, for the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from training.data.colour import normalise
from training.data.labelled import Picture
from training.engine.trainable import Trainable
from training.finetuning.head_start import start_heads
from training.finetuning.pictures import open_pictures
from training.finetuning.tasks import TaskSetup
from training.models.backbone import Backbone
from training.models.checkpoints import Gather, load_weights
from training.models.heads import build_head
from training.models.param_groups import param_groups
from training.models.task_model import MultiTaskModel, TaskModel, task_head_config
from training.models.tensor_files import open_tensors
from training.tasks.dense_losses import total_loss

if TYPE_CHECKING:
    from training.engine.config import OptimiserConfig
    from training.finetuning.config import FinetuneConfig


class TaskOutput(NamedTuple):
    """What a micro-batch gives; see `trainable.Output`."""

    loss: Tensor
    terms: Tensor


class FinetuneModel(Trainable):
    """Backbone and head as `student`, and the terms of the task's loss; of several tasks, heads and terms of all."""

    student: TaskModel | MultiTaskModel

    def __init__(self, config: FinetuneConfig) -> None:
        super().__init__()
        self.config, self.setup = config, config.setup()
        self.student = task_model(config)
        if config.model.freeze_backbone:
            self.student.backbone.requires_grad_(False)
        if config.engine.activation_checkpointing:
            self._backbone.set_activation_checkpointing("blocks")
        self.terms = tuple(
            self.setup.label(task, term) for task, part in self.setup.parts.items() for term in _names_of_terms(part)
        )

    @property
    def _backbone(self) -> Backbone:
        assert isinstance(self.student.backbone, Backbone)
        return self.student.backbone

    def weights(self) -> tuple[float, ...]:
        """All 1: the task weighs its terms itself."""
        return (1.0,) * len(self.terms)

    def parameter_groups(self, optimiser: OptimiserConfig) -> list[dict[str, Any]]:
        """By weight decay and layer, as the released recipes have them."""
        decay = getattr(optimiser, "layer_decay", 1.0)
        if self.config.model.freeze_backbone:
            decay = 1.0
        groups = param_groups(self.student, 1.0, optimiser.weight_decay, decay)
        return [
            {"params": group["params"], "weight_decay": group["weight_decay"], "scale": group["lr_scale"], "lr": 0.0}
            for group in groups
        ]

    def load_initial_weights(self, gather: Gather | None = None) -> None:
        """A backbone's weights, or those of a whole task model; of several tasks, for the head of its task.

        Heads that the file does not have begin as `model.head_start` says.
        """
        config, new = self.config, list(self.setup.parts)
        path = config.model.initial_weights
        if path is not None:
            with open_tensors(path) as stored:
                task = next((task for task in new if f"decode_head.conv_{task}.weight" in stored.tensors), new[0])
            model = self.student.single(task) if isinstance(self.student, MultiTaskModel) else self.student
            report = load_weights(model, path, allow_missing=["decode_head."], gather=gather)
            if f"decode_head.conv_{task}.weight" not in report.missing:
                new.remove(task)
        if config.model.head_start == "targets" and new:
            pictures, _ = open_pictures(config.data)
            start_heads(self.student, new, self.setup, pictures, config.seed, gather)

    def compile_blocks(self) -> None:
        """See `Trainable`."""
        for block in self._backbone.blocks:
            block.compile()

    def predict(self, images: Tensor) -> Any:
        """uint8 [B, 3, H, W] on the device -> the head's output; of T tasks, [B, T, 3, H, W] -> those of all heads."""
        return self.student(normalise(images, self.dtype))

    def predict_each(self, images: Tensor) -> tuple[Any, ...]:
        """As `predict`, alike for one task and for several: uint8 [B, T, 3, H, W] -> T outputs."""
        output = self.predict(images if isinstance(self.student, MultiTaskModel) else images[:, 0])
        return output if isinstance(self.student, MultiTaskModel) else (output,)

    def forward(self, images: Tensor, targets: dict[str, Tensor], progress: float = 0.0) -> TaskOutput:
        """The loss of a micro-batch.

        Args:
            images: as `predict` takes them.
            targets: as the task makes them, batched.
            progress: the share of the run's steps that are done.
        """
        with self.part("model"):
            output = self.predict(images)
        with self.part("loss"):
            losses = self.setup.loss(output, targets, progress)
            terms = torch.stack([losses[f"loss_{name}"].float() for name in self.terms])
        return TaskOutput(total_loss(losses), terms.detach())


def task_model(config: FinetuneConfig, device: torch.device | None = None) -> TaskModel | MultiTaskModel:
    """The network alone, with random weights; of one task, its names are those of released task models.

    Args:
        device: torch's default where None; "meta" allocates nothing.
    """
    backbone = config.model.backbone_config().replace(image_size=config.size)
    setup = config.setup()
    encoder = Backbone(backbone, device=device)
    heads = {
        task: build_head(part.head(task_head_config(task, config.model.backbone, backbone)), device=device)
        for task, part in setup.parts.items()
    }
    if isinstance(setup, TaskSetup):
        return TaskModel(encoder, heads[setup.name])
    return MultiTaskModel(encoder, heads)


def _names_of_terms(setup: TaskSetup) -> tuple[str, ...]:
    """As the task's loss gives them, on a blank picture."""
    targets = {name: value[None] for name, value in setup.task.targets(blank_picture(setup)).items()}
    height, width = (side // 8 for side in setup.size)
    count = 3
    if setup.name == "pose":
        count = targets["points"].shape[1]
    if setup.name == "seg":
        count = len(setup.task.config.classes)
    blank: Any = torch.ones(1, count, height, width)
    if setup.name == "pointmap":
        blank = blank, torch.ones(1, 1)
    return tuple(name.removeprefix("loss_") for name in setup.loss(blank, targets) if "loss" in name)


def blank_picture(setup: Any) -> Picture:
    """A picture with every label, all of them trivial."""
    height, width = setup.size
    ones = np.ones((height, width), np.float32)
    normals = np.zeros((height, width, 3), np.float32)
    normals[..., 2] = -1
    people = np.zeros((1, len(setup.task.set) if setup.name == "pose" else 1, 3), np.float32)
    people[..., :2], people[..., 2] = (width / 2, height / 2), 2
    return Picture(
        image=np.zeros((height, width, 3), np.uint8),
        mask=np.ones((height, width), bool),
        person=np.zeros((height, width), np.int16),
        parts=np.ones((height, width), np.uint8),
        normals=normals,
        depth=ones,
        albedo=np.full((height, width, 3), 0.5, np.float32),
        intrinsics=np.array([[width, 0, width / 2], [0, width, height / 2], [0, 0, 1]], np.float64),
        keypoints=people,
        boxes=np.array([[0, 0, width, height]], np.float32),
        areas=np.array([height * width], np.float32),
        id="blank",
    )
