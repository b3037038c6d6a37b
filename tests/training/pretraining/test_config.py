"""The `pretrain` section: the published recipe as defaults, early errors, and what makes two runs alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.fixtures.pretraining import pretrain_config
from training.pretraining.config import ModelConfig, PretrainConfig


def test_defaults_are_the_numbers_of_the_paper() -> None:
    """Sapiens2, arXiv:2604.21681, sections 3.2 and A.1.1."""
    config = PretrainConfig()
    optimiser, views, distillation = config.optimiser, config.views, config.distillation
    assert (config.steps, optimiser.lr, optimiser.final_lr, optimiser.warmup) == (500_000, 1e-4, 1e-7, 1000)
    assert (optimiser.betas, optimiser.weight_decay, optimiser.clip_norm) == ((0.9, 0.95), 0.05, 5.0)
    assert (config.reconstruction.weight, distillation.weight, config.koleo.weight) == (1.0, 0.4, 0.04)
    assert config.reconstruction.normalise
    assert distillation.patch_weight == 0
    assert (config.mask.ratio, config.mask.block_probability) == (0.75, 0.4)
    assert (views.global_count, views.local_count, views.global_size) == (2, 4, (1024, 768))
    assert (views.global_scale, views.local_scale, views.colour_on_globals) == ((0.5, 1.0), (0.2, 0.7), False)
    assert (distillation.student_temperature, distillation.teacher_temperature) == (0.1, 0.07)
    assert (distillation.teacher_temperature_start, distillation.teacher_temperature_warmup) == (0.065, 1000)
    assert (distillation.centre_momentum, config.ema.momentum, config.ema.final_momentum) == (0.9, 0.992, None)
    decoder = config.model.decoder_config()
    assert (decoder.width, decoder.depth, decoder.heads, decoder.pixels) == (512, 8, 16, 16)
    assert config.engine.precision == "bfloat16"


def test_sizes_of_the_networks_follow_the_backbone() -> None:
    model = ModelConfig(backbone="sapiens2_1b", prototypes=1024)
    backbone = model.backbone_config()
    assert (model.decoder_config().encoder_width, model.projection_config().in_width) == (backbone.width,) * 2
    assert (model.projection_config().prototypes, model.projection_config().hidden) == (1024, 2048)


def test_models_for_4k_decode_half_of_the_resolution_unless_told_otherwise() -> None:
    large = ModelConfig(backbone="sapiens2_1b_4k")
    assert large.decoder_config().pixels == 32
    assert large.model_copy(update={"decoder_pixels": 16}).decoder_config().pixels == 16


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stepz": 5}, "stepz"),
        ({"optimiser": {"learning_rate": 1}}, "learning_rate"),
        ({"batch": {"size": 9}}, "batch.micro 2 does not divide batch.size 9"),
        ({"batch": {"size": 2, "micro": 4}}, "batch.micro 4 is more than batch.size 2"),
        ({"optimiser": {"warmup": 8}}, "warmup is 8 of 8 steps"),
        ({"optimiser": {"betas": [0.9, 1.0]}}, "betas"),
        (
            {"reconstruction": {"weight": 0}, "distillation": {"weight": 0}, "koleo": {"weight": 0}},
            "nothing would be trained",
        ),
        ({"mask": {"ratio": 0.0}}, "masks none"),
        ({"views": {"global_count": 1, "local_count": 0}}, "at least 2 views"),
        ({"views": {"global_size": [64, 50]}}, "multiples of 16"),
        ({"views": {"local_size": [33, 32]}}, "multiples of 16"),
        ({"model": {"backbone": "tiny_pose"}}, "is a task model; give its backbone, 'tiny'"),
        ({"model": {"backbone": "huge"}}, "huge"),
        ({"model": {"overrides": {"wideness": 3}}}, "wideness"),
        ({"model": {"decoder_heads": 3}}, "heads"),
        ({"engine": {"workers": 2}}, "single trains in one process"),
    ],
)
def test_what_cannot_work_is_an_error_that_says_what(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        pretrain_config(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"mask": {"ratio": 0.0}, "reconstruction": {"weight": 0}},
        {"views": {"global_count": 1, "local_count": 0}, "distillation": {"weight": 0}},
        {"views": {"global_count": 1, "local_count": 1}},
        {"views": {"local_count": 0, "local_size": [33, 32]}},
        {"optimiser": {"warmup": 0}, "steps": 1},
    ],
)
def test_what_no_loss_needs_is_not_asked_for(changes: dict[str, Any]) -> None:
    pretrain_config(**changes)


FREE: list[dict[str, Any]] = [
    {"engine": {"kind": "zero3", "workers": 2}},
    {"engine": {"activation_checkpointing": True}},
    {"engine": {"kind": "zero3", "offload": "cpu"}},
    {"batch": {"micro": 4}},
    {"checkpoint": {"every": 100, "keep_last": 5, "background": False}},
    {"watch": {"every": 7, "tensorboard": True, "pictures_every": 3}},
    {"data": {"workers": 2}},
    {"watch": {"guard": {"on_nonfinite": "skip"}}},
    {"data": {"corpora": [{"path": "/elsewhere/shards"}]}},
    {"data": {"verify": True}},
]
BINDING: list[dict[str, Any]] = [
    {"seed": 4},
    {"steps": 9},
    {"optimiser": {"lr": 1e-3}},
    {"optimiser": {"freeze_last_layer": 1}},
    {"batch": {"size": 16}},
    {"engine": {"precision": "bfloat16"}},
    {"model": {"prototypes": 65}},
    {"model": {"initial_weights": "weights.safetensors"}},
    {"views": {"local_count": 3}},
    {"mask": {"ratio": 0.5}},
    {"reconstruction": {"weight": 0.5}},
    {"distillation": {"centring": "sinkhorn_knopp"}},
    {"koleo": {"weight": 0.1}},
    {"ema": {"momentum": 0.99}},
    {"data": {"shuffle_shards": 1}},
    {"data": {"corpora": [{"path": "shards", "weight": 2}, {"path": "others", "weight": 1}]}},
]


@pytest.mark.parametrize("changes", FREE)
def test_a_run_may_go_on_with_other_workers_checkpoints_and_logs(changes: dict[str, Any]) -> None:
    assert pretrain_config(Path("shards"), **changes).result_hash() == pretrain_config(Path("shards")).result_hash()


@pytest.mark.parametrize("changes", BINDING)
def test_what_changes_the_losses_makes_another_run(changes: dict[str, Any]) -> None:
    assert pretrain_config(Path("shards"), **changes).result_hash() != pretrain_config(Path("shards")).result_hash()


def test_a_configuration_comes_back_from_json() -> None:
    config = pretrain_config(Path("shards"))
    assert PretrainConfig.model_validate(config.model_dump(mode="json")) == config


TWO = {"kind": "zero3", "workers": 2}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"koleo": {"group": 4}}, "koleo.group 4 divides neither batch.micro 2"),
        ({"koleo": {"group": 3}, "engine": TWO}, "koleo.group 3 divides neither"),
        ({"koleo": {"group": 4}, "engine": TWO | {"min_workers": 1}}, "koleo.group 4 divides neither"),
        ({"distillation": {"centring": "sinkhorn_knopp"}, "engine": TWO | {"min_workers": 1}}, "would change the loss"),
        ({"distillation": {"patch_weight": 1.0}, "engine": TWO | {"min_workers": 1}}, "would change the losses"),
    ],
)
def test_losses_that_look_at_other_workers_fix_their_number(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        pretrain_config(Path("shards"), **changes)


def test_the_number_of_workers_is_part_of_a_run_only_where_a_loss_looks_at_all_of_them() -> None:
    two = {"engine": TWO}
    assert pretrain_config(**two).result_hash() == pretrain_config().result_hash()
    for changes in ({"distillation": {"centring": "sinkhorn_knopp"}}, {"distillation": {"patch_weight": 1.0}}):
        assert pretrain_config(**changes, **two).result_hash() != pretrain_config(**changes).result_hash()
    assert pretrain_config(koleo={"group": 4}, **two).rows_at_a_time == 4
