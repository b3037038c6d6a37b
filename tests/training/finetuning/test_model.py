"""The model of a fine-tuning run: released names, initial weights, and terms that are the task's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.fixtures.finetuning import TASKS, finetune_config
from training.finetuning.model import FinetuneModel, task_model
from training.finetuning.samples import Samples
from training.models import create, save_weights
from training.models.tensor_files import WeightsError

OVERRIDES = {"width": 48, "depth": 3, "heads": 3, "ffn_width": 64}


def size_of(task: str) -> list[int]:
    return [144, 112] if task == "pointmap" else [64, 48]


@pytest.mark.parametrize("task", [*TASKS, "pose+normal+seg"])
def test_terms_are_those_of_the_tasks_loss(task: str) -> None:
    from training.data.sampler import BatchPlan
    from training.finetuning.pictures import open_pictures

    config = finetune_config(task, size=size_of(task), data={"people": {"size": size_of(task)}})
    torch.manual_seed(0)
    model = FinetuneModel(config)
    setup = config.setup()
    batch = Samples(open_pictures(config.data)[0], setup, 1, BatchPlan(2, 2), 0)[0, 0]
    output = model(batch.images, batch.targets)
    losses = setup.loss(model.predict(batch.images), batch.targets)
    assert dict(zip(model.terms, output.terms.tolist(), strict=True)) == pytest.approx(
        {name.removeprefix("loss_"): value.item() for name, value in losses.items() if "loss" in name}
    )
    assert output.loss.item() == pytest.approx(output.terms.sum().item(), rel=1e-5)
    assert len(model.weights()) == len(model.terms)


def test_names_are_those_of_released_task_models() -> None:
    ours = task_model(finetune_config("seg"), torch.device("meta")).state_dict()
    theirs = create("tiny_seg", device="meta", **OVERRIDES, image_size=(64, 48)).state_dict()
    assert {name: value.shape for name, value in ours.items()} == {name: value.shape for name, value in theirs.items()}


def test_the_number_of_outputs_follows_the_keypoint_set() -> None:
    whole = finetune_config("pose", task={"pose": {"keypoints": "sapiens308"}})
    for config, count in ((finetune_config("pose"), 17), (whole, 308)):
        assert FinetuneModel(config).student(torch.zeros(1, 3, 64, 48)).shape[1] == count


def test_a_backbone_fills_the_backbone_and_leaves_the_head(tmp_path: Path) -> None:
    """As `populace export-weights` writes it, of another image size."""
    torch.manual_seed(1)
    backbone = create("tiny", **OVERRIDES)
    path = save_weights(backbone, tmp_path / "backbone.safetensors")
    torch.manual_seed(0)
    model = FinetuneModel(finetune_config("normal", model={"initial_weights": str(path)}))
    head = {name: value.clone() for name, value in model.student.decode_head.state_dict().items()}
    model.load_initial_weights()
    for name, value in backbone.named_parameters():
        assert torch.equal(model.student.backbone.get_parameter(name), value)
    for name, value in model.student.decode_head.state_dict().items():
        assert torch.equal(value, head[name])


def test_a_whole_task_model_fills_both(tmp_path: Path) -> None:
    torch.manual_seed(1)
    other = task_model(finetune_config("normal"))
    path = save_weights(other, tmp_path / "normal.safetensors")
    model = FinetuneModel(finetune_config("normal", model={"initial_weights": str(path)}))
    model.load_initial_weights()
    for name, value in other.named_parameters():
        assert torch.equal(model.student.get_parameter(name), value)


def test_several_tasks_begin_with_a_backbone_or_a_model_of_one_of_them(tmp_path: Path) -> None:
    config = finetune_config("seg+normal")
    torch.manual_seed(1)
    other, backbone = task_model(finetune_config("normal")), create("tiny", **OVERRIDES)
    paths = [save_weights(other, tmp_path / "normal.safetensors"), save_weights(backbone, tmp_path / "b.safetensors")]
    for path, whole in zip(paths, (other, None), strict=True):
        torch.manual_seed(0)
        model = FinetuneModel(config.model_copy(update={"model": config.model.model_copy(
            update={"initial_weights": str(path)})}))  # fmt: skip
        before = {name: value.clone() for name, value in model.student.named_parameters()}
        model.load_initial_weights()
        for name, value in model.student.named_parameters():
            part, _, rest = name.partition(".")
            if part == "backbone":
                assert torch.equal(value, (backbone if whole is None else whole.backbone).get_parameter(rest))
            elif whole is not None and rest.startswith("normal."):
                assert torch.equal(value, whole.decode_head.get_parameter(rest.removeprefix("normal.")))
            else:
                assert torch.equal(value, before[name])


def test_a_model_of_another_task_is_refused_by_several(tmp_path: Path) -> None:
    path = save_weights(task_model(finetune_config("albedo")), tmp_path / "albedo.safetensors")
    with pytest.raises(WeightsError, match="conv_albedo"):
        FinetuneModel(finetune_config("seg+normal", model={"initial_weights": str(path)})).load_initial_weights()


def test_weights_of_another_size_are_refused_by_name(tmp_path: Path) -> None:
    path = save_weights(create("tiny", depth=2), tmp_path / "other.safetensors")
    model = FinetuneModel(finetune_config("normal", model={"initial_weights": str(path)}))
    with pytest.raises(WeightsError, match="blocks"):
        model.load_initial_weights()
