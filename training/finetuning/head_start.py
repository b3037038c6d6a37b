"""Where the last layer of a new head begins: at what its targets are on average.

A released head begins with Kaiming-normal weights and zero biases. Its first outputs are noise around 0, and the mean
of the targets (a normal that faces the camera, a background of two thirds of the pixels) is what the losses ask for
first. Adam moves a bias by at most the learning rate in a step, so all the layers before are bent towards a constant
instead; after that there is little left that tells pixels apart (measured on albedo: 7 % of the variance of the last
features, 88 % at the start), and hundreds of steps go by before an image matters. A run of 10,000 steps hardly notices;
one of 300 is over by then. With the mean in the bias, and small weights, it learns from the first step.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor, nn

from training.data.sampler import BatchPlan
from training.finetuning.pictures import Pictures
from training.finetuning.samples import Samples
from training.finetuning.tasks import Setup, Targets, TaskSetup
from training.models.checkpoints import Gather
from training.models.task_model import MultiTaskModel, TaskModel

PICTURES = 32
"""Of the first epoch, whose targets are averaged (ours)."""
WEIGHT = 0.05
"""Factor on the initial weights (ours): outputs begin near the mean, and image by image a little off it."""
SMOOTHING = 1e-4
"""Share of pixels that every class has at least, so that no logit is minus infinity (ours)."""


def start_heads(
    model: TaskModel | MultiTaskModel,
    tasks: list[str],
    setup: Setup,
    pictures: Pictures,
    seed: int,
    gather: Gather | None = None,
) -> None:
    """Set bias and weights of the last layers of some heads, in place.

    Args:
        tasks: whose heads are new.
        setup: of the run.
        pictures: to train on; the first of them in the order are looked at, alike on every rank.
        seed: of the run.
        gather: of parameters that are partitioned, see `load_weights`; then every rank has to call this.
    """
    targets = Samples(pictures, setup, seed, BatchPlan(PICTURES, PICTURES), 0)[0, 0].targets
    for task in tasks:
        prefix = setup.label(task, "")
        mine = {name.removeprefix(prefix): value for name, value in targets.items() if name.startswith(prefix)}
        single = model.single(task) if isinstance(model, MultiTaskModel) else model
        for layer, mean in last_layers(single.decode_head, setup.parts[task], mine):
            _set(layer, mean, gather)


def last_layers(head: nn.Module, setup: TaskSetup, targets: Targets) -> list[tuple[nn.Conv2d | nn.Linear, Tensor]]:
    """The layers of a head that give its outputs, with the mean of what each is to give, float32 [channels]."""
    layer = head.get_submodule(f"conv_{setup.name}")
    assert isinstance(layer, nn.Conv2d)
    if setup.name == "pose":  # a heatmap is 0 nearly everywhere
        return [(layer, torch.zeros(layer.out_channels))]
    if setup.name == "seg":
        return [(layer, class_logits(targets["labels"], layer.out_channels))]
    values = targets[{"normal": "normals", "pointmap": "points", "albedo": "albedo"}[setup.name]]
    found: list[tuple[nn.Conv2d | nn.Linear, Tensor]] = [(layer, masked_mean(values, targets["mask"]))]
    if setup.name == "pointmap":
        scale = head.get_submodule("scale_final_layer")[-1]  # type: ignore[index]
        found.append((scale, targets["scale"].mean().reshape(1)))
    return found


def class_logits(labels: Tensor, classes: int) -> Tensor:
    """Logarithms of the classes' shares of the labelled pixels, float32 [classes]; labels integer [B, H, W]."""
    known = labels.long().flatten()
    counts = torch.bincount(known[known < classes], minlength=classes).double()
    return (counts / counts.sum().clamp(min=1)).clamp(min=SMOOTHING).log().float()


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over valid pixels, float32 [C]; values [B, C, H, W], mask bool [B, 1, H, W]; 0 where nothing is valid."""
    chosen = values.movedim(1, -1)[mask[:, 0]].double()
    return (chosen.sum(dim=0) / max(1, len(chosen))).float()


@torch.no_grad()
def _set(layer: nn.Conv2d | nn.Linear, mean: Tensor, gather: Gather | None) -> None:
    weight, bias = layer.weight, layer.bias
    assert isinstance(weight, nn.Parameter)
    assert isinstance(bias, nn.Parameter)
    with nullcontext() if gather is None else gather([weight]):
        weight.mul_(WEIGHT)
    with nullcontext() if gather is None else gather([bias]):
        bias.copy_(mean)
