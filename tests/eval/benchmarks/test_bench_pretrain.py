"""The benchmark of a pretraining step ends with every figure; what it compares is the same work."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from eval.benchmarks import bench_pretrain
from eval.benchmarks.pretrain_ranks import measure, random_inputs, small_config
from training.pretraining.trainer import run_step_cost


def test_sizes_grow_as_they_say() -> None:
    for name, sizes in bench_pretrain.variants().items():
        costs = [run_step_cost(config).total_flops * config.batch.size for _, config in sizes]
        assert costs == sorted(costs), name
        assert sizes[0][1] == small_config(), name
    tokens = [run_step_cost(config).teacher_tokens for _, config in bench_pretrain.variants()["tokens of a picture"]]
    assert [count / tokens[0] for count in tokens] == [1, 2, 4]


def test_inputs_fit_the_model_and_differ_by_rank() -> None:
    config = small_config(batch={"size": 8, "micro": 4})
    inputs = random_inputs(config, 0)
    assert inputs.globals_.shape == (2, 4, 3, 128, 96)
    assert inputs.locals_ is not None
    assert inputs.locals_.shape == (4, 4, 3, 64, 48)
    assert inputs.keep.shape == (2, 4, 12)
    assert (inputs.keep.diff(dim=-1) > 0).all()
    assert not torch.equal(inputs.globals_, random_inputs(config, 1).globals_)


def test_a_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match=r"batch\.size 8 does not divide among 3 processes"):
        measure(small_config(), 3, 1)


def test_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tiny = {"overrides": {"width": 32, "depth": 1, "heads": 2}}
    sizes = [(label, small_config(model=tiny, batch={"size": k, "micro": k})) for label, k in (("x1", 2), ("x2", 4))]
    monkeypatch.setattr(bench_pretrain, "variants", lambda: {"batch": sizes})
    arguments = f"--json --rounds 1 --steps 1 --only split growth --data {tmp_path}"
    monkeypatch.setattr(sys, "argv", ["bench_pretrain", *arguments.split()])
    before = torch.get_num_threads()
    bench_pretrain.main()
    torch.set_num_threads(before)
    step, grown = map(json.loads, capsys.readouterr().out.splitlines())
    parts = {"data", "student", "teacher", "decoder", "backward", "optimiser", "metrics"}
    assert parts <= step["detail"].keys()
    assert 0.8 < sum(step["detail"].values()) < 1.2  # medians of shares
    assert step["ours"] > 0
    assert grown["limit"] == pytest.approx(2)
    assert grown["ratio"] == pytest.approx(grown["ours"] / 2)
