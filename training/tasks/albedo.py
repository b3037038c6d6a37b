"""Albedo: the diffuse reflectance of every pixel, RGB from 0 to 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from training.data.labelled import Picture
from training.tasks.albedo_losses import chromaticity, low_frequency, rgb_mean
from training.tasks.dense_losses import full_precision, gradient, l1, l2, weighted_terms
from training.tasks.dense_task import (
    DenseConfig,
    channels_first,
    check_output,
    check_single,
    mask_tensor,
    rejected_mask,
    required,
)
from training.tasks.frames import Frame
from training.tasks.resample import to_picture


class AlbedoConfig(DenseConfig):
    """Loss and rejection of albedo; defaults are the released configuration's."""

    l1_weight: float = Field(2.0, ge=0, description="of the L1 (released 2); 0 = off")
    l2_weight: float = Field(0.0, ge=0, description="of the squared error (the paper's); 0 = off")
    gradient_weight: float = Field(
        2.0, ge=0, description="of half the forward differences' squared error (released 2); 0 = off"
    )
    chromaticity_weight: float = Field(1.0, ge=0, description="of the L1 of r, g, b shares (released 1); 0 = off")
    low_frequency_weight: float = Field(
        0.0, ge=0, description="of the L1 of maps blurred over 32 pixels (in the release, but switched off); 0 = off"
    )
    rgb_mean_weight: float = Field(0.0, ge=0, description="of the error of mean colours (the paper's); 0 = off")
    min_deviation: float = Field(
        0.02,
        ge=0,
        description="training leaves out albedo whose standard deviation is smaller in R, G and B (released)",
    )

    @classmethod
    def paper(cls, **changes: Any) -> AlbedoConfig:
        """The paper's terms (section 5): L2, gradient and RGB mean. It gives no weights; 1 each is ours."""
        off = {"l1_weight": 0.0, "chromaticity_weight": 0.0}
        return cls(**(off | {"l2_weight": 1.0, "gradient_weight": 1.0, "rgb_mean_weight": 1.0} | changes))


def _half_gradient(prediction: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Half of x-term + y-term, as the release has it for albedo only."""
    return 0.5 * gradient(prediction, target, mask)


class Albedo:
    """Targets, loss and decoding of albedo. The model's output is RGB [B, 3, h, w], not clamped."""

    name = "albedo"
    """The task's name in `training.models`."""

    def __init__(self, config: AlbedoConfig | None = None) -> None:
        self.config = config or AlbedoConfig()

    def _valid(self, picture: Picture) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        albedo = required(picture.albedo, "albedo", picture)
        return albedo, picture.mask & np.isfinite(albedo).all(axis=-1)

    def rejection(self, picture: Picture) -> str | None:
        """Why training leaves this picture (in its frame) out, or None. Evaluation leaves none out."""
        albedo, valid = self._valid(picture)
        reason = rejected_mask(valid, self.config)
        if reason is None:
            deviation = float(albedo[valid].astype(np.float64).std(axis=0).max())
            if deviation < self.config.min_deviation:
                return (
                    f"near-constant albedo: deviation {deviation:.4f}, below min_deviation {self.config.min_deviation}"
                )
        return reason

    def targets(self, picture: Picture) -> dict[str, Tensor]:
        """`albedo`: float32 [3, H, W], 0 outside the mask; `mask`: bool [1, H, W].

        Valid pixels are those of the picture's mask whose albedo is finite.

        Raises:
            ValueError: the picture has no albedo, or values beyond 0..1 (as from a file of 0..255).
        """
        albedo, valid = self._valid(picture)
        low, high = (float(edge) for edge in (albedo[valid].min(), albedo[valid].max())) if valid.any() else (0.0, 0.0)
        if low < -1e-3 or high > 1 + 1e-3:
            raise ValueError(
                f"picture {picture.id!r} has albedo from {low:.4g} to {high:.4g}; it goes from 0 to 1 (divide 8-bit "
                "files by 255)"
            )
        return {
            "albedo": channels_first(np.where(valid[..., None], albedo, 0).clip(0, 1).astype(np.float32)),
            "mask": mask_tensor(valid),
        }

    def loss(self, output: Tensor, targets: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weighted terms `loss_l1`, `loss_l2`, `loss_gradient`, `loss_chromaticity`, `loss_low_frequency`,
        `loss_rgb_mean`, those with a weight above 0.

        Formulas: `dense_losses.py` (the gradient halved) and `albedo_losses.py`. The prediction is resized bilinearly
        to the target's size first; float32 inside.

        Args:
            output: [B, 3, h, w], any float dtype.
            targets: batched `targets`.
        """
        config = self.config
        check_output(output, 3, "albedo maps")
        terms = (
            ("l1", config.l1_weight, l1),
            ("l2", config.l2_weight, l2),
            ("gradient", config.gradient_weight, _half_gradient),
            ("chromaticity", config.chromaticity_weight, chromaticity),
            ("low_frequency", config.low_frequency_weight, low_frequency),
            ("rgb_mean", config.rgb_mean_weight, rgb_mean),
        )
        return weighted_terms(terms, output, targets["albedo"], targets["mask"], config.guard)

    def unflip(self, output: Tensor) -> Tensor:
        """Albedo of a mirrored picture [..., 3, h, w] as that of the picture. An involution."""
        return check_output(output, 3, "albedo maps").flip(-1)

    @torch.no_grad()
    def decode(self, output: Tensor, frame: Frame) -> npt.NDArray[np.float32]:
        """Albedo of every pixel of the picture: float32 [H, W, 3] in 0..1, 0 where the frame shows nothing.

        Clamped, padding cropped, bilinear to the picture (released).

        Args:
            output: of one picture, [3, h, w] or [1, 3, h, w].
            frame: how the network's input was taken from the picture.
        """
        albedo = full_precision(check_single(output, 3, "albedo maps")).clamp(0, 1)
        return to_picture(albedo, frame).permute(1, 2, 0).contiguous().cpu().numpy()
