"""What a pretraining run adds to the loop: its cost and its pictures. Its steps are in `test_loop.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests.fixtures.pretraining import make_corpus, pretrain_config, run
from training.objectives.masks import visible_count
from training.pretraining.trainer import run_step_cost


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_pictures_show_every_view_of_a_micro_batch(tmp_path: Path, precision: str) -> None:
    make_corpus(tmp_path / "corpus")
    watch = {"pictures_count": 64, "pictures_every": 2}
    run(
        pretrain_config(
            tmp_path / "corpus", steps=3, optimiser={"warmup": 1}, engine={"precision": precision}, watch=watch
        ),
        tmp_path / "run",
    )
    assert [file.name for file in sorted((tmp_path / "run" / "pictures").iterdir())] == [
        "step-00000001.png",
        "step-00000002.png",
    ]
    with Image.open(tmp_path / "run" / "pictures" / "step-00000002.png") as picture:
        assert picture.size == (4 * 48 + 3 * 4, 4 * 64 + 3 * 4)  # 2 views of 2 samples


def test_cost_follows_what_is_trained() -> None:
    both = run_step_cost(pretrain_config())
    without_decoder = run_step_cost(pretrain_config(reconstruction={"weight": 0}))
    without_head = run_step_cost(pretrain_config(distillation={"weight": 0}, koleo={"weight": 0}))
    with_patches = run_step_cost(pretrain_config(distillation={"patch_weight": 1}))
    less_masked = run_step_cost(pretrain_config(mask={"ratio": 0.5}))
    assert max(without_decoder.total_flops, without_head.total_flops) < both.total_flops < with_patches.total_flops
    assert both.total_flops < less_masked.total_flops
    visible = visible_count(12, 0.75)
    assert visible == 3
    assert without_head.tokens < both.tokens == without_decoder.tokens < less_masked.tokens
