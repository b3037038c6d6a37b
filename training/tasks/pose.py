"""Top-down pose: a person's crop in, one heatmap per keypoint out, keypoints of the picture decoded from them.

Targets are coordinates, not heatmaps: the loss encodes them on the model's device at the size of its output, so that
308 maps of a person (60 MB at 256 x 192) never cross from the loader to the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator
from torch import Tensor

from curation.config import Config
from training.data.labelled import Picture
from training.tasks import pose_codec, warp
from training.tasks.frames import PADDING, Frame, Size, crop_around
from training.tasks.keypoint_sets import KeypointSet, keypoint_set
from training.tasks.random_frames import PoseFrameConfig, draw_pose_frame

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


class PoseConfig(Config):
    """Keypoints, crop, heatmaps, loss. The defaults are the released configuration's, but for the decoder."""

    keypoints: str = Field(
        "sapiens308", description="sapiens308, wholebody133, coco17, or the path of a YAML file with your own set"
    )
    padding: float = Field(PADDING, gt=0, description="factor on the person's box in evaluation (released)")
    interpolation: warp.Interpolation = Field(
        "auto", description="of the crop: auto does not alias where large people are shrunk; warp is the released one"
    )
    min_keypoints: int = Field(
        8, ge=0, description="training leaves out crops with fewer keypoints, or than half a smaller set (released)"
    )
    frames: PoseFrameConfig = Field(PoseFrameConfig(), description="geometry of crops in training")
    sigma: float | None = Field(
        None, gt=0, description="of a keypoint, in heatmap pixels; null: 6 at a height of 256, in proportion (released)"
    )
    loss: Literal["mse", "ohkm"] = Field(
        "mse",
        description="mse: mean over all pixels of all keypoints (released); ohkm: of the hardest keypoints of each "
        "person alone (the paper's, which names it OHEM)",
    )
    ohkm_from: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the run's steps after which ohkm begins, mse before; e.g. 0.8 for the last phase (ours: "
        "the paper gives none; the released code has it switched off)",
    )
    loss_weight: float = Field(10.0, gt=0, description="factor on the loss (released)")
    hardest: int = Field(
        128, ge=1, description="keypoints of a person that ohkm takes, all in smaller sets (released comment)"
    )
    decoder: pose_codec.Decoder = Field(
        "fit", description="fit: exact up to the border (ours); dark: the released one, for the released figures"
    )

    @model_validator(mode="after")
    def _set(self) -> PoseConfig:
        keypoint_set(self.keypoints)  # an unknown set is an error of the configuration
        if self.ohkm_from and self.loss != "ohkm":
            raise ValueError(
                f"ohkm_from is {self.ohkm_from}, but loss is {self.loss}: give loss: ohkm (mse until then), or leave "
                "ohkm_from out"
            )
        return self


@dataclass(frozen=True)
class PosePrediction:
    """Keypoints of n people in the pixels of their picture.

    Attributes:
        keypoints: float32 [n, K, 2], x and y, centre convention; without meaning where the score is not above 0.
        scores: float32 [n, K], the maxima of the heatmaps, about 0..1.
    """

    keypoints: Floats
    scores: Floats

    def instance_scores(self, box_scores: npt.ArrayLike = 1.0, threshold: float = 0.2) -> Floats:
        """float32 [n]: box score x mean of the keypoint scores above the threshold (released; 0 where none is)."""
        above = self.scores > threshold
        means = (self.scores * above).sum(1) / np.maximum(above.sum(1), 1)
        return np.asarray(means * np.asarray(box_scores), np.float32)


class Pose:
    """Targets, loss and decoding of pose. The model's output is heatmaps [B, K, h, w]."""

    name = "pose"
    """The task's name in `training.models`."""

    def __init__(self, config: PoseConfig | None = None) -> None:
        self.config = config or PoseConfig()
        self.set: KeypointSet = keypoint_set(self.config.keypoints)
        self._flip = torch.from_numpy(self.set.flip)

    def frame(self, picture: Picture, person: int, size: Size) -> Frame:
        """The crop of a person for evaluation: around the box, else the labelled keypoints, else the whole picture."""
        return crop_around(self.box(picture, person), size, picture.size, padding=self.config.padding)

    def draw_frame(self, rng: np.random.Generator, picture: Picture, person: int, size: Size) -> Frame:
        """The crop of a person for training, drawn by `PoseConfig.frames`."""
        return draw_pose_frame(
            rng,
            self.box(picture, person),
            self._keypoints(picture, person),
            (self.set.upper, self.set.lower),
            size,
            picture.size,
            self.config.frames,
        )

    def sample(self, picture: Picture, person: int, frame: Frame) -> tuple[Pixels, dict[str, Tensor]]:
        """The crop of a person, uint8 [h, w, 3], and its targets; nothing else of the picture is moved."""
        keypoints = frame.keypoints(self._keypoints(picture, person), self.set.flip)
        return warp.warp(picture.image, frame, self.config.interpolation), self._targets(keypoints, frame.size)

    def rejection(self, targets: dict[str, Tensor]) -> str | None:
        """Why training leaves a crop out, or None. Evaluation leaves none out."""
        seen = int((targets["visible"] > 0).sum())
        needed = min(self.config.min_keypoints, (len(self.set) + 1) // 2)
        return f"{seen} keypoints in the crop, fewer than {needed}" if seen < needed else None

    def targets(self, picture: Picture, person: int = 0) -> dict[str, Tensor]:
        """Targets of a person from a picture in its frame.

        Returns:
            `points`: float32 [K, 2], x / (W - 1) and y / (H - 1) of the frame, the scale of UDP;
            `visible`: float32 [K], 1 for keypoints that are labelled and in the frame, else 0.
        """
        return self._targets(self._keypoints(picture, person), picture.size)

    def loss(self, output: Tensor, targets: dict[str, Tensor], progress: float = 0.0) -> dict[str, Tensor]:
        """`loss_heatmap`, and `acc_pose`, the share of keypoints whose maximum is within 5 % of the map, for the log.

        With w the weights (0 or 1), p the output and t the target: mse is the mean over B, K, h, w of w (p - t)^2,
        ohkm the mean over people of the mean of the `hardest` largest of mean(w (p - t)^2) over pixels; both times
        `loss_weight`.

        Args:
            output: heatmaps [B, K, h, w], any float dtype; float32 inside.
            targets: batched `targets`.
            progress: the share of the run's steps that are done, 0..1; below `ohkm_from` ohkm is mse still.
        """
        self._check(output)
        config = self.config
        size = (output.shape[-2], output.shape[-1])
        with torch.autocast(output.device.type, enabled=False):
            points = targets["points"].to(output.device) * torch.tensor([size[1] - 1.0, size[0] - 1.0]).to(
                output.device
            )
            heatmaps, weights = pose_codec.encode(points, targets["visible"].to(output.device), size, config.sigma)
            errors = _MeanSquares.apply(output.float(), heatmaps) * weights
            if config.loss == "ohkm" and progress >= config.ohkm_from:
                errors = errors.topk(min(config.hardest, len(self.set)), dim=-1).values
            losses = {"loss_heatmap": config.loss_weight * errors.mean()}
            with torch.no_grad():
                losses["acc_pose"] = _accuracy(output, points, weights)
        return losses

    def unflip(self, output: Tensor) -> Tensor:
        """Heatmaps of the mirrored crop as those of the crop. For a flip test average both. An involution."""
        return pose_codec.flip_heatmaps(output, self._flip)

    @torch.no_grad()
    def decode(self, output: Tensor, frames: Sequence[Frame]) -> PosePrediction:
        """Keypoints of people in their pictures' pixels.

        Args:
            output: heatmaps [n, K, h, w], one person each.
            frames: n, the crop of each. In a mirrored one, left and right are exchanged back.
        """
        self._check(output)
        if len(frames) != len(output):
            raise ValueError(f"{len(output)} people, but {len(frames)} frames: give the frame of each person's crop")
        points, scores = pose_codec.decode(output, self.config.decoder, self.config.sigma)
        size = (output.shape[-2], output.shape[-1])
        keypoints = np.zeros((*output.shape[:2], 2), np.float32)
        values = scores.cpu().numpy()
        for person, frame in enumerate(frames):
            moved = frame.points_back(pose_codec.to_frame(points[person].double(), frame.size, size).cpu().numpy())
            keypoints[person] = moved[self.set.flip] if frame.flipped else moved
            values[person] = values[person][self.set.flip] if frame.flipped else values[person]
        return PosePrediction(keypoints, values)

    def _check(self, output: Tensor) -> None:
        if output.ndim != 4 or output.shape[1] != len(self.set):
            raise ValueError(f"heatmaps of {self.set.name} are [B, {len(self.set)}, h, w], got {tuple(output.shape)}")

    def _keypoints(self, picture: Picture, person: int) -> Floats:
        if picture.keypoints is None:
            raise ValueError(f"picture {picture.id!r} has no keypoints; give pictures with keypoints")
        people, count = picture.keypoints.shape[:2]
        if count != len(self.set):
            raise ValueError(
                f"picture {picture.id!r} has {count} keypoints, {self.set.name} has {len(self.set)}; convert them with "
                "keypoint_sets.convert, or name their set in the configuration"
            )
        if not 0 <= person < people:
            raise ValueError(f"picture {picture.id!r} has no person {person}: {people} are labelled")
        return picture.keypoints[person]

    def box(self, picture: Picture, person: int) -> npt.NDArray[np.float64]:
        """EDGES of pixels, float64 [4]: the person's box, else of the labelled keypoints, else the whole picture."""
        candidates = []
        if picture.boxes is not None:
            candidates.append(picture.boxes[person].astype(np.float64))
        if picture.keypoints is not None:
            keypoints = picture.keypoints[person].astype(np.float64)
            seen = keypoints[keypoints[:, 2] > 0, :2]
            if len(seen):
                candidates.append(np.concatenate((seen.min(0), seen.max(0) + 1)))  # edges of pixels, from centres
        for box in candidates:
            if (box[2:] > box[:2]).all():
                return box
        return np.array((0, 0, picture.size[1], picture.size[0]), np.float64)

    def _targets(self, keypoints: Floats, size: Size) -> dict[str, Tensor]:
        scale = np.array((size[1] - 1, size[0] - 1), np.float64)
        return {
            "points": torch.from_numpy((keypoints[:, :2] / scale).astype(np.float32)),
            "visible": torch.from_numpy((keypoints[:, 2] > 0).astype(np.float32)),
        }


class _MeanSquares(torch.autograd.Function):
    """Mean over pixels of (p - t)^2: [..., h, w] twice -> [...], with a gradient for p alone.

    It keeps one array where autograd's own keeps two and makes three more on the way back: heatmaps of 308 keypoints
    are the largest arrays of training but for the model's own.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, target: Tensor) -> Tensor:
        difference = output - target
        ctx.save_for_backward(difference)
        return torch.linalg.vector_norm(difference, dim=(-2, -1)).square() / difference[0, 0].numel()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (difference,) = ctx.saved_tensors
        return difference * (gradients[0] * (2 / difference[0, 0].numel()))[..., None, None], None


def _accuracy(output: Tensor, points: Tensor, weights: Tensor, threshold: float = 0.05) -> Tensor:
    """Mean over keypoints that anybody shows of the share of people whose maximum is within the threshold.

    Distances are in shares of the map's width and height. The released figure divides x by the height and y by the
    width (fact 4.1).
    """
    height, width = output.shape[-2:]
    places = output.flatten(2).argmax(-1)
    found = torch.stack((places % width, places // width), -1)
    near = ((found - points) / points.new_tensor([width, height])).norm(dim=-1) < threshold
    counts = weights.sum(0)
    shares = (near * weights).sum(0) / counts.clamp(min=1)
    return shares.sum() / (counts > 0).sum().clamp(min=1)
