"""The file of a rank in a checkpoint: pieces of flattened tensors as safetensors, and the CRC-32 of each beside it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any

import torch
from torch import Tensor

from pipeline.storage import Storage
from training.models.tensor_writer import TensorToWrite, stream_tensors


class CheckpointError(RuntimeError):
    """A checkpoint cannot be read, or is of another model. The message says which and what to do."""


def rank_file(rank: int, world: int) -> str:
    """The file of a rank, without extension."""
    return f"rank-{rank:05d}-of-{world:05d}"


def write_pieces(storage: Storage, name: str, pieces: Mapping[str, Tensor]) -> None:
    """Write `name`.safetensors and `name`.json, the CRC-32 of each piece's bytes.

    Args:
        storage: of the run.
        name: of the files, without extension.
        pieces: float32 tensors of one axis, on the CPU.
    """
    checks = {piece: zlib.crc32(values.numpy().data) for piece, values in pieces.items()}
    with storage.open_write(f"{name}.safetensors") as file:
        write_tensors(file, pieces)
    storage.write_bytes(f"{name}.json", json.dumps(checks, sort_keys=True).encode() + b"\n")


def write_tensors(file: IO[bytes], tensors: Mapping[str, Tensor]) -> None:
    """Write tensors on the CPU as safetensors."""
    stream_tensors(
        file,
        [
            TensorToWrite(name, tuple(value.shape), value.dtype, lambda value=value: value)  # type: ignore[misc]
            for name, value in tensors.items()
        ],
    )


def checked_bytes(storage: Storage, name: str, crc: int) -> bytes:
    """The content of a small file.

    Raises:
        CheckpointError: it is not what was written.
    """
    data = storage.read_bytes(name)
    if zlib.crc32(data) != crc:
        raise damaged(name)
    return data


def damaged(name: str, where: str = "") -> CheckpointError:
    """The error of a file that is not as it was written."""
    return CheckpointError(f"{name} is damaged{where}: remove its folder, and the checkpoint before it is used")


@dataclass(frozen=True)
class _Opened:
    file: IO[bytes]
    header: dict[str, Any]
    first: int
    checks: dict[str, int]


class PieceReader:
    """Reads whole pieces from the files of a checkpoint, and checks them. Holds one open file per rank it read from.

    Args:
        storage: of the run.
        folder: of the checkpoint.
        world: how many ranks wrote it.
        checksums: CRC-32 of each rank's JSON file, by its name.
    """

    def __init__(self, storage: Storage, folder: str, world: int, checksums: Mapping[str, int]) -> None:
        self._storage, self._folder, self._world, self._checksums = storage, folder, world, checksums
        self._open: dict[int, _Opened] = {}
        self._stack = ExitStack()

    def __enter__(self) -> PieceReader:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def names(self, rank: int) -> list[str]:
        """The pieces of a rank.

        Raises:
            CheckpointError: what it says of them is damaged.
        """
        if rank not in self._open:
            self._open[rank] = self._opened(rank)
        return list(self._open[rank].checks)

    def read(self, rank: int, name: str) -> Tensor:
        """A rank's piece of a tensor, float32, flat.

        Raises:
            CheckpointError: its bytes are not those that were written.
        """
        if rank not in self._open:
            self._open[rank] = self._opened(rank)
        opened = self._open[rank]
        try:
            begin, end = (int(offset) for offset in opened.header[name]["data_offsets"])
            if not 0 <= begin <= end <= self._storage.size(self._path(rank)) - opened.first:
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise damaged(self._path(rank), f" (what it says of {name})") from None
        opened.file.seek(opened.first + begin)
        data = bytearray(opened.file.read(end - begin))
        if zlib.crc32(data) != opened.checks[name]:
            raise damaged(self._path(rank), f" at {name}")
        return torch.frombuffer(data, dtype=torch.float32) if data else torch.empty(0)

    def _path(self, rank: int) -> str:
        return f"{self._folder}/{rank_file(rank, self._world)}.safetensors"

    def _opened(self, rank: int) -> _Opened:
        checks_file = f"{rank_file(rank, self._world)}.json"
        checks = json.loads(checked_bytes(self._storage, f"{self._folder}/{checks_file}", self._checksums[checks_file]))
        file = self._stack.enter_context(self._storage.open_read(self._path(rank)))
        length = int.from_bytes(file.read(8), "little")
        try:
            # The length itself may be damaged: what it asks for must be there, before memory is taken for it.
            if length > self._storage.size(self._path(rank)):
                raise ValueError
            header = json.loads(file.read(length))
            if not isinstance(header, dict):
                raise ValueError
        except ValueError:
            raise damaged(self._path(rank), " at its beginning") from None
        return _Opened(file, header, 8 + length, checks)
