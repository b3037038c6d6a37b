"""Which stored tensor goes where, checked before a module is touched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from training.models import convert_timm, convert_transformers
from training.models.tensor_files import StoredTensors, WeightsError, first_names

PERIODS = "rope_embed.periods"
PREFIX = "backbone."
HEAD = "decode_head."
Sources = Callable[[str], tuple[str, ...] | None]


@dataclass
class LoadReport:
    """What a load did, or why it was refused. Names are the module's, those of `unexpected` and `unused` the file's."""

    path: Path
    format: str
    loaded: int = 0
    """Number of tensors of the module that got stored values."""
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    mismatched: list[str] = field(default_factory=list)
    """Each with both shapes."""
    unused: list[str] = field(default_factory=list)
    """The head in a task checkpoint that a bare backbone was loaded from."""
    computed: list[str] = field(default_factory=list)
    """RoPE periods that the file does not have; the configuration gives them."""
    stored_dtypes: dict[str, int] = field(default_factory=dict)
    left_on_meta: list[str] = field(default_factory=list)
    """Allowed to be missing, and still without values: initialise them."""

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.stored_dtypes.items())
        lines = [f"{self.path}: {self.format} weights, {self.loaded} tensors loaded (stored: {kinds})"]
        for title in ("missing", "unexpected", "mismatched", "unused", "computed", "left_on_meta"):
            names = getattr(self, title)
            if names:
                lines.append(f"{title.replace('_', ' ')} ({len(names)}): {first_names(names)}")
        return "\n".join(lines)


class WeightsMismatchError(WeightsError):
    """Stored weights do not fit the module, which is unchanged; `report` has all names."""

    def __init__(self, message: str, report: LoadReport) -> None:
        super().__init__(message)
        self.report = report


@dataclass
class LoadPlan:
    """The module's tensors and the stored ones for each."""

    targets: dict[str, Tensor]
    sources: dict[str, tuple[str, ...]]
    """For every key that the file has: the stored names, to be joined along the first axis."""
    mismatched_keys: set[str]
    report: LoadReport

    def check(
        self,
        strict: bool,
        allow_missing: Sequence[str],
        allow_unexpected: Sequence[str],
        allow_mismatched: Sequence[str],
        problems: Sequence[str],
    ) -> None:
        """Raise WeightsMismatchError for what is not allowed; `problems` never are."""
        report = self.report
        for name, value in (
            ("allow_missing", allow_missing),
            ("allow_unexpected", allow_unexpected),
            ("allow_mismatched", allow_mismatched),
        ):
            if isinstance(value, str):
                raise WeightsError(f'{name} is the text {value!r}; give beginnings of names, e.g. ("decode_head.",)')
        refused = {
            "missing in the file": _not_allowed(report.missing, allow_missing),
            "unexpected in the file": _not_allowed(report.unexpected, allow_unexpected),
            "of another shape": _not_allowed(report.mismatched, allow_mismatched),
        }
        lines = [
            f"{title} ({len(names)}): {first_names(names)}" for title, names in refused.items() if strict and names
        ]
        lines += problems
        if not report.loaded:
            lines.append("nothing in the file fits this module")
        if not lines:
            return
        hints = []
        if any(name.startswith(HEAD) for name in refused["missing in the file"]):
            hints.append(f'the file has no head for this task model: allow_missing=("{HEAD}",) loads the backbone only')
        raise WeightsMismatchError(
            "\n  ".join([f"{report.path} ({report.format} names) does not fit; nothing was loaded", *lines, *hints]),
            report,
        )


def make_plan(module: nn.Module, stored: StoredTensors, gathers: bool) -> LoadPlan:
    """Match names and shapes; WeightsError where the file's format is not known or holds no floating numbers."""
    targets = dict(module.state_dict(keep_vars=True))
    if not targets:
        raise WeightsError(f"this {type(module).__name__} has no parameters to load")
    for key, tensor in targets.items():
        if not tensor.is_meta:
            refuse_unreadable(key, tensor, gathers)
    format_name, sources_of = _detect(stored, targets)
    report = LoadReport(stored.path, format_name)
    plan = LoadPlan(targets, {}, set(), report)
    used: set[str] = set()
    for key, tensor in targets.items():
        names = sources_of(key)
        present = [name for name in names or () if name in stored.tensors]
        if names is None or len(present) < len(names):
            is_periods = key.removeprefix(PREFIX) == PERIODS
            (report.computed if is_periods and format_name != "sapiens2" else report.missing).append(key)
            continue
        used.update(names)
        plan.sources[key] = names
        shape = _joined_shape([stored.tensors[name].shape for name in names])
        if shape != full_shape(tensor):
            plan.mismatched_keys.add(key)
            report.mismatched.append(f"{key} (file {_size(shape)}, model {_size(full_shape(tensor))})")
        else:
            report.loaded += 1
    rest = [name for name in stored.tensors if name not in used]
    bare_backbone = "cls_token" in targets
    for name in rest:
        of_head = bare_backbone and name.startswith((HEAD, "scale_head."))
        (report.unused if of_head else report.unexpected).append(name)
    report.stored_dtypes = dict(Counter(str(stored.tensors[name].dtype).removeprefix("torch.") for name in used))
    unusable = [n for n in sorted(used) if not _floating(stored.tensors[n].dtype, targets, plan, n)]
    if unusable:
        raise WeightsError(f"{stored.path} has other than 16 to 64 bit floating numbers in {first_names(unusable)}")
    return plan


def _floating(dtype: torch.dtype | str, targets: Mapping[str, Tensor], plan: LoadPlan, name: str) -> bool:
    if isinstance(dtype, torch.dtype) and dtype.is_floating_point:
        return True
    return any(name in names and not targets[key].is_floating_point() for key, names in plan.sources.items())


def _detect(stored: StoredTensors, targets: Mapping[str, Tensor]) -> tuple[str, Sources]:
    names = stored.tensors.keys()
    prefixed = any(name.startswith(PREFIX) for name in names)
    task_module = any(key.startswith(PREFIX) for key in targets)

    def bare(key: str) -> str:
        return key.removeprefix(PREFIX) if task_module else key

    if convert_timm.detect(names):
        return convert_timm.NAME, lambda key: convert_timm.sources(bare(key))
    if stored.pickled:
        raise WeightsError(f"{stored.path} is a pickle without timm's names, which is not read: use safetensors")
    if convert_transformers.detect_in_memory(names):
        return convert_transformers.NAME_IN_MEMORY, lambda key: _in_memory(bare(key), names)
    plain = {name.removeprefix(PREFIX) for name in names}
    if {"cls_token", "storage_tokens", "patch_embed.projection.weight"} & plain:

        def released(key: str) -> tuple[str, ...]:
            if key.startswith(HEAD):
                return (key,)
            return (PREFIX + bare(key) if prefixed else bare(key),)

        return ("sapiens2" if PERIODS in plain else convert_transformers.NAME), released
    if any(key in names for key in targets):
        return "the module's own", lambda key: (key,)
    raise WeightsError(
        f"{stored.path} has none of the known formats: the released Sapiens2 names (cls_token, "
        "blocks.0.attn.wq.weight, with or without backbone.), timm's (reg_token, blocks.0.attn.q_proj.weight), "
        f"transformers' (embeddings.register_tokens). It has {first_names(sorted(names), 5)}{_guess(plain)}"
    )


def _guess(names: set[str]) -> str:
    if "pos_embed" in names:
        return ". A learned position embedding: perhaps a Sapiens (first version), MAE or DINOv2 model"
    return ""


def _in_memory(key: str, names: Iterable[str]) -> tuple[str, ...] | None:
    found = convert_transformers.sources_in_memory(key)
    if found is None or key.startswith(HEAD):
        return found
    # The task models hold the backbone as `model`.
    inside = "model.embeddings.register_tokens" in names
    return tuple(f"model.{name}" for name in found) if inside else found


def full_shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape, also of a parameter that DeepSpeed ZeRO-3 has partitioned."""
    return tuple(getattr(tensor, "ds_shape", tensor.shape))


def refuse_unreadable(key: str, tensor: Tensor, gathers: bool) -> None:
    """WeightsError for a partitioned parameter without a way to gather it."""
    if hasattr(tensor, "ds_id") and not gathers:
        raise WeightsError(
            f"{key} is partitioned by DeepSpeed ZeRO-3: give gather=lambda p: deepspeed.zero.GatheredParameters(p, "
            "modifier_rank=0)"
        )


def _not_allowed(names: Sequence[str], allowed: Sequence[str]) -> list[str]:
    return [name for name in names if not name.startswith(tuple(allowed))]


def _joined_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    if len(shapes) == 1 or len({shape[1:] for shape in shapes}) > 1:
        return shapes[0]
    return sum(shape[0] for shape in shapes), *shapes[0][1:]


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) if shape else "scalar"
