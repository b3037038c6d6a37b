"""The recipes of pretraining: they load, and have the numbers that the paper states."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config import load_config
from training.models.cost import backbone_activations
from training.pretraining.config import PretrainConfig

ROOT = Path(__file__).resolve().parents[2]
SIZES = ("0.1b", "0.4b", "0.8b", "1b", "1b-4k", "5b")


def recipe(name: str) -> PretrainConfig:
    config = load_config(ROOT / "configs" / f"pretrain-{name}.yaml", ["output=RUN"]).pretrain
    assert config is not None
    return config


def test_there_is_one_for_every_size() -> None:
    found = {path.stem.removeprefix("pretrain-") for path in (ROOT / "configs").glob("pretrain-*.yaml")}
    assert found == {*SIZES, "tiny"}


@pytest.mark.parametrize("name", SIZES)
def test_the_numbers_of_the_paper(name: str) -> None:
    config = recipe(name)
    assert config.model.backbone == f"sapiens2_{name.replace('-', '_')}"
    assert config.model.overrides == {}
    optimiser = config.optimiser
    assert (config.steps, optimiser.warmup, optimiser.lr, optimiser.final_lr) == (500_000, 1000, 1e-4, 1e-7)
    assert (optimiser.betas, optimiser.weight_decay, optimiser.clip_norm) == ((0.9, 0.95), 0.05, 5.0)
    distillation = config.distillation
    assert (distillation.teacher_temperature_start, distillation.teacher_temperature) == (0.065, 0.07)
    assert distillation.teacher_temperature_warmup == 1000
    assert (distillation.centring, distillation.centre_momentum) == ("moving_average", 0.9)
    assert (config.model.decoder_depth, config.model.decoder_width) == (8, 512)
    assert config.engine.precision == "bfloat16"


@pytest.mark.parametrize("name", [*SIZES, "tiny"])
def test_what_the_small_recipe_shares_with_the_paper(name: str) -> None:
    config = recipe(name)
    assert (config.reconstruction.weight, config.distillation.weight, config.koleo.weight) == (1.0, 0.4, 0.04)
    assert config.reconstruction.normalise is True
    assert config.distillation.student_temperature == 0.1
    assert (config.mask.ratio, config.mask.block_probability) == (0.75, 0.4)
    views = config.views
    assert (views.global_count, views.local_count) == (2, 4)
    assert (views.global_scale, views.local_scale) == ((0.5, 1.0), (0.2, 0.7))
    assert views.colour_on_globals is False
    assert config.optimiser.betas == (0.9, 0.95)
    assert (config.optimiser.weight_decay, config.optimiser.clip_norm) == (0.05, 5.0)


@pytest.mark.parametrize("name", SIZES)
def test_the_sizes_of_views(name: str) -> None:
    config = recipe(name)
    assert config.views.global_size == ((4096, 3072) if name == "1b-4k" else (1024, 768))
    grid = config.model.backbone_config().grid_of(*config.views.global_size)
    assert grid == (64, 48)
    assert config.model.backbone_config().grid_of(*config.views.local_size) == (28, 21)
    assert config.model.decoder_config().pixels == (32 if name == "1b-4k" else 16)
    assert config.ema.momentum == 0.992


@pytest.mark.parametrize("name", SIZES)
def test_a_micro_batch_is_estimated_to_fit_80_gb(name: str) -> None:
    """Activations of the student's encoder and decoder, and 24 bytes of weights and moments a parameter."""
    config = recipe(name)
    backbone, engine = config.model.backbone_config(), config.engine
    kept = [backbone_activations(backbone, tokens)[engine.activation_checkpointing] for tokens in (768, 588)]
    decoder = 8 * 3073 * 512 * (2 if engine.activation_checkpointing else 30)
    activations = config.batch.micro * (2 * kept[0] + 4 * kept[1] + 2 * decoder)
    state = 24 * {"0.1b": 0.12e9, "0.4b": 0.4e9, "0.8b": 0.82e9, "1b": 1.47e9, "1b-4k": 1.61e9, "5b": 5.08e9}[name]
    assert activations + state / engine.workers < 60e9
    # Groups of KoLeo lie in one micro-batch, or are gathered over the GPUs.
    assert config.batch.micro * engine.workers % config.koleo.group == 0


def test_the_small_recipe_is_small() -> None:
    config = recipe("tiny")
    assert config.engine.use_gpu is False
    assert config.engine.workers == 2
    assert config.steps <= 500
