"""Loading and saving: everything arrives, or nothing changes and the error says why."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from training.models import checkpoints, create, load_weights, save_weights
from training.models.load_plan import WeightsMismatchError
from training.models.task_model import TaskModel
from training.models.tensor_files import StoredTensors, WeightsError, open_tensors

SIZE = {"width": 32, "heads": 4, "depth": 5, "image_size": (256, 192)}


def small(name: str = "tiny", seed: int = 0, **overrides: object) -> nn.Module:
    """A model with every parameter drawn at random, norms and biases too."""
    model = create(name, **(SIZE | overrides))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def snapshot(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return set(first) == set(second) and all(
        first[name].dtype == second[name].dtype and torch.equal(first[name], second[name]) for name in first
    )


@pytest.mark.parametrize("name", ["tiny", "tiny_4k", "tiny_pointmap", "tiny_albedo"])
def test_round_trip_in_the_released_names(tmp_path: Path, name: str) -> None:
    model, other = small(name), small(name, seed=1)
    path = save_weights(model, tmp_path / "x.safetensors")
    stored = load_file(path)
    assert same(stored, model.state_dict())
    assert stored[next(key for key in stored if key.endswith("periods"))].dtype == torch.bfloat16
    report = load_weights(other, path)
    assert same(other.state_dict(), model.state_dict())
    assert report.format == "sapiens2"
    assert report.loaded == len(stored)
    assert not report.missing
    assert not report.unexpected


def test_a_task_checkpoint_gives_its_backbone(tmp_path: Path) -> None:
    model, backbone = small("tiny_seg"), small(seed=1)
    report = load_weights(backbone, save_weights(model, tmp_path / "x.safetensors"))
    assert isinstance(model, TaskModel)
    assert same(backbone.state_dict(), model.backbone.state_dict())
    assert report.unused
    assert all(name.startswith("decode_head.") for name in report.unused)


def test_a_pretraining_checkpoint_fills_a_task_model_on_request_only(tmp_path: Path) -> None:
    backbone, model = small(), small("tiny_seg", seed=1)
    assert isinstance(model, TaskModel)
    path = save_weights(backbone, tmp_path / "x.safetensors")
    before = snapshot(model)
    with pytest.raises(
        WeightsMismatchError, match=r"missing in the file.*decode_head\.deconv_layers\.0\.weight"
    ) as error:
        load_weights(model, path)
    assert 'allow_missing=("decode_head.",)' in str(error.value)
    assert same(model.state_dict(), before)
    report = load_weights(model, path, allow_missing=("decode_head.",))
    assert same(model.backbone.state_dict(), backbone.state_dict())
    assert all(
        torch.equal(before[name], tensor) for name, tensor in model.state_dict().items() if name in report.missing
    )
    assert all(name.startswith("decode_head.") for name in report.missing)


def test_what_does_not_fit_is_named_and_nothing_changes(tmp_path: Path) -> None:
    stored = {name: tensor.clone() for name, tensor in small().state_dict().items()}
    del stored["blocks.1.ffn.w3.bias"]
    stored["blocks.0.attn.wq.weight"] = torch.zeros(3, 5)
    stored["blocks.9.extra"] = torch.zeros(1)
    save_file(stored, tmp_path / "x.safetensors")
    model = small(seed=1)
    before = snapshot(model)
    with pytest.raises(WeightsMismatchError, match="sapiens2 names") as error:
        load_weights(model, tmp_path / "x.safetensors")
    text = str(error.value)
    assert "missing in the file (1): blocks.1.ffn.w3.bias" in text
    assert "unexpected in the file (1): blocks.9.extra" in text
    assert "of another shape (1): blocks.0.attn.wq.weight (file 3x5, model 32x32)" in text
    assert error.value.report.missing == ["blocks.1.ffn.w3.bias"]
    assert same(model.state_dict(), before)

    report = load_weights(
        model,
        tmp_path / "x.safetensors",
        allow_missing=("blocks.1.ffn.",),
        allow_unexpected=("blocks.9.",),
        allow_mismatched=("blocks.0.attn.",),
    )
    assert report.loaded == len(stored) - 2
    left = ("blocks.1.ffn.w3.bias", "blocks.0.attn.wq.weight")
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name] if name in left else stored[name]), name
    assert same(snapshot(model), before) is False
    assert load_weights(small(seed=1), tmp_path / "x.safetensors", strict=False).loaded == report.loaded


def test_long_lists_are_cut(tmp_path: Path) -> None:
    path = save_weights(small(depth=4), tmp_path / "x.safetensors")
    with pytest.raises(WeightsMismatchError, match=r"missing in the file \(34\): .* and 14 more"):
        load_weights(small(depth=6), path)


def test_allowing_takes_beginnings_not_a_text(tmp_path: Path) -> None:
    path = save_weights(small(), tmp_path / "x.safetensors")
    with pytest.raises(WeightsError, match="allow_missing is the text"):
        load_weights(small(), path, allow_missing="decode_head.")


@pytest.mark.parametrize(
    ("dtype", "expected"), [(None, torch.float32), ("keep", torch.bfloat16), (torch.float16, torch.float16)]
)
def test_dtypes(tmp_path: Path, dtype: torch.dtype | str | None, expected: torch.dtype) -> None:
    path = save_weights(small(), tmp_path / "x.safetensors", dtype=torch.bfloat16)
    stored = load_file(path)
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}
    model = small(seed=1)
    objects = [id(parameter) for parameter in model.parameters()]
    report = load_weights(model, path, dtype=dtype)  # type: ignore[arg-type]
    assert {parameter.dtype for parameter in model.parameters()} == {expected}
    assert model.state_dict()["rope_embed.periods"].dtype == torch.bfloat16
    assert all(torch.equal(tensor, stored[name].to(tensor.dtype)) for name, tensor in model.state_dict().items())
    # An optimizer that was made before still holds the model's parameters.
    assert [id(parameter) for parameter in model.parameters()] == objects
    assert report.stored_dtypes == {"bfloat16": len(stored)}


def test_dtype_must_be_floating(tmp_path: Path) -> None:
    path = save_weights(small(), tmp_path / "x.safetensors")
    with pytest.raises(WeightsError, match=r"dtype is torch\.int8"):
        load_weights(small(), path, dtype=torch.int8)
    save_file({name: tensor.to(torch.int8) for name, tensor in small().state_dict().items()}, path)
    with pytest.raises(WeightsError, match="floating numbers"):
        load_weights(small(), path)


@pytest.mark.parametrize("max_shard_bytes", [10**9, 50_000])
def test_a_model_on_the_meta_device_is_filled(tmp_path: Path, max_shard_bytes: int) -> None:
    model = small("tiny_4k")
    path = save_weights(model, tmp_path / "model", max_shard_bytes=max_shard_bytes)
    assert (len(list(path.iterdir())) > 3) == (max_shard_bytes < 10**9)
    empty = create("tiny_4k", device="meta", **SIZE)  # type: ignore[arg-type]
    empty.cls_token.requires_grad_(False)
    report = load_weights(empty, path)
    assert same(empty.state_dict(), model.state_dict())
    assert not report.left_on_meta
    assert {name for name, parameter in empty.named_parameters() if not parameter.requires_grad} == {"cls_token"}
    assert torch.equal(empty(images := torch.randn(1, 3, 64, 64))[0], model(images)[0])


def test_a_head_that_stays_on_the_meta_device_is_reported(tmp_path: Path) -> None:
    path = save_weights(small(), tmp_path / "x.safetensors")
    empty = create("tiny_seg", device="meta", **SIZE)  # type: ignore[arg-type]
    report = load_weights(empty, path, allow_missing=("decode_head.",))
    assert report.left_on_meta == report.missing
    assert "left on meta" in str(report)


def test_tensors_are_read_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one tensor of the file is alive beside the model, whatever the file's size."""
    path = save_weights(small(), tmp_path / "model", max_shard_bytes=50_000)
    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
    most = 0

    @contextmanager
    def watched(path: str | Path) -> Iterator[StoredTensors]:
        def watch(read):  # type: ignore[no-untyped-def]
            def inner() -> torch.Tensor:
                nonlocal most
                tensor = read()
                alive.add(tensor)
                most = max(most, len(alive))
                return tensor

            return inner

        with open_tensors(path) as stored:
            yield replace(stored, tensors={k: replace(t, read=watch(t.read)) for k, t in stored.tensors.items()})

    monkeypatch.setattr(checkpoints, "open_tensors", watched)
    empty = create("tiny", device="meta", **SIZE)  # type: ignore[arg-type]
    load_weights(empty, path)
    # The one before is dropped when the next has arrived.
    assert 1 <= most <= 2
    assert not alive


def test_periods_must_be_those_of_the_configuration(tmp_path: Path) -> None:
    model = small()
    stored = snapshot(model)
    stored["rope_embed.periods"] = stored["rope_embed.periods"] * 2
    save_file(stored, tmp_path / "x.safetensors")
    before = snapshot(other := small(seed=1))
    with pytest.raises(WeightsMismatchError, match=r"rope_embed\.periods is \[2\.0, .*rope_base 100\.0 gives \[1\.0, "):
        load_weights(other, tmp_path / "x.safetensors", strict=False)
    assert same(other.state_dict(), before)
    # The same numbers in another dtype are fine.
    stored["rope_embed.periods"] = model.state_dict()["rope_embed.periods"].to(torch.float16)
    save_file(stored, tmp_path / "x.safetensors")
    load_weights(other, tmp_path / "x.safetensors")
    assert same(other.state_dict(), model.state_dict())


def test_float32_rope_loads_and_saves_the_same_files(tmp_path: Path) -> None:
    exact = small(rope_dtype="float32")
    path = save_weights(exact, tmp_path / "exact.safetensors")
    assert load_file(path)["rope_embed.periods"].dtype == torch.bfloat16
    released = small(seed=1)
    load_weights(released, path)
    back = small(seed=2, rope_dtype="float32")
    load_weights(back, save_weights(released, tmp_path / "released.safetensors"))
    assert same(back.state_dict(), exact.state_dict())


def test_timm_dictionaries_are_the_only_pickles(tmp_path: Path) -> None:
    model = small()
    renamed = load_file(save_weights(model, tmp_path / "t.safetensors", format="timm"))
    torch.save({"state_dict": renamed}, tmp_path / "timm.pth")
    other = small(seed=1)
    assert load_weights(other, tmp_path / "timm.pth").format == "timm"
    assert same(other.state_dict(), model.state_dict())
    torch.save(model.state_dict(), tmp_path / "ours.pth")
    with pytest.raises(WeightsError, match="pickle without timm's names"):
        load_weights(other, tmp_path / "ours.pth")


def test_unknown_files_are_named_as_such(tmp_path: Path) -> None:
    save_file({"pos_embed": torch.zeros(1), "layers.0.w": torch.zeros(1)}, tmp_path / "x.safetensors")
    with pytest.raises(WeightsError, match=r"none of the known formats.*layers\.0\.w, pos_embed.*first version"):
        load_weights(small(), tmp_path / "x.safetensors")


def test_other_modules_keep_their_own_names(tmp_path: Path) -> None:
    first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    load_weights(second, save_weights(first, tmp_path / "x.safetensors"))
    assert same(first.state_dict(), second.state_dict())


def test_a_compiled_module_is_seen_through(tmp_path: Path) -> None:
    model, other = small(), small(seed=1)
    path = save_weights(torch.compile(model), tmp_path / "x.safetensors")  # type: ignore[arg-type]
    load_weights(torch.compile(other), path)  # type: ignore[arg-type]
    assert same(other.state_dict(), model.state_dict())


@pytest.mark.parametrize(
    ("name", "format_name", "message"),
    [
        ("tiny_4k", "timm", r"timm has no place for tokenizer\.w_cls"),
        ("tiny_4k", "transformers", r"transformers has no place for tokenizer\.w_cls"),
        ("tiny_pose", "timm", r"no place for backbone\.cls_token.*save_weights\(model\.backbone"),
        ("tiny_albedo", "transformers", "no Sapiens2 model with a AlbedoHead"),
        ("tiny", "onnx", "format is 'onnx', allowed are 'sapiens2', 'timm', 'transformers'"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(tmp_path: Path, name: str, format_name: str, message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        save_weights(small(name), tmp_path / "x", format=format_name)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="transformers reads a folder"):
        save_weights(small(), tmp_path / "x.safetensors", format="transformers")
    with pytest.raises(WeightsError, match="transformers has no model for a Linear"):
        save_weights(nn.Linear(2, 2), tmp_path / "x", format="transformers")
    with pytest.raises(WeightsError, match="cls_token is on the meta device"):
        save_weights(create("tiny", device="meta"), tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    model = create("tiny", depth=1)
    for dtype in (torch.int8, "float16", torch.complex64):
        with pytest.raises(WeightsError, match="dtype is"):
            save_weights(model, tmp_path / "m.safetensors", dtype=dtype)  # type: ignore[arg-type]
    for name in ("m.pth", "m.pt", "m.bin"):
        with pytest.raises(WeightsError, match="not pickled"):
            save_weights(model, tmp_path / name)
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(WeightsError, match="is a folder"):
        save_weights(model, tmp_path / "folder.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.safetensors"]


def test_a_link_to_a_folder_of_weights_stays_a_link(tmp_path: Path) -> None:
    model = create("tiny", depth=1)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    save_weights(model, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "model.safetensors").is_file()
    load_weights(create("tiny", depth=1), tmp_path / "link")


def test_a_file_with_sparse_tensors_changes_nothing(tmp_path: Path) -> None:
    model = create("tiny", depth=1)
    save_weights(model, tmp_path / "m.safetensors", format="timm")
    from safetensors.torch import load_file

    stored = load_file(tmp_path / "m.safetensors")
    for spoil in (torch.Tensor.to_sparse, lambda tensor: tensor.to("meta")):
        torch.save({**stored, "norm.weight": spoil(stored["norm.weight"])}, tmp_path / "m.pth")
        other = create("tiny", depth=1)
        before = {name: value.clone() for name, value in other.state_dict().items()}
        with pytest.raises(WeightsError, match="sparse, quantised or meta"):
            load_weights(other, tmp_path / "m.pth")
        assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


def test_a_compiled_part_is_refused_and_one_compiled_in_place_is_saved(tmp_path: Path) -> None:
    model = create("tiny_pose", depth=1)
    model.backbone.compile(backend="eager")
    save_weights(model, tmp_path / "m.safetensors")
    load_weights(create("tiny_pose", depth=1), tmp_path / "m.safetensors")
    model.backbone = torch.compile(model.backbone, backend="eager")
    with pytest.raises(WeightsError, match=r"part\.compile\(\)"):
        save_weights(model, tmp_path / "other.safetensors")
