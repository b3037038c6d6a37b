"""What the loader hands to the engine: the views of some samples, what is masked in them, and where they came from.

V global views of H x W, L local views of h x w, m samples, K visible tokens of each global view. Along an axis of
V + L the global views come first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


@dataclass(frozen=True)
class Views:
    """The views of one picture.

    Attributes:
        global_views: uint8 [V, 3, H, W], RGB.
        local_views: uint8 [L, 3, h, w], RGB.
        boxes: int64 [V + L, 4], the part of the picture that each view shows: left, top, width, height in its pixels.
        flipped: bool [V + L], whether the view shows its box mirrored left to right.
        colour: float32 [V + L, C], what colour augmentation is still to be applied (`training.data.colour`); None:
            none is, since the worker has applied it.
    """

    global_views: Tensor
    local_views: Tensor
    boxes: Tensor
    flipped: Tensor
    colour: Tensor | None


@dataclass(frozen=True)
class Sample:
    """One place of the sample order, filled.

    Attributes:
        position: the place in the endless sample order.
        index: row of the sample in the corpus.
        id: record id of the sample.
        views: of its picture.
        keep: int64 [V, K], the visible tokens of each global view, ascending.
        replaced: how many samples were tried for this place and could not be read before this one.
    """

    position: int
    index: int
    id: str
    views: Views
    keep: npt.NDArray[np.int64]
    replaced: int = 0


@dataclass(frozen=True)
class Batch:
    """A micro-batch of m samples.

    Attributes:
        position: int64 [m], place in the endless sample order.
        index: int64 [m], row in the corpus.
        ids: m record ids.
        global_views: uint8 [m, V, 3, H, W], RGB.
        local_views: uint8 [m, L, 3, h, w], RGB.
        boxes: int64 [m, V + L, 4], left, top, width, height of each view in the pixels of its picture.
        flipped: bool [m, V + L], whether the view is mirrored.
        colour: float32 [m, V + L, C], parameters of the colour augmentation still to be applied on the device; None:
            the workers have applied it.
        keep: int64 [m, V, K], visible tokens of each global view, ascending.
        replaced: int64 [m], how many unreadable samples each place has skipped.
    """

    position: Tensor
    index: Tensor
    ids: list[str]
    global_views: Tensor
    local_views: Tensor
    boxes: Tensor
    flipped: Tensor
    colour: Tensor | None
    keep: Tensor
    replaced: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        tensors = (getattr(self, field.name) for field in fields(self))
        return sum(value.nbytes for value in tensors if isinstance(value, Tensor))

    def to(self, device: torch.device | str, non_blocking: bool = True) -> Batch:
        """The batch with its tensors on a device; copies from pinned memory overlap with other work."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """The batch in page-locked memory (`DataLoader` calls this); unchanged where there is no accelerator."""
        return self._map(torch.Tensor.pin_memory) if torch.accelerator.is_available() else self

    def _map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        changed: dict[str, Any] = {name: change(v) if isinstance(v, Tensor) else v for name, v in values.items()}
        return Batch(**changed)


def collate(samples: Sequence[Sample]) -> Batch:
    """Stack samples to a batch, in their order.

    Raises:
        ValueError: no sample, or samples whose views or masks differ in shape or in who applies the colours.
    """
    if not samples:
        raise ValueError("a batch needs at least one sample")
    views = [sample.views for sample in samples]
    with_colour = [view.colour for view in views if view.colour is not None]
    if len(with_colour) not in (0, len(samples)):
        raise ValueError(f"{len(with_colour)} of {len(samples)} samples have colour parameters: all or none must")
    return Batch(
        position=torch.tensor([sample.position for sample in samples], dtype=torch.int64),
        index=torch.tensor([sample.index for sample in samples], dtype=torch.int64),
        ids=[sample.id for sample in samples],
        global_views=_stack("global_views", [view.global_views for view in views]),
        local_views=_stack("local_views", [view.local_views for view in views]),
        boxes=_stack("boxes", [view.boxes for view in views]),
        flipped=_stack("flipped", [view.flipped for view in views]),
        colour=_stack("colour", with_colour) if with_colour else None,
        keep=_stack("keep", [torch.from_numpy(np.asarray(sample.keep, np.int64)) for sample in samples]),
        replaced=torch.tensor([sample.replaced for sample in samples], dtype=torch.int64),
    )


def concatenate(batches: Sequence[Batch]) -> Batch:
    """One batch of all samples of some, in their order: the micro-batches of all ranks to the global batch.

    Raises:
        ValueError: no batch, or batches whose shapes differ beyond the number of samples.
    """
    if not batches:
        raise ValueError("give at least one batch to concatenate")
    joined: dict[str, Any] = {"ids": [name for batch in batches for name in batch.ids]}
    for field in fields(Batch):
        values = [getattr(batch, field.name) for batch in batches]
        tensors = [value for value in values if isinstance(value, Tensor)]
        if field.name == "ids":
            continue
        if len(tensors) not in (0, len(batches)):
            raise ValueError(f"{field.name} is missing in {len(batches) - len(tensors)} of {len(batches)} batches")
        if len({tensor.shape[1:] for tensor in tensors}) > 1:
            raise ValueError(f"{field.name} differs in shape: {sorted({tuple(t.shape[1:]) for t in tensors})}")
        joined[field.name] = torch.cat(tensors) if tensors else None
    return Batch(**joined)


def _stack(name: str, tensors: list[Tensor]) -> Tensor:
    shapes = sorted({tuple(tensor.shape) for tensor in tensors})
    if len(shapes) > 1:
        raise ValueError(f"{name} differs in shape between the samples of a batch: {shapes}")
    return torch.stack(tensors)
