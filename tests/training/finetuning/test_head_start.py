"""New heads begin at the mean of their targets, and heads that were loaded are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.fixtures.finetuning import TASKS, finetune_config
from training.data.sampler import BatchPlan
from training.finetuning.head_start import PICTURES, class_logits, masked_mean
from training.finetuning.model import FinetuneModel, task_model
from training.finetuning.pictures import open_pictures
from training.finetuning.samples import Samples
from training.models import save_weights


def started(task: str, **model: object) -> FinetuneModel:
    size = [144, 112] if task == "pointmap" else [64, 48]
    config = finetune_config(
        task, size=size, model={"head_start": "targets", **model}, data={"train": 12, "people": {"size": size}}
    )
    torch.manual_seed(0)
    made = FinetuneModel(config)
    made.load_initial_weights()
    return made


def seen_targets(model: FinetuneModel) -> dict[str, torch.Tensor]:
    pictures, _ = open_pictures(model.config.data)
    return Samples(pictures, model.setup, model.config.seed, BatchPlan(PICTURES, PICTURES), 0)[0, 0].targets


@pytest.mark.parametrize("task", TASKS)
def test_outputs_of_the_first_step_are_near_the_mean_of_the_targets(task: str) -> None:
    model = started(task)
    targets = seen_targets(model)
    with torch.no_grad():
        output = model.predict(torch.randint(0, 255, (2, 3, *model.setup.size), dtype=torch.uint8))
    if task == "pose":
        mean = torch.zeros(17)
    elif task == "seg":
        labels = targets["labels"]
        shares = [max(1e-4, (labels == number).sum().item() / (labels < 29).sum().item()) for number in range(29)]
        mean = torch.tensor(shares).log()
    else:
        values = targets[{"normal": "normals", "pointmap": "points", "albedo": "albedo"}[task]]
        pixels = [values[item, :, row, column] for item, _, row, column in targets["mask"].nonzero().tolist()]
        mean = torch.stack(pixels).double().mean(dim=0).float()
    if task == "pointmap":
        output, scale = output
        torch.testing.assert_close(scale, targets["scale"].mean().expand(2, 1), rtol=0, atol=0.15)
    layer = getattr(model.student.decode_head, f"conv_{task}")
    torch.testing.assert_close(layer.bias.detach(), mean, rtol=1e-5, atol=1e-5)
    off = (output - mean[:, None, None]).std().item()
    assert 0 < off < 0.3  # a random start is off by 2 to 5 at these sizes for the dense tasks


def test_the_released_start_is_the_default() -> None:
    torch.manual_seed(0)
    model = FinetuneModel(finetune_config("seg"))
    model.load_initial_weights()
    assert not model.student.decode_head.conv_seg.bias.any()
    assert started("seg").student.decode_head.conv_seg.bias.all()


def test_a_head_that_was_loaded_keeps_its_numbers_and_the_others_start(tmp_path: Path) -> None:
    torch.manual_seed(1)
    other = task_model(finetune_config("normal"))
    path = save_weights(other, tmp_path / "normal.safetensors")
    loaded = started("seg+normal", initial_weights=str(path))
    heads = loaded.student.decode_head
    for name, value in other.decode_head.named_parameters():
        assert torch.equal(heads["normal"].get_parameter(name), value)
    assert torch.equal(heads["seg"].conv_seg.bias, class_logits(seen_targets(loaded)["seg/labels"], 29))


def test_a_resumed_run_takes_its_head_from_the_checkpoint() -> None:
    assert finetune_config("seg", model={"head_start": "targets"}).resumed().model.head_start == "random"


def test_without_a_valid_pixel_the_mean_is_zero_and_absent_classes_have_finite_logits() -> None:
    assert masked_mean(torch.ones(1, 3, 2, 2), torch.zeros(1, 1, 2, 2, dtype=torch.bool)).tolist() == [0, 0, 0]
    logits = class_logits(torch.tensor([[[0, 0], [2, 255]]], dtype=torch.uint8), 4)
    torch.testing.assert_close(logits.exp(), torch.tensor([2 / 3, 1e-4, 1 / 3, 1e-4]))
