"""What the dense tasks share: which pixels count, which pictures are no use for training, the flip test."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from curation.config import Config
from training.data.labelled import Picture
from training.tasks.frames import Frame

Label = TypeVar("Label")


class DenseConfig(Config):
    """What normals, pointmaps and albedo share."""

    min_pixels: int = Field(16, ge=1, description="training leaves out frames with fewer valid pixels (released)")
    max_share: float = Field(
        0.96, gt=0, le=1, description="training leaves out frames with more valid pixels than this (released)"
    )
    guard: bool = Field(
        False,
        description="nan and infinite terms become 0 (released: true). Ours is off: a model that has diverged would "
        "show a loss of 0, and the run's own guard (watch.guard) could not see it",
    )


def required(value: Label | None, name: str, picture: Picture) -> Label:
    """The label, or a ValueError that says which picture lacks it."""
    if value is None:
        raise ValueError(f"picture {picture.id!r} has no {name}; give pictures with {name}, or train another task")
    return value


def rejected_mask(mask: npt.NDArray[np.bool_], config: DenseConfig) -> str | None:
    """Why a frame with this mask of valid pixels is left out of training, or None."""
    count = int(mask.sum())
    if count < config.min_pixels:
        return f"{count} valid pixels, fewer than min_pixels {config.min_pixels}"
    if count > config.max_share * mask.size:
        return f"{count / mask.size:.1%} of the pixels valid, more than max_share {config.max_share:.0%}"
    return None


def channels_first(values: npt.NDArray[np.float32]) -> Tensor:
    """[H, W, C] -> float32 tensor [C, H, W], contiguous."""
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1), dtype=np.float32))


def mask_tensor(mask: npt.NDArray[np.bool_]) -> Tensor:
    """[H, W] -> bool tensor [1, H, W]."""
    return torch.from_numpy(np.ascontiguousarray(mask))[None]


def mirrored_vectors(vectors: Tensor) -> Tensor:
    """Vector maps [..., 3, H, W] seen in a mirror: columns reversed, x negated. Twice is the identity."""
    sign = torch.tensor([-1.0, 1.0, 1.0], dtype=vectors.dtype, device=vectors.device)[:, None, None]
    return vectors.flip(-1) * sign


def turned_back(vectors: Tensor, frame: Frame) -> Tensor:
    """Vectors [3, H, W] in camera axes of a (rotated or mirrored) frame -> in those of its picture."""
    turn = frame.rotation().T
    if np.array_equal(turn, np.eye(3)):
        return vectors
    # Written out: a matrix product would be rounded to half precision under autocast.
    x, y, z = vectors
    return torch.stack([float(row[0]) * x + float(row[1]) * y + float(row[2]) * z for row in turn])


def check_output(output: Tensor, channels: int, what: str) -> Tensor:
    """`output` if it is [B, channels, h, w] or [channels, h, w]; else a ValueError."""
    if output.ndim not in (3, 4) or output.shape[-3] != channels:
        raise ValueError(
            f"{what} are [batch, {channels}, height, width], or without a batch for one picture; "
            f"got {list(output.shape)}"
        )
    return output


def check_single(output: Tensor, channels: int, what: str) -> Tensor:
    """One picture's output as [channels, h, w]; a batch of one loses its first dimension, more are a ValueError."""
    check_output(output, channels, what)
    if output.ndim == 4 and output.shape[0] != 1:
        raise ValueError(f"decode takes one picture's {what}, got a batch of {output.shape[0]}; give output[i]")
    return output[0] if output.ndim == 4 else output
