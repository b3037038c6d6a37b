"""Checkpoints: whole or not there, the same numbers at any number of ranks, and never wrong ones."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
import torch
from torch import Tensor

from pipeline.storage import Storage
from training.engine.checkpoint import (
    Checkpoint,
    CheckpointError,
    Writer,
    complete_checkpoints,
    damaged_checkpoints,
    folder_of,
    load_pieces,
    load_tensors,
    load_whole,
    prune,
    remove_incomplete,
)
from training.engine.shards import Piece, own_part

SHAPES = {"student/w": (5, 3), "student/one": (1,), "student/two": (2,), "teacher/w": (7,), "exp_avg/w": (4, 2, 2)}
STATE = {"guard": {"losses": [0.1, 1e-30]}, "adam_step": 7}


def whole(seed: int = 0) -> dict[str, Tensor]:
    """Tensors of a model, some with fewer numbers than there are ranks."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def pieces_of(tensors: dict[str, Tensor], rank: int, world: int) -> list[Piece]:
    """What a rank holds, as views of the tensors."""
    found = []
    for name, tensor in tensors.items():
        flat = tensor.view(-1)
        start, stop = own_part(flat.numel(), -(-flat.numel() // world), rank)
        part = flat[start:stop]
        found.append(Piece(name, tuple(tensor.shape), start, stop, lambda part=part: part, part.copy_))
    return found


def save(storage: Storage, step: int = 3, world: int = 1, seed: int = 0, background: bool = False) -> Checkpoint:
    """Write a checkpoint as `world` ranks do."""
    tensors = whole(seed)
    writers = [Writer(storage, rank, world, background) for rank in range(world)]
    for rank, writer in enumerate(writers):
        writer.begin(step, pieces_of(tensors, rank, world), STATE, {"centre": torch.arange(4.0) + seed})
    for writer in writers:
        writer.wait()
        assert writer.done
    published = [writer.publish() for writer in writers]
    assert published[0] is not None
    assert published[1:] == [None] * (world - 1)
    assert all(writer.pending is None for writer in writers)
    return published[0]


def read(storage: Storage, checkpoint: Checkpoint, world: int = 1) -> dict[str, Tensor]:
    """Read it as `world` ranks do."""
    tensors = {name: torch.full(shape, torch.nan) for name, shape in SHAPES.items()}
    for rank in range(world):
        load_pieces(storage, checkpoint, pieces_of(tensors, rank, world))
    return tensors


def same(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> bool:
    """Bit-equal."""
    return found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("written", [1, 2, 3, 4])
@pytest.mark.parametrize("wanted", [1, 2, 3, 4])
def test_any_number_of_ranks_reads_what_another_wrote(tmp_path: Path, written: int, wanted: int) -> None:
    storage = Storage(tmp_path)
    save(storage, world=written)
    (checkpoint,) = complete_checkpoints(storage)
    assert same(read(storage, checkpoint, wanted), whole())
    assert (checkpoint.step, checkpoint.state) == (3, STATE)
    assert load_tensors(storage, checkpoint)["centre"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("world", [1, 3])
def test_whole_tensors_of_a_prefix(tmp_path: Path, world: int) -> None:
    storage = Storage(tmp_path)
    checkpoint = save(storage, world=world)
    found = load_whole(storage, checkpoint, "student/")
    assert same(found, {name[8:]: values for name, values in whole().items() if name.startswith("student/")})


@pytest.mark.parametrize("background", [False, True])
def test_an_object_store_serves_as_well(background: bool) -> None:
    storage = Storage(f"memory://{uuid.uuid4().hex}")
    for step in (3, 6):
        save(storage, step=step, world=2, seed=step, background=background)
    first, second = complete_checkpoints(storage)
    assert same(read(storage, first, 3), whole(3))
    assert same(read(storage, second), whole(6))
    assert prune(storage, 1, None, 0) == [first.name]
    assert [item.step for item in complete_checkpoints(storage)] == [6]


def test_nothing_is_a_checkpoint_before_the_last_rank_is_done_and_it_is_published(tmp_path: Path) -> None:
    storage, tensors = Storage(tmp_path), whole()
    for rank in (1, 0):
        writer = Writer(storage, rank, 2, background=False)
        writer.begin(3, pieces_of(tensors, rank, 2), STATE, {})
        assert complete_checkpoints(storage) == []
    writer.publish()
    assert [item.step for item in complete_checkpoints(storage)] == [3]


def test_what_a_kill_left_is_removed_and_the_one_before_stays(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    good = save(storage, step=3)
    Writer(storage, 0, 2, background=False).begin(6, pieces_of(whole(), 0, 2), STATE, {})
    remove_incomplete(storage)
    assert storage.names("checkpoints") == [good.name.rpartition("/")[2]]
    assert damaged_checkpoints(storage) == []
    assert same(read(storage, good), whole())


def test_a_checkpoint_that_is_damaged_or_of_another_format_is_not_removed(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    cut, newer = save(storage, step=3), save(storage, step=6)
    storage.remove(f"{cut.name}/state.safetensors")
    record = json.loads(storage.read_bytes(f"{newer.name}/checkpoint.json"))
    storage.write_bytes(f"{newer.name}/checkpoint.json", json.dumps(record | {"format": 99}).encode())
    remove_incomplete(storage)
    assert complete_checkpoints(storage) == []
    assert damaged_checkpoints(storage) == [cut.name, newer.name]


@pytest.mark.parametrize("world", [1, 2])
def test_cut_bytes_are_noticed_in_every_file(tmp_path: Path, world: int) -> None:
    storage = Storage(tmp_path)
    checkpoint = save(storage, world=world)
    for file in sorted((tmp_path / checkpoint.name).iterdir()):
        data = file.read_bytes()
        for cut in (0, len(data) // 2, len(data) - 1):
            file.write_bytes(data[:cut])
            assert complete_checkpoints(storage) == [] or (file.name == "checkpoint.json" and data[cut:] == b"\n")
        file.unlink()
        assert complete_checkpoints(storage) == []
        file.write_bytes(data)
    assert len(complete_checkpoints(storage)) == 1


@pytest.mark.parametrize("world", [1, 2])
def test_a_flipped_bit_anywhere_never_gives_wrong_values(tmp_path: Path, world: int) -> None:
    """Damaged, or read right all the same (a bit of the header's padding)."""
    storage = Storage(tmp_path)
    noticed, messages = 0, set()
    files = sorted((tmp_path / save(storage, world=world).name).iterdir())
    assert len(files) == 2 * world + 2
    flips = 0
    for file in files:
        data = file.read_bytes()
        for place in range(0, len(data), 7):
            changed = bytearray(data)
            changed[place] ^= 1 << place % 8
            file.write_bytes(changed)
            flips += 1
            try:
                (found,) = complete_checkpoints(storage) or [None]
                if found is None:
                    noticed += 1
                    continue
                values, centre = read(storage, found, 3 - world), load_tensors(storage, found)["centre"]
                assert same(values, whole()), (file.name, place)
                assert centre.tolist() == [0, 1, 2, 3]
                assert found.state == STATE
                assert found.step == 3
            except CheckpointError as error:
                messages.add(str(error))
                noticed += 1
        file.write_bytes(data)
    assert noticed > 0.7 * flips
    assert all(message.startswith("checkpoints/step-000000003/") and " is damaged" in message for message in messages)


def test_another_model_is_refused_by_name(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    checkpoint = save(storage)
    tensors = whole()
    tensors["student/new"] = torch.zeros(2)
    del tensors["teacher/w"]
    tensors["student/one"] = torch.zeros(1, 1)
    with pytest.raises(CheckpointError) as error:
        load_pieces(storage, checkpoint, pieces_of(tensors, 0, 1))
    assert "lacks 1 tensors, such as student/new" in str(error.value)
    assert "has 1 that this model has not, such as teacher/w" in str(error.value)
    assert "1 have another shape, such as student/one" in str(error.value)
    assert torch.equal(tensors["student/w"], whole()["student/w"])


@contextmanager
def held(storage: Storage, gate: threading.Event) -> Iterator[None]:
    """Let writes of this storage wait for a gate."""
    write = storage.open_write

    @contextmanager
    def slow(name: str) -> Iterator[IO[bytes]]:
        assert gate.wait(10)
        with write(name) as file:
            yield file

    storage.open_write = slow  # type: ignore[method-assign]
    yield
    storage.open_write = write  # type: ignore[method-assign]


def test_training_goes_on_while_the_state_of_then_is_written(tmp_path: Path) -> None:
    storage, tensors, gate, centre = Storage(tmp_path), whole(), threading.Event(), torch.ones(4)
    writer = Writer(storage, 0, 1, background=True)
    with held(storage, gate):
        writer.begin(3, pieces_of(tensors, 0, 1), STATE, {"centre": centre})
        assert not writer.done
        assert writer.pending == 3
        for tensor in (*tensors.values(), centre):
            tensor.fill_(-1)
        with pytest.raises(RuntimeError, match="step 3 is not published yet"):
            writer.begin(4, [], {}, {})
        gate.set()
        writer.wait()
    assert writer.done
    checkpoint = writer.publish()
    assert checkpoint is not None
    assert same(read(storage, checkpoint), whole())
    assert load_tensors(storage, checkpoint)["centre"].tolist() == [1] * 4


@pytest.mark.parametrize("ask", [lambda writer: writer.wait(), lambda writer: (writer.join(), writer.done)])
def test_an_error_of_the_thread_comes_out(tmp_path: Path, ask: Callable[[Writer], Any]) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    writer = Writer(Storage(tmp_path), 1, 2, background=True)
    writer.begin(3, pieces_of(whole(), 1, 2), STATE, {})
    with pytest.raises(NotADirectoryError):
        ask(writer)


def test_join_waits_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    writer = Writer(Storage(tmp_path), 1, 2, background=True)
    writer.begin(3, pieces_of(whole(), 1, 2), STATE, {})
    writer.join()
    assert "checkpoint" not in {thread.name for thread in threading.enumerate()}


def test_a_checkpoint_that_is_written_again_is_none_until_it_is_published(tmp_path: Path) -> None:
    """Else a kill in between would leave files of two writings under one marker."""
    storage = Storage(tmp_path)
    save(storage, step=3, seed=1)
    Writer(storage, 0, 1, background=False).begin(
        3, pieces_of(whole(1), 0, 1), STATE, {"centre": torch.arange(4.0) + 1}
    )
    assert complete_checkpoints(storage) == []
    again = save(storage, step=3, seed=2)
    assert same(read(storage, again), whole(2))


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ((1, None, 0), [10]),
        ((2, None, 0), [9, 10]),
        ((20, None, 0), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        ((1, 4, 0), [4, 8, 10]),
        ((1, None, 1), [7, 10]),
        ((1, None, 2), [5, 7, 10]),
        ((1, None, 9), [2, 5, 7, 10]),
        ((2, 5, 1), [5, 7, 9, 10]),
    ],
)
def test_rules_of_what_is_kept(tmp_path: Path, rules: tuple[int, int | None, int], kept: list[int]) -> None:
    storage = Storage(tmp_path)
    for step in range(1, 11):
        save(storage, step=step)
    for step, score in {2: 0.1, 5: 0.5, 7: 0.5}.items():  # of equal ones the later
        storage.write_bytes(f"{folder_of(step)}/probe.json", json.dumps({"score": score}).encode())
    storage.write_bytes(f"{folder_of(3)}/probe.json", b'{"score": "high"}')
    removed = prune(storage, *rules)
    assert [item.step for item in complete_checkpoints(storage)] == kept
    assert removed == [folder_of(step) for step in range(1, 11) if step not in kept]
    assert storage.names("checkpoints") == [folder_of(step).rpartition("/")[2] for step in kept]


def test_later_ones_that_a_run_passed_over_do_not_push_out_what_it_writes(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    for step in (3, 4, 9):
        save(storage, step=step)
    assert prune(storage, 1, None, 0, newest=4) == [folder_of(3)]
    assert [item.step for item in complete_checkpoints(storage)] == [4, 9]
