"""The recipes of fine-tuning: they load, and have the numbers of the released configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config import load_config
from training.finetuning.config import FinetuneConfig
from training.finetuning.tasks import DenseSetup, PoseSetup
from training.tasks.augment import RECIPES, AugmentConfig
from training.tasks.random_frames import PARTS_FRAMES, DenseFrameConfig, PoseFrameConfig

ROOT = Path(__file__).resolve().parents[2]
TASKS = ("pose", "seg", "normal", "pointmap", "albedo")
SIZES = ("0.4b", "0.8b", "1b", "5b")
LAYER_DECAY = {"0.4b": 0.8, "0.8b": 0.85, "1b": 0.9, "5b": 0.94}

# Thousands of steps, peak learning rate in 1e-4, clipping, pictures on each of 8 GPUs, bfloat16: as released.
RELEASED = {
    "pose": {"0.4b": (10, 5, 2, 6, True), "0.8b": (10, 5, 4, 12, True), "1b": (20, 5, 4, 7, True),
             "5b": (20, 1, 4, 2, True)},
    "seg": {"0.4b": (20, 5, 2, 12, True), "0.8b": (30, 5, 4, 5, False), "1b": (20, 5, 4, 8, True),
            "5b": (50, 5, 4, 2, True)},
    "normal": {"0.4b": (20, 5, 2, 20, True), "0.8b": (10, 5, 4, 12, True), "1b": (40, 5, 4, 7, True),
               "5b": (40, 1, 4, 3, True)},
    "pointmap": {"0.4b": (20, 5, 2, 8, False), "0.8b": (20, 5, 2, 6, False), "1b": (40, 5, 4, 3, False),
                 "5b": (40, 1, 4, 1, False)},
    "albedo": {"0.4b": (20, 5, 2, 20, True), "0.8b": (20, 5, 4, 12, True), "1b": (40, 5, 4, 7, True),
               "5b": (40, 5, 4, 3, True)},
}  # fmt: skip
WEIGHTS = {
    "pose": {"loss_weight": 10},
    "seg": {"cross_entropy_weight": 1, "dice_weight": 1},
    "normal": {"cosine_weight": 10, "l1_weight": 1, "l2_weight": 0, "gradient_weight": 10},
    "pointmap": {
        "l1_weight": 2, "multiscale_weight": 1, "multiscale_factor": 2, "silog_weight": 1, "intrinsics_weight": 1,
        "shift_invariant_weight": 1, "normal_weight": 2, "scale_weight": 4, "l2_weight": 0, "gradient_weight": 0,
    },
    "albedo": {
        "l1_weight": 2, "gradient_weight": 2, "chromaticity_weight": 1, "l2_weight": 0, "low_frequency_weight": 0,
        "rgb_mean_weight": 0,
    },
}  # fmt: skip


def recipe(size: str, task: str) -> FinetuneConfig:
    config = load_config(ROOT / "configs" / f"finetune-{size}-{task}.yaml", ["output=RUN"]).finetune
    assert config is not None
    return config


def test_there_is_one_for_every_size_and_task() -> None:
    found = {path.stem.removeprefix("finetune-") for path in (ROOT / "configs").glob("finetune-*.yaml")}
    assert found == {f"{size}-{task}" for size in (*SIZES, "tiny") for task in TASKS} | {"tiny-multi"}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("task", TASKS)
def test_the_numbers_of_the_release(size: str, task: str) -> None:
    config = recipe(size, task)
    steps, lr, clip, pictures, bfloat16 = RELEASED[task][size]
    assert config.model.backbone == f"sapiens2_{size}"
    assert config.model.overrides == {}
    assert config.size == (1024, 768)
    optimiser = config.optimiser
    assert (config.steps, optimiser.lr, optimiser.final_lr, optimiser.warmup) == (steps * 1000, lr * 1e-4, 0, 500)
    assert (optimiser.betas, optimiser.weight_decay, optimiser.clip_norm) == ((0.9, 0.999), 0.1, clip)
    assert optimiser.layer_decay == LAYER_DECAY[size]
    assert (config.engine.workers, config.batch.micro, config.batch.size) == (8, pictures, 8 * pictures)
    assert config.engine.precision == ("bfloat16" if bfloat16 else "float32")
    assert config.engine.compile
    assert config.checkpoint.every == (2000 if (task, size) == ("seg", "5b") else 1000)
    assert config.checkpoint.keep_best == 1


@pytest.mark.parametrize("size", ["0.4b", "tiny"])
@pytest.mark.parametrize("task", TASKS)
def test_losses_are_the_released_ones(size: str, task: str) -> None:
    section = getattr(recipe(size, task).task, task)
    assert {name: getattr(section, name) for name in WEIGHTS[task]} == WEIGHTS[task]


@pytest.mark.parametrize("task", TASKS)
def test_augmentations_are_the_released_ones(task: str) -> None:
    setup = recipe("0.4b", task).setup().parts[task]
    assert setup.augmentation == RECIPES[task]
    if isinstance(setup, DenseSetup):
        assert setup.frames == (PARTS_FRAMES if task == "seg" else DenseFrameConfig())
    else:
        assert isinstance(setup, PoseSetup)
        assert len(setup.task.set) == 308
        assert setup.task.config.frames == PoseFrameConfig()


@pytest.mark.parametrize("task", TASKS)
def test_small_recipes_mirror_pictures_and_do_no_more(task: str) -> None:
    """In so few steps a small model would not even learn to undo what is done to pictures."""
    setup = recipe("tiny", task).setup().parts[task]
    assert setup.augmentation == AugmentConfig()
    if isinstance(setup, DenseSetup):
        frames: DenseFrameConfig | PoseFrameConfig = setup.frames
        assert setup.frames.fit == (PARTS_FRAMES if task == "seg" else DenseFrameConfig()).fit
    else:
        assert isinstance(setup, PoseSetup)
        assert len(setup.task.set) == 308
        frames = setup.task.config.frames
    drawn = {name: value for name, value in frames.model_dump().items() if name.endswith("_probability")}
    assert drawn.pop("flip_probability") == 0.5
    assert set(drawn.values()) == {0.0}


@pytest.mark.parametrize("task", [*TASKS, "multi"])
def test_the_small_recipes_are_small(task: str) -> None:
    config = recipe("tiny", task)
    assert config.model.backbone == "tiny"
    assert (config.engine.kind, config.engine.use_gpu) == ("single", False)
    assert config.steps <= 500
    assert config.size == config.data.people.size
