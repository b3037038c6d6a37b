"""Checkpoints: every rank writes its pieces, the last file written makes them a checkpoint.

    checkpoints/step-000001000/
        rank-00000-of-00002.safetensors   pieces of flattened tensors, float32 (`shards.Piece`)
        rank-00000-of-00002.json          CRC-32 of each piece
        state.safetensors                 small tensors that every rank has (the centre)
        checkpoint.json                   written last: step, layout, position in the data, sizes of the files, CRC-32
                                          of the small ones and of itself

A folder without `checkpoint.json` is not a checkpoint: a kill at any moment leaves the one before. Pieces are cut by
index of the flattened tensor, so any number of ranks reads what another number wrote, without a conversion.
(DeepSpeed's universal checkpoints need one, offline, as long as the checkpoint itself, and are pickles; these are
safetensors.)
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from safetensors.torch import load as parse_tensors
from torch import Tensor

from pipeline.storage import Storage
from training.engine.piece_files import (
    CheckpointError,
    PieceReader,
    checked_bytes,
    rank_file,
    write_pieces,
    write_tensors,
)
from training.engine.shards import Piece, names_that_differ, ranks_of

FOLDER = "checkpoints"
MARKER = "checkpoint.json"
STATE = "state.safetensors"
FORMAT = 1

__all__ = ["Checkpoint", "CheckpointError", "Writer", "complete_checkpoints", "load_pieces", "load_whole", "prune"]


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        name: its folder below the run's, e.g. `checkpoints/step-000001000`.
        record: what `checkpoint.json` holds.
    """

    name: str
    record: dict[str, Any]

    @property
    def step(self) -> int:
        """Optimizer steps that were done."""
        return int(self.record["step"])

    @property
    def state(self) -> dict[str, Any]:
        """The JSON-able state that was saved with it."""
        return dict(self.record["state"])


def folder_of(step: int) -> str:
    """The folder of a step's checkpoint."""
    return f"{FOLDER}/step-{step:09d}"


def complete_checkpoints(storage: Storage) -> list[Checkpoint]:
    """All complete checkpoints of a run, oldest first. Those of which a file is missing or cut are not among them."""
    found = []
    for name in storage.names(FOLDER):
        checkpoint = _opened(storage, f"{FOLDER}/{name}")
        if checkpoint is not None:
            found.append(checkpoint)
    return sorted(found, key=lambda item: item.step)


def _opened(storage: Storage, folder: str) -> Checkpoint | None:
    record = storage.read_json(f"{folder}/{MARKER}")
    if record is None or record.get("format") != FORMAT or record.get("checksum") != _checksum(record):
        return None
    for file, size in record["files"].items():
        if not storage.exists(f"{folder}/{file}") or storage.size(f"{folder}/{file}") != size:
            return None
    return Checkpoint(folder, record)


def _checksum(record: Mapping[str, Any]) -> int:
    """CRC-32 of what `checkpoint.json` says, but for this number."""
    return zlib.crc32(json.dumps({**record, "checksum": None}, sort_keys=True).encode())


def remove_incomplete(storage: Storage) -> None:
    """Remove what a kill left in the middle of a checkpoint. Only while nobody writes one.

    What was a checkpoint once, and is damaged or of another format, stays: its user may want to look at it.
    """
    for name in storage.names(FOLDER):
        if not storage.exists(f"{FOLDER}/{name}/{MARKER}"):
            storage.remove(f"{FOLDER}/{name}")


def damaged_checkpoints(storage: Storage) -> list[str]:
    """Folders that were checkpoints, and are not any more: a file is missing or cut, or the format is another."""
    whole = {checkpoint.name for checkpoint in complete_checkpoints(storage)}
    names = (f"{FOLDER}/{name}" for name in storage.names(FOLDER))
    return [name for name in names if name not in whole and storage.exists(f"{name}/{MARKER}")]


def damage_of(storage: Storage, checkpoint: Checkpoint) -> str | None:
    """Read all of a checkpoint and compare its checksums: what is damaged, or None. Holds one piece at a time."""
    try:
        with _reader(storage, checkpoint) as reader:
            for rank in range(int(checkpoint.record["world"])):
                for name in reader.names(rank):
                    reader.read(rank, name)
        load_tensors(storage, checkpoint)
    except (CheckpointError, OSError, KeyError, ValueError) as error:
        return str(error)
    return None


def folder_problem(storage: Storage, name: str) -> str | None:
    """What is wrong with the folder of a checkpoint, by its name below the run's; None: it is whole, or a kill left it
    in the middle and it never was a checkpoint."""
    if not storage.exists(f"{name}/{MARKER}"):
        return None
    checkpoint = _opened(storage, name)
    return (
        "a file is missing or cut, or its record is damaged" if checkpoint is None else damage_of(storage, checkpoint)
    )


class Writer:
    """Writes the checkpoints of one rank; a background thread may do it from a copy in host memory.

    Use: `begin` on every rank; `done` says whether this rank's files are there; when they are on every rank, `publish`
    on rank 0. The caller knows about the other ranks.

    Args:
        storage: of the run.
        rank, world: of this process.
        background: copy, return, and write while training goes on.
    """

    def __init__(self, storage: Storage, rank: int, world: int, background: bool) -> None:
        self.storage, self.rank, self.world, self.background = storage, rank, world, background
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self.pending: int | None = None
        """The step of a checkpoint that is not published yet."""

    def begin(
        self, step: int, pieces: Sequence[Piece], state: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> None:
        """Start to write the state as it is now."""
        if self.pending is not None:
            raise RuntimeError(f"the checkpoint of step {self.pending} is not published yet")
        self.pending, self._error = step, None
        if self.rank == 0:
            # A damaged checkpoint of this step may be there: from now on it is none at all.
            self.storage.remove(f"{folder_of(step)}/{MARKER}")
        copies = [(piece, piece.read().detach().to("cpu", torch.float32, copy=True)) for piece in pieces]
        small = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        self._record = _layout(step, pieces, self.world, state)
        write = partial(self._write, folder_of(step), copies, small)
        if self.background:
            self._thread = threading.Thread(target=self._guarded, args=(write,), name="checkpoint")
            self._thread.start()
        else:
            write()

    def _guarded(self, write: Callable[[], None]) -> None:
        try:
            write()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that asks
            self._error = error

    def _write(self, folder: str, copies: list[tuple[Piece, Tensor]], small: dict[str, Tensor]) -> None:
        pieces = {piece.name: values for piece, values in copies}
        write_pieces(self.storage, f"{folder}/{rank_file(self.rank, self.world)}", pieces)
        if self.rank == 0:
            with self.storage.open_write(f"{folder}/{STATE}") as file:
                write_tensors(file, small)

    @property
    def done(self) -> bool:
        """Whether this rank's files are written; True where nothing is pending.

        Raises:
            OSError, ...: what went wrong while writing.
        """
        if self._thread is not None and self._thread.is_alive():
            return False
        self.wait()
        return True

    def wait(self) -> None:
        """Wait for this rank's files.

        Raises:
            OSError, ...: as `done`.
        """
        self.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def join(self) -> None:
        """Wait until nothing is written any more, whatever became of it."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def publish(self) -> Checkpoint | None:
        """Make the pending files a checkpoint (rank 0, when all ranks are done); other ranks only forget them."""
        step, self.pending = self.pending, None
        if self.rank != 0 or step is None:
            return None
        folder, record = folder_of(step), self._record
        ranks = [rank_file(rank, self.world) for rank in range(self.world)]
        small = [*(f"{name}.json" for name in ranks), STATE]
        files = [*(f"{name}.safetensors" for name in ranks), *small]
        record["files"] = {file: self.storage.size(f"{folder}/{file}") for file in files}
        record["checksums"] = {file: zlib.crc32(self.storage.read_bytes(f"{folder}/{file}")) for file in small}
        record["checksum"] = _checksum(record)
        self.storage.write_bytes(f"{folder}/{MARKER}", json.dumps(record, sort_keys=True, indent=1).encode() + b"\n")
        return Checkpoint(folder, record)


def _layout(step: int, pieces: Sequence[Piece], world: int, state: Mapping[str, Any]) -> dict[str, Any]:
    """What rank 0 knows of everybody's pieces: all ranks but the last hold parts as long as its own."""
    tensors = {piece.name: {"shape": list(piece.shape), "part": max(1, piece.stop - piece.start)} for piece in pieces}
    return {"format": FORMAT, "step": step, "world": world, "state": dict(state), "tensors": tensors}


def load_tensors(storage: Storage, checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The small tensors that every rank has.

    Raises:
        CheckpointError: their bytes are not those that were written.
    """
    crc = checkpoint.record["checksums"][STATE]
    return dict(parse_tensors(checked_bytes(storage, f"{checkpoint.name}/{STATE}", crc)))


def load_pieces(storage: Storage, checkpoint: Checkpoint, pieces: Sequence[Piece]) -> None:
    """Fill the pieces of this rank from what any number of ranks wrote.

    Raises:
        CheckpointError: the checkpoint is of another model, or its bytes are not those that were written.
    """
    tensors = checkpoint.record["tensors"]
    check_names(checkpoint, pieces)
    with _reader(storage, checkpoint) as reader:
        for piece in pieces:
            if piece.start == piece.stop:
                continue
            part = int(tensors[piece.name]["part"])
            found = [
                reader.read(rank, piece.name)[first:last]
                for rank, first, last in ranks_of(piece.start, piece.stop, part)
            ]
            piece.write(found[0] if len(found) == 1 else torch.cat(found))


def load_whole(storage: Storage, checkpoint: Checkpoint, prefix: str) -> dict[str, Tensor]:
    """Every tensor whose name begins with `prefix`, whole, by the rest of its name; float32 on the CPU.

    Raises:
        CheckpointError: its bytes are not those that were written.
    """
    whole = {}
    with _reader(storage, checkpoint) as reader:
        for name, facts in checkpoint.record["tensors"].items():
            if not name.startswith(prefix):
                continue
            shape = tuple(facts["shape"])
            numel = torch.Size(shape).numel()
            parts = [reader.read(rank, name)[a:b] for rank, a, b in ranks_of(0, numel, int(facts["part"]))]
            whole[name.removeprefix(prefix)] = torch.cat(parts).view(shape)
    return whole


def check_names(checkpoint: Checkpoint, pieces: Sequence[Piece]) -> None:
    """CheckpointError where the checkpoint's tensors are not those of the model."""
    shapes = {name: tuple(facts["shape"]) for name, facts in checkpoint.record["tensors"].items()}
    missing, extra, other = names_that_differ(pieces, shapes)
    problems = []
    if missing:
        problems.append(f"it lacks {len(missing)} tensors, such as {missing[0]}")
    if extra:
        problems.append(f"it has {len(extra)} that this model has not, such as {extra[0]}")
    if other:
        problems.append(f"{len(other)} have another shape, such as {other[0]}")
    if problems:
        raise CheckpointError(f"{checkpoint.name} is of another model: {'; '.join(problems)}")


def _reader(storage: Storage, checkpoint: Checkpoint) -> PieceReader:
    return PieceReader(storage, checkpoint.name, int(checkpoint.record["world"]), checkpoint.record["checksums"])


def prune(
    storage: Storage, keep_last: int, keep_every: int | None, keep_best: int, newest: int | None = None
) -> list[str]:
    """Remove checkpoints that no rule keeps; returns their names.

    Those of steps after `newest` are left alone and do not count: a run that had to pass over them comes to them again.

    The best are those with the highest `score` in a `probe.json` beside the checkpoint (`eval` writes it).
    """
    checkpoints = [item for item in complete_checkpoints(storage) if newest is None or item.step <= newest]
    kept = {checkpoint.name for checkpoint in checkpoints[-keep_last:]}
    if keep_every is not None:
        kept |= {checkpoint.name for checkpoint in checkpoints if checkpoint.step % keep_every == 0}
    scored = []
    for checkpoint in checkpoints:
        probe = storage.read_json(f"{checkpoint.name}/probe.json")
        if probe is not None and isinstance(probe.get("score"), int | float):
            scored.append((float(probe["score"]), checkpoint.step, checkpoint.name))
    kept |= {name for _, _, name in sorted(scored, reverse=True)[:keep_best]}
    removed = [checkpoint.name for checkpoint in checkpoints if checkpoint.name not in kept]
    for name in removed:
        storage.remove(f"{name}/{MARKER}")  # first: a half-removed folder is no checkpoint
        storage.remove(name)
    return removed
