"""Checkpoints of a model that DeepSpeed ZeRO-3 has partitioned over two ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from training.models import create, save_weights
from training.models.param_groups import param_groups

RANK = """
import sys, os, torch
torch.set_num_threads(1)
import deepspeed
folder, rank = sys.argv[1], int(sys.argv[2])
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
from training.models import create, load_weights, save_weights
from training.models.param_groups import param_groups
from training.models.tensor_files import WeightsError
with deepspeed.zero.Init(config_dict_or_path={"train_batch_size": 2, "zero_optimization": {"stage": 3}}):
    model = create("tiny", width=32, heads=4, depth=5, image_size=(64, 64))
assert {tuple(parameter.shape) for parameter in model.parameters()} == {(0,)}
try:
    load_weights(model, f"{folder}/in.safetensors")
except WeightsError as error:
    assert "partitioned by DeepSpeed ZeRO-3: give gather" in str(error)
else:
    raise AssertionError
gather = lambda parameters: deepspeed.zero.GatheredParameters(parameters, modifier_rank=0)
report = load_weights(model, f"{folder}/in.safetensors", gather=gather)
assert not report.missing and report.loaded == 91, report
save_weights(model, f"{folder}/out.safetensors", gather=gather, write=rank == 0)
save_weights(model, f"{folder}/out-{rank}", gather=gather, max_shard_bytes=50_000)
decayed = [name for group in param_groups(model, lr=1.0) if group["weight_decay"] for name in group["names"]]
print("DECAYED", *decayed)
"""


def test_two_ranks_load_and_save(tmp_path: Path) -> None:
    model = create("tiny", width=32, heads=4, depth=5, image_size=(64, 64))
    save_weights(model, tmp_path / "in.safetensors")
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "LOCAL_RANK": "0", "LOCAL_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(tmp_path), str(rank)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(2)
    ]
    decayed = [name for group in param_groups(model, lr=1.0) if group["weight_decay"] for name in group["names"]]
    for rank in ranks:
        output, errors = rank.communicate(timeout=120)
        assert rank.returncode == 0, errors
        # Partitioned tensors have one axis; the shapes that count are the whole ones.
        assert f"DECAYED {' '.join(decayed)}" in output
    expected = load_file(tmp_path / "in.safetensors")
    assert not (tmp_path / "out-0" / "model.safetensors").exists()
    shards = [
        load_file(file) for folder in ("out-0", "out-1") for file in sorted((tmp_path / folder).glob("*.safetensors"))
    ]
    for found in (load_file(tmp_path / "out.safetensors"), {name: t for shard in shards for name, t in shard.items()}):
        assert set(found) == set(expected)
        for name, tensor in expected.items():
            assert found[name].dtype == tensor.dtype, name
            assert torch.equal(found[name], tensor), name
