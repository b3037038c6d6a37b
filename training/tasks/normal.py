"""Surface normals: unit vectors in camera axes (x right, y down, z forward) that face the camera."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from training.data.labelled import Picture
from training.tasks.dense_losses import cosine, full_precision, gradient, l1, l2, unit, weighted_terms
from training.tasks.dense_task import (
    DenseConfig,
    channels_first,
    check_output,
    check_single,
    mask_tensor,
    mirrored_vectors,
    rejected_mask,
    required,
    turned_back,
)
from training.tasks.frames import Frame
from training.tasks.resample import to_picture

BACKGROUND_NORMAL = -1000.0
"""All three numbers of a target normal outside the mask (released); no loss reads them, and a bug that does shows."""


class NormalConfig(DenseConfig):
    """Loss and decoding of surface normals; defaults are the released configuration's."""

    cosine_weight: float = Field(10.0, ge=0, description="of 1 - cosine (released 10); 0 = off")
    l1_weight: float = Field(1.0, ge=0, description="of the L1 of the raw prediction (released 1); 0 = off")
    l2_weight: float = Field(0.0, ge=0, description="of the squared error of the raw prediction (the paper's); 0 = off")
    gradient_weight: float = Field(10.0, ge=0, description="of the forward differences' error (released 10); 0 = off")
    renormalise: bool = Field(
        True, description="unit length again after the resize to the picture (ours); released inference: false"
    )

    @classmethod
    def paper(cls, **changes: Any) -> NormalConfig:
        """The paper's terms (section 5): cosine, L2 and gradient. It gives no weights; 1 each is ours."""
        return cls(**({"cosine_weight": 1.0, "l1_weight": 0.0, "l2_weight": 1.0, "gradient_weight": 1.0} | changes))


class Normal:
    """Targets, loss and decoding of surface normals. The model's output is raw x, y, z [B, 3, h, w]."""

    name = "normal"
    """The task's name in `training.models`."""

    def __init__(self, config: NormalConfig | None = None) -> None:
        self.config = config or NormalConfig()

    def _valid(self, picture: Picture) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        normals = required(picture.normals, "normals", picture)
        length = np.linalg.norm(normals, axis=-1)
        return normals, picture.mask & np.isfinite(length) & (length > 0)

    def rejection(self, picture: Picture) -> str | None:
        """Why training leaves this picture (in its frame) out, or None. Evaluation leaves none out."""
        return rejected_mask(self._valid(picture)[1], self.config)

    def targets(self, picture: Picture) -> dict[str, Tensor]:
        """`normals`: float32 [3, H, W], unit length, -1000 outside the mask; `mask`: bool [1, H, W].

        Valid pixels are those of the picture's mask whose normal is finite and not 0.

        Raises:
            ValueError: the picture has no normals.
        """
        normals, valid = self._valid(picture)
        safe = np.where(valid[..., None], normals, 1.0).astype(np.float64)
        safe /= np.linalg.norm(safe, axis=-1, keepdims=True)
        return {
            "normals": channels_first(np.where(valid[..., None], safe, BACKGROUND_NORMAL).astype(np.float32)),
            "mask": mask_tensor(valid),
        }

    def loss(self, output: Tensor, targets: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weighted terms `loss_cosine`, `loss_l1`, `loss_l2`, `loss_gradient`, those with a weight above 0.

        Formulas: `dense_losses.py`. The prediction is resized bilinearly to the target's size first; float32 inside.

        Args:
            output: [B, 3, h, w], any float dtype.
            targets: batched `targets`.
        """
        config = self.config
        check_output(output, 3, "normals")
        terms = (
            ("cosine", config.cosine_weight, cosine),
            ("l1", config.l1_weight, l1),
            ("l2", config.l2_weight, l2),
            ("gradient", config.gradient_weight, gradient),
        )
        return weighted_terms(terms, output, targets["normals"], targets["mask"], config.guard)

    def unflip(self, output: Tensor) -> Tensor:
        """Normals of a mirrored picture [..., 3, h, w] as those of the picture: mirrored, x negated. An involution.

        For a flip test average the output with the unflipped output of the mirror image.
        """
        return mirrored_vectors(check_output(output, 3, "normals"))

    @torch.no_grad()
    def decode(self, output: Tensor, frame: Frame) -> npt.NDArray[np.float32]:
        """Normals of every pixel of the picture: float32 [H, W, 3], unit length, 0 where the frame shows nothing.

        Unit length, padding cropped, bilinear to the picture, unit length again (`renormalise`).

        Args:
            output: of one picture, [3, h, w] or [1, 3, h, w].
            frame: how the network's input was taken from the picture.
        """
        normals = full_precision(check_single(output, 3, "normals"))[None]
        normals = turned_back(to_picture(unit(normals)[0], frame), frame)
        if self.config.renormalise:
            normals = unit(normals[None])[0]
        return normals.permute(1, 2, 0).contiguous().cpu().numpy()
