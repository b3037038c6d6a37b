"""Pointmaps: XYZ of every pixel in a canonical camera, and the scale that makes them metric."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from training.data.labelled import Picture
from training.tasks.canonical import canonical_pointmap, canonical_scale, focal_from_scale
from training.tasks.dense_losses import full_precision, gradient, guarded, l1, l2, resized_to
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
from training.tasks.pointmap_losses import (
    intrinsics_consistency,
    multiscale_l1,
    scale_l1,
    shift_invariant_l1,
    silog,
    surface_normal,
)
from training.tasks.resample import to_picture

Output = tuple[Tensor, Tensor]
"""What the pointmap head returns: canonical XYZ [B, 3, h, w] and scale [B, 1]."""


class PointmapConfig(DenseConfig):
    """Loss, rejection and decoding of pointmaps; defaults are the released configuration's."""

    l1_weight: float = Field(2.0, ge=0, description="of the L1 (released 2); 0 = off")
    multiscale_weight: float = Field(1.0, ge=0, description="of the L1 of upsampled maps (released 1); 0 = off")
    multiscale_factor: int = Field(2, ge=2, le=4, description="how much they are upsampled (released 2)")
    silog_weight: float = Field(1.0, ge=0, description="of the log depth error (released 1); 0 = off")
    intrinsics_weight: float = Field(
        1.0, ge=0, description="of the distance from the pixels' rays (released 1); 0 = off"
    )
    shift_invariant_weight: float = Field(1.0, ge=0, description="of the L1 about the centroids (released 1); 0 = off")
    normal_weight: float = Field(2.0, ge=0, description="of the surface normals' error (released 2); 0 = off")
    scale_weight: float = Field(4.0, ge=0, description="of the scale's error (released 4); 0 = off")
    l2_weight: float = Field(0.0, ge=0, description="of the squared error (the paper's); 0 = off")
    gradient_weight: float = Field(0.0, ge=0, description="of the forward differences' error (the paper's); 0 = off")
    cap: float | None = Field(
        4.0,
        gt=0,
        description="weighted L1, multiscale and shift-invariant terms are at most this (released); null = any",
    )
    min_canonical_depth: float = Field(
        0.04, ge=0, description="training leaves out frames with a nearer canonical depth (released)"
    )
    min_scale: float = Field(
        0.01, gt=0, description="a predicted scale is taken as at least this (ours): metres need a positive one"
    )
    smoothing: int = Field(
        4, ge=0, le=16, description="passes of a 3x3 Gaussian (sigma 0.8) where a prediction is enlarged (released 4)"
    )

    @classmethod
    def paper(cls, **changes: Any) -> PointmapConfig:
        """The paper's terms (section 5): L2, gradient and the scale's error. It gives no weights; 1 each is ours."""
        released = ("l1", "multiscale", "silog", "intrinsics", "shift_invariant", "normal")
        off = {f"{name}_weight": 0.0 for name in released}
        return cls(**(off | {"l2_weight": 1.0, "gradient_weight": 1.0, "scale_weight": 1.0} | changes))


@dataclass(frozen=True)
class PointmapPrediction:
    """What a pointmap says about a picture.

    Attributes:
        points: float32 [H, W, 3], metres in camera axes (x right, y down, z forward); 0 where the frame shows nothing.
            `points[..., 2]` is the depth map.
        scale: the predicted scale, canonical focal length / fx of the frame; at least `min_scale`.
        focal: fx in pixels of the PICTURE, from the scale.
    """

    points: npt.NDArray[np.float32]
    scale: float
    focal: float


class Pointmap:
    """Targets, loss and decoding of pointmaps. The model's output is (canonical XYZ [B, 3, h, w], scale [B, 1])."""

    name = "pointmap"
    """The task's name in `training.models`."""

    def __init__(self, config: PointmapConfig | None = None) -> None:
        self.config = config or PointmapConfig()

    def _valid(
        self, picture: Picture
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
        depth = required(picture.depth, "depth", picture)
        intrinsics = required(picture.intrinsics, "intrinsics", picture)
        return depth, picture.mask & np.isfinite(depth) & (depth > 0), intrinsics

    def rejection(self, picture: Picture) -> str | None:
        """Why training leaves this picture (in its frame) out, or None. Evaluation leaves none out."""
        depth, valid, intrinsics = self._valid(picture)
        reason = rejected_mask(valid, self.config)
        if reason is None:
            nearest = float(depth[valid].min()) * canonical_scale(intrinsics, picture.size[1])
            if nearest < self.config.min_canonical_depth:
                return f"canonical depth {nearest:.4f}, below min_canonical_depth {self.config.min_canonical_depth}"
        return reason

    def targets(self, picture: Picture) -> dict[str, Tensor]:
        """The canonical pointmap of a picture in its frame.

        Returns:
            `points` float32 [3, H, W], canonical XYZ, 0 outside the mask; `mask` bool [1, H, W], where depth is finite
            and above 0 inside the picture's mask; `scale` float32 [], canonical focal length / fx; `mean_depth` float32
            [], mean canonical depth of the valid pixels (1 where there are none); `intrinsics` float32 [3, 3] of the
            frame, not canonical.

        Raises:
            ValueError: the picture has no depth or no intrinsics.
        """
        depth, valid, intrinsics = self._valid(picture)
        points = canonical_pointmap(depth, valid, intrinsics)
        mean = float(points[valid, 2].astype(np.float64).mean()) if valid.any() else 1.0
        return {
            "points": channels_first(points),
            "mask": mask_tensor(valid),
            "scale": torch.tensor(canonical_scale(intrinsics, picture.size[1]), dtype=torch.float32),
            "mean_depth": torch.tensor(mean, dtype=torch.float32),
            "intrinsics": torch.from_numpy(intrinsics.astype(np.float32)),
        }

    def loss(self, output: Output, targets: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weighted terms, those with a weight above 0; float32 inside.

        With p and t the predicted (resized bilinearly to the target's size) and true canonical XYZ, m the mean
        canonical depth and s the true scale of each image; formulas: `dense_losses.py` and `pointmap_losses.py`.

        | name | computed on | released |
        |---|---|---|
        | loss_l1 | p / m, t / m; capped after weighting | 2 |
        | loss_multiscale | p / m, t / m; capped after weighting | 1 |
        | loss_silog | z of p and t | 1 |
        | loss_intrinsics | p and the frame's intrinsics | 1 |
        | loss_shift_invariant | p / m, t / m; capped after weighting | 1 |
        | loss_normal | p / s, t / s: metres | 2 |
        | loss_scale | the scales | 4 |
        | loss_l2, loss_gradient (the paper's) | p / m, t / m | 0 |

        A capped term has no gradient while it is at the cap.

        Args:
            output: (points [B, 3, h, w], scale [B, 1]), any float dtype.
            targets: batched `targets`.
        """
        points, scale = self._checked(output)
        with torch.autocast(points.device.type, enabled=False):
            prediction = resized_to(full_precision(points), targets["points"])
            losses = dict(self._terms(prediction, full_precision(scale).flatten(), targets))
        return {name: guarded(loss) for name, loss in losses.items()} if self.config.guard else losses

    def _terms(self, prediction: Tensor, scale: Tensor, targets: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        config, target, mask = self.config, targets["points"], targets["mask"]
        mean, true_scale = targets["mean_depth"][:, None, None, None], targets["scale"][:, None, None, None]
        p, t = prediction / mean, target / mean

        def capped(loss: Tensor) -> Tensor:
            return loss if config.cap is None else loss.clamp(max=config.cap)

        if config.l1_weight:
            yield "loss_l1", capped(config.l1_weight * l1(p, t, mask))
        if config.multiscale_weight:
            yield (
                "loss_multiscale",
                capped(config.multiscale_weight * multiscale_l1(p, t, mask, config.multiscale_factor)),
            )
        if config.silog_weight:
            yield "loss_silog", config.silog_weight * silog(prediction[:, 2:], target[:, 2:], mask)
        if config.intrinsics_weight:
            yield (
                "loss_intrinsics",
                config.intrinsics_weight * intrinsics_consistency(prediction, mask, targets["intrinsics"]),
            )
        if config.shift_invariant_weight:
            yield "loss_shift_invariant", capped(config.shift_invariant_weight * shift_invariant_l1(p, t, mask))
        if config.normal_weight:
            yield (
                "loss_normal",
                config.normal_weight * surface_normal(prediction / true_scale, target / true_scale, mask),
            )
        if config.scale_weight:
            yield "loss_scale", config.scale_weight * scale_l1(scale, targets["scale"])
        if config.l2_weight:
            yield "loss_l2", config.l2_weight * l2(p, t, mask)
        if config.gradient_weight:
            yield "loss_gradient", config.gradient_weight * gradient(p, t, mask)

    def _checked(self, output: Output) -> Output:
        if not isinstance(output, tuple | list) or len(output) != 2:
            raise ValueError(f"a pointmap's output is the pair (points, scale), got {type(output).__name__}")
        points, scale = check_output(output[0], 3, "points"), output[1]
        if scale.numel() != (points.shape[0] if points.ndim == 4 else 1):
            raise ValueError(f"give one scale per image, got {list(scale.shape)} for points {list(points.shape)}")
        return points, scale

    def unflip(self, output: Output) -> Output:
        """Output for a mirrored picture as that for the picture: points mirrored, x negated; the scale stays.

        An involution. For a flip test average both parts of the output with those of the unflipped one.
        """
        points, scale = self._checked(output)
        return mirrored_vectors(points), scale

    @torch.no_grad()
    def decode(self, output: Output, frame: Frame) -> PointmapPrediction:
        """Metric XYZ of every pixel of the picture.

        points / scale (at least `min_scale`), padding cropped, smoothed where the picture is larger than the frame
        (released), bilinear to the picture. Points keep the frame's camera centre; a rotated or mirrored frame is
        turned back.

        Args:
            output: of one picture, (points [3, h, w] or [1, 3, h, w], scale of one number).
            frame: how the network's input was taken from the picture.

        Raises:
            ValueError: a scale that is not a finite number.
        """
        points, scale_tensor = self._checked(output)
        scale = float(scale_tensor)
        if math.isfinite(scale):  # an untrained network's may be below 0
            scale = max(scale, self.config.min_scale)
        focal = focal_from_scale(scale, frame.size[1])
        points = full_precision(check_single(points, 3, "points")) / scale
        if self.config.smoothing and frame.scale < 1:
            points = self._smoothed(points)
        points = turned_back(to_picture(points, frame), frame)
        step_x = float(np.linalg.norm(frame.matrix[0, :2]))
        return PointmapPrediction(points.permute(1, 2, 0).contiguous().cpu().numpy(), scale, focal / step_x)

    def _smoothed(self, points: Tensor) -> Tensor:
        pixels = points.permute(1, 2, 0).contiguous().cpu().numpy()
        for _ in range(self.config.smoothing):
            pixels = cv2.GaussianBlur(pixels, (3, 3), 0.8)
        return torch.from_numpy(pixels).permute(2, 0, 1).to(points)
