"""Writing files of tensors: the safetensors library reads them, and nobody sees half of one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from training.models.tensor_files import WeightsError
from training.models.tensor_writer import TensorToWrite, write_file, write_folder


def to_write(tensors: dict[str, torch.Tensor]) -> list[TensorToWrite]:
    return [TensorToWrite(name, tuple(t.shape), t.dtype, lambda t=t: t) for name, t in tensors.items()]


SOME = {
    "b": torch.arange(7, dtype=torch.float32),
    "a": torch.arange(3).to(torch.bfloat16),
    "scalar": torch.tensor(2.5, dtype=torch.float64),
    "empty": torch.empty(0, 4),
    "turned": torch.arange(6.0).reshape(2, 3).T,
    "byte": torch.tensor([1, 2, 3], dtype=torch.uint8),
}


def test_the_library_reads_what_is_written(tmp_path: Path) -> None:
    write_file(tmp_path / "new" / "x.safetensors", to_write(SOME))
    loaded = load_file(tmp_path / "new" / "x.safetensors")
    assert set(loaded) == set(SOME)
    for name, tensor in SOME.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)
    with safe_open(tmp_path / "new" / "x.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_a_file_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    write_file(file, to_write({"a": torch.ones(2)}))

    def fail() -> torch.Tensor:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        write_file(file, [*to_write(SOME), TensorToWrite("z", (2,), torch.float32, fail)])
    assert list(load_file(file)) == ["a"]
    assert [item.name for item in tmp_path.iterdir()] == ["x.safetensors"]


def test_shards_and_their_index(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    tensors = {name: torch.full((10,), float(i)) for i, name in enumerate("abcde")}
    write_folder(folder, to_write(tensors), max_shard_bytes=80)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 5 * 40
    assert sorted(set(index["weight_map"].values())) == [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    for name, file in index["weight_map"].items():
        assert torch.equal(load_file(folder / file)[name], tensors[name])
    assert all((folder / file).stat().st_size < 80 + 500 for file in index["weight_map"].values())


def test_a_tensor_larger_than_a_shard_is_alone(tmp_path: Path) -> None:
    write_folder(tmp_path / "m", to_write({"a": torch.ones(1), "b": torch.ones(100), "c": torch.ones(1)}), 40)
    weight_map = json.loads((tmp_path / "m" / "model.safetensors.index.json").read_text())["weight_map"]
    assert len(set(weight_map.values())) == 3


def test_a_folder_of_weights_is_replaced_whole(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_folder(folder, to_write({name: torch.ones(10) for name in "abc"}), 40, {"x": 1})
    write_folder(folder, to_write({"a": torch.zeros(10)}))
    assert [item.name for item in folder.iterdir()] == ["model.safetensors"]
    assert [item.name for item in tmp_path.iterdir()] == ["model"]


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(WeightsError, match="not a folder of weights only"):
        write_folder(tmp_path, to_write(SOME))
    assert [item.name for item in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_folder(folder, to_write({"a": torch.ones(2)}))
    with pytest.raises(WeightsError, match="complex64"):
        write_folder(folder, to_write({"a": torch.zeros(2), "z": torch.ones(2, dtype=torch.complex64)}))
    assert torch.equal(load_file(folder / "model.safetensors")["a"], torch.ones(2))
    assert [item.name for item in tmp_path.iterdir()] == ["model"]
    with pytest.raises(WeightsError, match="max_shard_bytes is 0"):
        write_folder(folder, to_write(SOME), max_shard_bytes=0)
