"""Writes tensors as safetensors, one at a time and never half.

The library's own writer wants every tensor of a file in memory as bytes, beside the model; this one passes tensor after
tensor to the file, so that saving needs the memory of one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from training.models.tensor_files import DTYPE_NAMES, INDEX_SUFFIX, WeightsError

DEFAULT_SHARD_BYTES = 5_000_000_000


@dataclass(frozen=True)
class TensorToWrite:
    """A tensor for a file; `get()` gives the values (on any device) when it is written."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    get: Callable[[], torch.Tensor]

    @property
    def nbytes(self) -> int:
        count = self.dtype.itemsize
        for size in self.shape:
            count *= size
        return count


def write_file(path: Path, tensors: Iterable[TensorToWrite]) -> None:
    """Write one safetensors file, whole or not at all: beside its place first, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        _stream(temporary, tensors)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_folder(
    folder: Path,
    tensors: Iterable[TensorToWrite],
    max_shard_bytes: int = DEFAULT_SHARD_BYTES,
    config: Mapping[str, Any] | None = None,
) -> None:
    """Write a folder of model.safetensors, or of shards with model.safetensors.index.json, and of config.json.

    The folder appears whole: it is written beside its place and renamed. One that is already there is replaced if it
    holds nothing but a model, else WeightsError.
    """
    if folder.exists() and not _replaceable(folder):
        raise WeightsError(f"{folder} exists and is not a folder of weights only: give a new or empty folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    temporary.mkdir()
    try:
        shards = _split(tensors, max_shard_bytes)
        names = ["model.safetensors"]
        if len(shards) > 1:
            names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
            index = {
                "metadata": {"total_size": sum(tensor.nbytes for shard in shards for tensor in shard)},
                "weight_map": {t.name: name for name, shard in zip(names, shards, strict=True) for t in shard},
            }
            (temporary / f"model{INDEX_SUFFIX}").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
        for name, shard in zip(names, shards, strict=True):
            _stream(temporary / name, shard)
        if config is not None:
            (temporary / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        if folder.exists():
            aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.old")
            folder.rename(aside)
            temporary.rename(folder)
            shutil.rmtree(aside)
        else:
            temporary.rename(folder)
    finally:
        if temporary.exists():
            shutil.rmtree(temporary)


def _replaceable(folder: Path) -> bool:
    of_model = re.compile(r"config\.json|model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json")
    return folder.is_dir() and all(of_model.fullmatch(item.name) for item in folder.iterdir())


def _split(tensors: Iterable[TensorToWrite], max_bytes: int) -> list[list[TensorToWrite]]:
    """Cut the list where a shard would grow beyond `max_bytes`; a larger tensor has a shard to itself."""
    if max_bytes < 1:
        raise WeightsError(f"max_shard_bytes is {max_bytes}; it is the size of a file in bytes, at least 1")
    shards: list[list[TensorToWrite]] = [[]]
    size = 0
    for tensor in tensors:
        if shards[-1] and size + tensor.nbytes > max_bytes:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += tensor.nbytes
    return shards


def _ordered(tensors: Iterable[TensorToWrite]) -> list[TensorToWrite]:
    """Wide types first: with the header padded to 8 bytes every tensor then starts at a multiple of its own width."""
    return sorted(tensors, key=lambda tensor: (-tensor.dtype.itemsize, tensor.name))


def get_only(tensors: Iterable[TensorToWrite], max_shard_bytes: int | None) -> None:
    """Get every tensor in the order in which it is written, and write none: for ranks that take part in gathering.

    `max_shard_bytes` is that of the folder, None for a single file.
    """
    for shard in [list(tensors)] if max_shard_bytes is None else _split(tensors, max_shard_bytes):
        for tensor in _ordered(shard):
            tensor.get()


def _stream(path: Path, tensors: Iterable[TensorToWrite]) -> None:
    with path.open("wb") as file:
        stream_tensors(file, tensors)
        file.flush()
        os.fsync(file.fileno())


def stream_tensors(file: IO[bytes], tensors: Iterable[TensorToWrite]) -> None:
    """Write the safetensors layout to an open file: length of the header (8 bytes, little endian), header (JSON), then
    the tensors' bytes, one tensor at a time."""
    ordered = _ordered(tensors)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in ordered:
        if tensor.dtype not in DTYPE_NAMES:
            raise WeightsError(f"{tensor.name} is {tensor.dtype}, which is not among those that are saved")
        end = offset + tensor.nbytes
        header[tensor.name] = {
            "dtype": DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for tensor in ordered:
        values = tensor.get().detach().to("cpu", tensor.dtype).contiguous()
        if tuple(values.shape) != tensor.shape:
            raise WeightsError(f"{tensor.name} has shape {tuple(values.shape)}, not {tensor.shape}")
        file.write(values.reshape(-1).view(torch.uint8).numpy().data)
