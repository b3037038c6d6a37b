"""Reads weights into a module and writes them, in the released names, timm's or transformers'.

A load is checked whole before anything in the module changes: names, shapes, kinds of numbers and RoPE periods. Tensors
then go in one at a time, so that the peak is the model and one tensor, also for a module on the meta device.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from training.models import convert_timm, convert_transformers, load_plan
from training.models.load_plan import LoadPlan, LoadReport
from training.models.rope import RopeEmbed, rope_periods
from training.models.tensor_files import PICKLED, StoredTensors, WeightsError, first_names, open_tensors
from training.models.tensor_writer import DEFAULT_SHARD_BYTES, TensorToWrite, get_only, write_file, write_folder

Format = Literal["sapiens2", "timm", "transformers"]
STORED_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
Gather = Callable[[list[nn.Parameter]], AbstractContextManager[object]]


def load_weights(
    module: nn.Module,
    path: str | Path,
    *,
    strict: bool = True,
    dtype: torch.dtype | Literal["keep"] | None = None,
    device: torch.device | str | None = None,
    allow_missing: Sequence[str] = (),
    allow_unexpected: Sequence[str] = (),
    allow_mismatched: Sequence[str] = (),
    gather: Gather | None = None,
) -> LoadReport:
    """Fill a `Backbone`, a `TaskModel` or another module from a checkpoint, in any of the formats.

    The format is told from the names. A pretraining checkpoint fills the backbone of a task model if `allow_missing`
    has "decode_head."; a task checkpoint gives its backbone to a bare `Backbone`.

    Args:
        module: parameters on any device. Those on "meta" are made anew on `device`.
        path: a safetensors file, a `*.safetensors.index.json`, a folder with model.safetensors or its shards (such as
            transformers writes), or a timm `.pth` or `.bin` file, of which only a dictionary of tensors is read.
        strict: False accepts missing, unexpected and mis-shaped tensors of every name; the report lists them.
        dtype: None casts to the dtype that each parameter has, "keep" takes the stored dtypes, another dtype changes
            all parameters to it. The RoPE periods keep theirs.
        device: for parameters on the meta device; default: the CPU.
        allow_missing: beginnings of names that the file may lack; they keep their values.
        allow_unexpected: beginnings of stored names that the module need not have.
        allow_mismatched: beginnings of names to leave alone where the stored shape differs (a head with other classes).
        gather: for parameters partitioned by DeepSpeed ZeRO-3, e.g.
            `lambda p: deepspeed.zero.GatheredParameters(p, modifier_rank=0)`; called with one parameter at a time, in
            the same order on every rank. Every rank reads the file and has to call this.

    Returns:
        What was loaded and what was not.

    Raises:
        WeightsError: the file is not readable as weights, or does not fit. The module is unchanged.
    """
    if dtype is not None and dtype != "keep" and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise WeightsError(f'dtype is {dtype!r}; give None, "keep" or a floating torch dtype')
    target = unwrap(module)
    with open_tensors(path) as stored:
        plan = load_plan.make_plan(target, stored, gather is not None)
        problems = [*_config_problems(target, plan, stored), *_period_problems(target, plan, stored)]
        plan.check(strict, allow_missing, allow_unexpected, allow_mismatched, problems)
        if gather is not None and dtype is not None:
            raise WeightsError("dtype cannot be changed while parameters are partitioned; give dtype=None")
        _check_device(target, device)
        _fill(target, plan, stored, dtype, device, gather)
    return plan.report


def _check_device(module: nn.Module, device: torch.device | str | None) -> None:
    """Find out before anything is changed that tensors can be made where they are wanted."""
    if any(tensor.is_meta for tensor in module.state_dict().values()):
        try:
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            raise WeightsError(f"device is {device!r}, where no tensor can be made: {error}") from error


def unwrap(module: nn.Module) -> nn.Module:
    """The module inside `torch.compile`'s wrapper, whose names have a prefix."""
    inner = getattr(module, "_orig_mod", module)
    assert isinstance(inner, nn.Module)
    return inner


def _ropes(module: nn.Module) -> dict[str, RopeEmbed]:
    """RoPE modules by the key of their periods."""
    found = {name: child for name, child in module.named_modules() if isinstance(child, RopeEmbed)}
    return {f"{name}.periods".removeprefix("."): child for name, child in found.items()}


def _config_problems(module: nn.Module, plan: LoadPlan, stored: StoredTensors) -> list[str]:
    if (
        stored.config is None
        or stored.config.get("model_type") != "sapiens2"
        or plan.report.format == convert_timm.NAME
    ):
        return []
    ropes = list(_ropes(module).values())
    return convert_transformers.differences(stored.config, ropes[0].config) if len(ropes) == 1 else []


def _period_problems(module: nn.Module, plan: LoadPlan, stored: StoredTensors) -> list[str]:
    """Stored periods must be those that the configuration gives: a wrong base or head width shows here only."""
    problems = []
    for key, rope in _ropes(module).items():
        if key not in plan.sources or key in plan.mismatched_keys:
            continue
        found = stored.tensors[plan.sources[key][0]].read().to(torch.bfloat16)
        computed = [
            rope_periods(rope.config.replace(rope_dtype=dtype)).to(torch.bfloat16) for dtype in ("bfloat16", "float32")
        ]
        if not any(torch.equal(found, periods) for periods in computed):
            problems.append(
                f"{key} is {[round(value, 4) for value in found.tolist()]} in the file, but rope_base "
                f"{rope.config.rope_base} gives {[round(value, 4) for value in computed[0].tolist()]}"
            )
    return problems


def _fill(
    module: nn.Module,
    plan: LoadPlan,
    stored: StoredTensors,
    dtype: torch.dtype | Literal["keep"] | None,
    device: torch.device | str | None,
    gather: Gather | None,
) -> None:
    ropes = _ropes(module)
    made: dict[int, nn.Parameter] = {}
    for key, old in plan.targets.items():
        owner_name, _, leaf = key.rpartition(".")
        owner = module.get_submodule(owner_name)
        place = (device or "cpu") if old.is_meta else old.device
        if key in ropes:
            # Computed rather than copied: the same numbers, in the dtype that the configuration asks for.
            ropes[key].periods = rope_periods(ropes[key].config, place)
            continue
        names = plan.sources.get(key)
        if names is None or key in plan.mismatched_keys:
            continue
        parts = [stored.tensors[name].read() for name in names]
        value = parts[0] if len(parts) == 1 else torch.cat(parts)
        wanted = old.dtype if dtype is None else value.dtype if dtype == "keep" else dtype
        if gather is not None and isinstance(old, nn.Parameter):
            with gather([old]), torch.no_grad():
                if old.numel():  # ranks that only receive see it empty in some modes
                    old.copy_(value.reshape(old.shape))
        elif not old.is_meta and wanted == old.dtype:
            with torch.no_grad():
                old.copy_(value)
        elif not isinstance(old, nn.Parameter):
            setattr(owner, leaf, value.to(place, wanted, copy=True))
        elif not old.is_meta:
            # The parameter stays the same object: optimizers and hooks hold it.
            old.data = value.to(place, wanted, copy=True)
        else:
            if id(old) not in made:
                made[id(old)] = nn.Parameter(value.to(place, wanted, copy=True), requires_grad=old.requires_grad)
            setattr(owner, leaf, made[id(old)])
    every = [*module.named_parameters(), *module.named_buffers()]
    plan.report.left_on_meta = [name for name, tensor in every if tensor.is_meta]


def save_weights(
    module: nn.Module,
    path: str | Path,
    format: Format = "sapiens2",
    *,
    dtype: torch.dtype | None = None,
    max_shard_bytes: int = DEFAULT_SHARD_BYTES,
    gather: Gather | None = None,
    write: bool = True,
) -> Path:
    """Write a module's weights; whole or not at all, needing the memory of one tensor.

    Args:
        module: a `Backbone`, a `TaskModel`, or with format "sapiens2" any module.
        path: a `.safetensors` file: one file of any size. Any other path: a folder of model.safetensors, in shards
            where there is more than `max_shard_bytes`. transformers takes a folder only, which gets a config.json and
            loads by `from_pretrained`.
        format: "sapiens2" = the names of the released files, which are the module's own; "timm": for a bare backbone
            (of a task model, save `model.backbone`); "transformers": a backbone or a pose, segmentation, normal or
            pointmap model. What a format has no place for is an error, nothing is dropped.
        dtype: to cast to; None = as they are. The RoPE periods are bfloat16 always.
        max_shard_bytes: size of a shard of a folder; a larger tensor has a shard to itself.
        gather: as in `load_weights`. Every rank then has to call this.
        write: False on the ranks that only take part in gathering; all but one, where they share a file system.

    Returns:
        The path.

    Raises:
        WeightsError: the format cannot hold this module, its weights are on the meta device or partitioned, or the
            folder holds something else.
    """
    if format not in get_args(Format):
        raise WeightsError(f"format is {format!r}, allowed are {', '.join(map(repr, get_args(Format)))}")
    if dtype is not None and dtype not in STORED_DTYPES:
        raise WeightsError(f"dtype is {dtype!r}; give None or one of {', '.join(map(str, STORED_DTYPES))}")
    path = Path(path)
    if path.suffix in PICKLED:
        raise WeightsError(f"{path}: weights are not pickled; give a .safetensors file, or a folder")
    # A link to a folder of checkpoints stays a link.
    path = Path(os.path.realpath(path))
    if path.suffix == ".safetensors" and path.is_dir():
        raise WeightsError(f"{path} is a folder; give a file, or a folder whose name does not end in .safetensors")
    target = unwrap(module)
    wrapped = [name for name in target.state_dict() if "_orig_mod" in name.split(".")]
    if wrapped:
        raise WeightsError(
            f"{wrapped[0]}: a part of the module was replaced by torch.compile(part), which renames its weights; use "
            "part.compile(), which keeps the names, or compile the whole module"
        )
    single = path.suffix == ".safetensors"
    if single and format == convert_transformers.NAME:
        raise WeightsError(f'{path}: transformers reads a folder, not a file: give a path without ".safetensors"')
    config = convert_transformers.config_of(target) if format == convert_transformers.NAME else None
    tensors = _to_write(target, format, dtype, gather)
    if config is not None:
        kinds = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors}
        config["dtype"] = kinds.pop() if len(kinds) == 1 else "float32"
    if not write:
        get_only(tensors, None if single else max_shard_bytes)
    elif single:
        write_file(path, tensors)
    else:
        write_folder(path, tensors, max_shard_bytes, config)
    return path


def _to_write(
    module: nn.Module, format: Format, dtype: torch.dtype | None, gather: Gather | None
) -> list[TensorToWrite]:
    ropes = _ropes(module)
    rename = {"timm": convert_timm.sources, "transformers": convert_transformers.sources}.get(format)
    tensors, homeless = [], []
    for key, value in module.state_dict(keep_vars=True).items():
        if key in ropes:
            if rename is None:
                periods = rope_periods(ropes[key].config.replace(rope_dtype="bfloat16"))
                tensors.append(TensorToWrite(key, tuple(periods.shape), periods.dtype, _getter(periods, None)))
            continue
        # transformers keeps the prefix in its files, and its name rules know only what is below it.
        bare = key.removeprefix("backbone.") if format == "transformers" else key
        names = (key,) if rename is None else rename(bare)
        if names is None:
            homeless.append(key)
            continue
        name = names[0] if format == "timm" else key
        load_plan.refuse_unreadable(key, value, gather is not None)
        if value.is_meta:
            raise WeightsError(f"{key} is on the meta device, it has no values: load weights first")
        kind = dtype if dtype is not None and value.is_floating_point() else value.dtype
        tensors.append(TensorToWrite(name, load_plan.full_shape(value), kind, _getter(value, gather)))
    if homeless:
        raise WeightsError(
            f'{format} has no place for {first_names(homeless)}; nothing was written. Use format="sapiens2"'
            + (", or save the backbone alone: save_weights(model.backbone, ...)" if hasattr(module, "backbone") else "")
        )
    return tensors


def _getter(value: Tensor, gather: Gather | None) -> Callable[[], Tensor]:
    def get() -> Tensor:
        if gather is None or not isinstance(value, nn.Parameter):
            return value
        with gather([value]):
            return value.detach().cpu().clone()

    return get
