"""Body-part segmentation: 29 released classes or a user's own; weighted cross entropy and Dice."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator
from torch import Tensor

from curation.config import Config
from training.data.labelled import IGNORE_PART, Picture
from training.tasks.dense_losses import full_precision, guarded, resized_to
from training.tasks.dense_task import check_output, check_single, required
from training.tasks.frames import Frame
from training.tasks.parts import PartClasses
from training.tasks.resample import strips
from training.tasks.segmentation_losses import Divisor, accuracy, cross_entropy, dice


class SegmentationConfig(Config):
    """Classes and loss of body-part segmentation; defaults are the released configuration's, which is the paper's."""

    classes: PartClasses = Field(PartClasses(), description="the 29 released classes, or your own")
    cross_entropy_weight: float = Field(1.0, ge=0, description="of class-weighted cross entropy (released 1); 0 = off")
    cross_entropy_divisor: Divisor = Field(
        "all", description='"all" pixels (released), "labelled" pixels, or the sum of the labels\' "weights"'
    )
    dice_weight: float = Field(1.0, ge=0, description="of the Dice term (released 1); 0 = off")
    dice_naive: bool = Field(False, description="sums instead of sums of squares in the divisor of Dice")
    min_foreground: float = Field(
        0.01, ge=0, le=1, description="training leaves out frames with a smaller share of labelled parts (released)"
    )
    max_class_share: float = Field(
        0.75,
        gt=0,
        le=1,
        description="share of a zoomed window's labelled pixels that one class may have; else another window is drawn "
        "(released; up to 10 times)",
    )
    rotation_border: Literal["background", "ignore"] = Field(
        "background",
        description="label of the corners that a rotation brings in from outside of the image: background (released), "
        "or ignored",
    )
    backgrounds: str | None = Field(
        None, description="folder of images that training puts behind people (released: BG-20k); null: none"
    )
    background_probability: float = Field(
        0.8, ge=0, le=1, description="share of training images whose background is replaced, where there are others"
    )
    guard: bool = Field(
        False,
        description="nan and infinite terms become 0 (released: true). Ours is off: a model that has diverged would "
        "show a loss of 0, and the run's own guard (watch.guard) could not see it",
    )

    @model_validator(mode="after")
    def _background_is_known(self) -> SegmentationConfig:
        if self.backgrounds is not None and self.classes.background is None:
            raise ValueError(
                "backgrounds are given, and the classes have no background, so that no pixel can be replaced. Name the "
                "background of the classes, or give null for backgrounds"
            )
        return self


class Segmentation:
    """Targets, loss and decoding of body-part segmentation. The model's output is logits [B, classes, h, w]."""

    name = "seg"
    """The task's name in `training.models`."""

    def __init__(self, config: SegmentationConfig | None = None) -> None:
        self.config = config or SegmentationConfig()

    def rejection(self, picture: Picture) -> str | None:
        """Why training leaves this picture (in its frame) out, or None. Evaluation leaves none out."""
        labels = required(picture.parts, "parts", picture)
        foreground = labels != IGNORE_PART
        if self.config.classes.background is not None:
            foreground &= labels != self.config.classes.background
        share = float(foreground.mean())
        if share < self.config.min_foreground:
            return f"{share:.2%} labelled parts, less than min_foreground {self.config.min_foreground:.2%}"
        return None

    def accepts(self, labels: npt.NDArray[np.uint8]) -> bool:
        """Whether a window with these labels, uint8 [h, w], is varied enough to train on (`max_class_share`)."""
        counts = np.bincount(labels.ravel(), minlength=256)
        counts[IGNORE_PART] = 0
        return bool(0 < counts.max() <= self.config.max_class_share * counts.sum())

    def targets(self, picture: Picture) -> dict[str, Tensor]:
        """`labels`: uint8 [H, W], 0..classes-1 or 255 = ignore.

        Args:
            picture: in its frame; pixels outside of the original picture have label 255 (or background, by the frame).

        Raises:
            ValueError: the picture has no parts, or holds ids that are no class.
        """
        labels = required(picture.parts, "parts", picture)
        count = len(self.config.classes)
        unknown = np.setdiff1d(np.unique(labels), [*range(count), IGNORE_PART])
        if len(unknown):
            raise ValueError(
                f"picture {picture.id!r} holds part ids {unknown.tolist()}, but the {count} classes are 0..{count - 1} "
                f"and {IGNORE_PART} = ignore; map its ids to the classes, or name all classes in the configuration"
            )
        return {"labels": torch.from_numpy(np.ascontiguousarray(labels))}

    def loss(self, output: Tensor, targets: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weighted terms `loss_cross_entropy` and `loss_dice`, and `acc_seg` in percent for the log.

        Formulas: `segmentation_losses.py`. Logits are resized bilinearly to the labels' size first; float32 inside.

        Args:
            output: logits [B, classes, h, w], any float dtype.
            targets: batched `targets`: `labels` integer [B, H, W].
        """
        config = self.config
        labels = targets["labels"].long()
        check_output(output, len(config.classes), "logits")
        with torch.autocast(output.device.type, enabled=False):
            logits = resized_to(full_precision(output), labels[:, None])
            log_probabilities = logits.log_softmax(dim=1)
            losses = {}
            if config.cross_entropy_weight:
                weights = torch.tensor(config.classes.class_weights, device=output.device)
                losses["loss_cross_entropy"] = config.cross_entropy_weight * cross_entropy(
                    log_probabilities, labels, weights, IGNORE_PART, config.cross_entropy_divisor
                )
            if config.dice_weight:
                losses["loss_dice"] = config.dice_weight * dice(
                    log_probabilities, labels, config.classes.background, IGNORE_PART, config.dice_naive
                )
            if config.guard:
                losses = {name: guarded(value) for name, value in losses.items()}
            with torch.no_grad():
                losses["acc_seg"] = accuracy(log_probabilities, labels, IGNORE_PART)
        return losses

    def unflip(self, output: Tensor) -> Tensor:
        """Logits of a mirrored picture [..., classes, h, w] as those of the picture: mirrored, left and right swapped.

        An involution. For a flip test average the output with the unflipped output of the mirror image.
        """
        check_output(output, len(self.config.classes), "logits")
        return output.flip(-1).index_select(-3, torch.tensor(self.config.classes.flip, device=output.device))

    @torch.no_grad()
    def decode(self, output: Tensor, frame: Frame) -> npt.NDArray[np.uint8]:
        """Class of every pixel of the picture: uint8 [H, W].

        Logits are resized bilinearly to the picture, then the largest wins (released). Pixels that the frame does not
        show are background (255 where the classes have none). Memory does not grow with classes x picture.

        Args:
            output: logits of one picture, [classes, h, w] or [1, classes, h, w].
            frame: how the network's input was taken from the picture.
        """
        classes = self.config.classes
        logits = full_precision(check_single(output, len(classes), "logits"))
        if frame.flipped:
            logits = logits[list(classes.flip)]
        outside = IGNORE_PART if classes.background is None else classes.background
        labels = np.empty(frame.source, np.uint8)
        for rows, values, shown in strips(logits, frame):
            labels[rows] = torch.where(shown, values.max(dim=0).indices, outside).to(torch.uint8).cpu().numpy()
        return labels
