"""From pictures to results: three lines.

predictor = Predictor.load("pose", "sapiens2_0.4b_pose.safetensors")
(result,) = predictor(["photo.jpg"])
result.keypoints  # float32 [people, 308, 2]
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from training.data.colour import normalise
from training.models.backbone import Backbone
from training.models.checkpoints import load_weights
from training.models.heads import build_head
from training.models.task_model import TaskModel
from training.prediction.architecture import architecture
from training.prediction.boxes import Boxes, Detector, Image, as_boxes, non_maximum_suppression, on_picture, whole
from training.prediction.config import PredictorConfig
from training.prediction.inputs import read_image
from training.prediction.results import (
    AlbedoResult,
    NormalResult,
    PointmapResult,
    PoseResult,
    Result,
    SegmentationResult,
)
from training.prediction.tasks import Task, TaskConfig, task_of
from training.tasks.frames import Frame, Size, crop_around, letterbox, stretch
from training.tasks.pose import Pose, PosePrediction
from training.tasks.warp import warp

Key = TypeVar("Key")
Given = Boxes | npt.ArrayLike | None
"""Boxes of a picture as they are given; None: look for them, else the whole picture."""


@dataclass(eq=False)
class _Waiting(Generic[Key]):
    """A picture some of whose crops have not been through the model."""

    key: Key
    image: Image
    people: Boxes
    left: int
    parts: list[Any] = field(default_factory=list)


class Predictor:
    """A task model that takes pictures.

    Args:
        model: images [B, 3, h, w], normalised -> the head's output, on its device and in its dtype already.
        task: what encodes and decodes, e.g. `training.tasks.pose.Pose`.
        size: (height, width) in pixels of what the network sees.
        config: batches, flip test, boxes.
        detector: of people for pose, where no boxes are given; None: the whole picture is one person.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        task: Task,
        size: Size,
        config: PredictorConfig | None = None,
        detector: Detector | None = None,
    ) -> None:
        self.model, self.task, self.size, self.detector = model.eval().requires_grad_(False), task, size, detector
        self.config = config or PredictorConfig()
        if detector is not None and not isinstance(task, Pose):
            raise ValueError(f"{task.name} takes whole pictures and needs no detector: leave it out")
        parameter = next(model.parameters())
        self.device, self.dtype = parameter.device, parameter.dtype
        self.flip = isinstance(task, Pose) if self.config.flip is None else self.config.flip

    @classmethod
    def load(
        cls,
        task: str,
        weights: str | Path,
        backbone: str | None = None,
        size: Size | None = None,
        device: torch.device | str | None = None,
        *,
        config: PredictorConfig | None = None,
        task_config: TaskConfig | None = None,
        detector: Detector | None = None,
    ) -> Predictor:
        """A predictor with weights from a file; every tensor has to fit.

        Args:
            task: "pose", "seg", "normal", "pointmap" or "albedo".
            weights: a safetensors file or folder, as `load_weights` takes them. In released names the model is told
                from the shapes, heads with other channels, keypoints or classes too.
            backbone: a name of the zoo; needed for the names that transformers has in memory only.
            size: (height, width) in pixels of what the network sees; None: the backbone's in the zoo.
            device: None: a GPU where there is one.
            config, detector: see the class.
            task_config: e.g. `PoseConfig`; needed for keypoints or classes of your own.

        Raises:
            WeightsError: the file cannot be read, or holds something else.
            ValueError: a task, backbone, size or configuration that does not fit.
        """
        config = config or PredictorConfig()
        encoder, head = architecture(task, weights, backbone, size)
        adapter = task_of(task, head, task_config)
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        model = TaskModel(Backbone(encoder, device="meta"), build_head(head, device="meta"))
        load_weights(model, weights, dtype=getattr(torch, config.dtype), device=place)
        return cls(model, adapter, encoder.image_size, config, detector)

    def __call__(
        self, images: Image | str | Path | Sequence[Image | str | Path], boxes: Sequence[Given] | Given = None
    ) -> list[Result]:
        """Results of some pictures, in order.

        Args:
            images: uint8 [H, W, 3] RGB each, or paths; or a single one. Any sizes.
            boxes: for pose, a list with an entry for each picture (for a single picture, its entry): `Boxes`, or [n, 4]
                of x0, y0, x1, y1 (edges of pixels), used as they are; [] = nobody; None: from the detector, else the
                whole picture.

        Raises:
            ValueError: a picture that is none or cannot be read, or boxes that do not fit.
        """
        single = isinstance(images, np.ndarray | str | Path)
        pictures: Sequence[Image | str | Path] = [images] if single else images  # type: ignore[list-item, assignment]
        given: Any = [None] * len(pictures) if boxes is None else [boxes] if single else boxes
        if isinstance(given, Boxes) or len(given) != len(pictures):
            given_for = "one picture" if isinstance(given, Boxes) else len(given)
            raise ValueError(f"{len(pictures)} pictures, but boxes for {given_for}: give a list with an entry for each")
        loaded = (read_image(item) if isinstance(item, str | Path) else item for item in pictures)
        return [result for _, _, result in self.stream(zip(range(len(pictures)), loaded, given, strict=True))]

    def stream(self, pictures: Iterable[tuple[Key, Image, Given]]) -> Iterator[tuple[Key, Image, Result]]:
        """Results of any number of pictures in their order; a forward pass takes crops of one or of several.

        At most `batch_size` crops, and `batch_size` pictures and one, are held at a time.

        Args:
            pictures: (what they are called, uint8 [H, W, 3], boxes as in `__call__`).
        """
        waiting: deque[_Waiting[Key]] = deque()
        batch: list[tuple[_Waiting[Key], Frame, Image]] = []
        for key, image, given in pictures:
            _check_image(image)
            people, frames = self._frames(image, given)
            item = _Waiting(key, image, people, len(frames))
            waiting.append(item)
            for frame in frames:
                batch.append((item, frame, warp(image, frame, self._interpolation)))
                if len(batch) == self.config.batch_size:
                    self._forward(batch)
                    batch.clear()
            if len(waiting) > self.config.batch_size and batch:
                # Pictures without people wait behind one with some.
                self._forward(batch)
                batch.clear()
            yield from self._done(waiting)
        if batch:
            self._forward(batch)
        yield from self._done(waiting)

    def people(self, image: Image, given: Given = None) -> Boxes:
        """The boxes of a picture that pose is predicted in, see `__call__`; those of a detector after selection."""
        if given is not None:
            return as_boxes(given)
        if self.detector is None:
            return whole(image)
        found = self.selected(on_picture(self.detector(image), image))
        return found if len(found) or not self.config.whole_when_none else whole(image)

    def selected(self, found: Boxes) -> Boxes:
        """Detections of at least the least score, after non-maximum suppression; best first."""
        found = found.selected(found.scores >= self.config.min_box_score)
        return non_maximum_suppression(found, self.config.box_overlap)

    def description(self) -> dict[str, Any]:
        """What a result depends on, but for pictures and boxes: JSON values, the weights as a hash.

        The hash is of some 4,096 numbers, evenly spaced, of every tensor: training moves all of them, and hashing a
        large model whole takes minutes.
        """
        digest = hashlib.sha256()
        for name, parameter in sorted(self.model.named_parameters()):
            flat = parameter.detach().reshape(-1)
            digest.update(f"{name} {list(parameter.shape)} ".encode())
            digest.update(flat[:: max(1, flat.numel() // 4096)].float().cpu().numpy().tobytes())
        settings = self.config.model_dump(mode="json", exclude={"batch_size"}) | {"flip": self.flip}
        return {
            "task": self.task.name,
            "size": list(self.size),
            "weights": digest.hexdigest(),
            "predictor": settings,
            "task_config": self.task.config.model_dump(mode="json"),
        }

    @property
    def _interpolation(self) -> Any:
        return self.task.config.interpolation if isinstance(self.task, Pose) else self.config.interpolation

    def _frames(self, image: Image, given: Given) -> tuple[Boxes, list[Frame]]:
        source = (image.shape[0], image.shape[1])
        if isinstance(self.task, Pose):
            people, padding = self.people(image, given), self.task.config.padding
            return people, [crop_around(box, self.size, source, padding=padding) for box in people.boxes]
        if given is not None:
            raise ValueError(f"{self.task.name} takes whole pictures: give boxes for pose only")
        return whole(image), [self.frame(source)]

    def frame(self, source: Size) -> Frame:
        """What the network sees of a picture of (height, width) `source`, for tasks that take whole pictures."""
        if (self.config.fit or ("stretch" if self.task.name == "seg" else "letterbox")) == "stretch":
            return stretch(source, self.size)
        return letterbox(source, self.size, "truncate")  # as released inference rounds

    @torch.inference_mode()
    def _forward(self, batch: list[tuple[_Waiting[Key], Frame, Image]]) -> None:
        stacked = torch.from_numpy(np.stack([crop for _, _, crop in batch])).to(self.device)
        images = normalise(stacked.permute(0, 3, 1, 2), self.dtype)
        output = _floats(self.model(images))
        if self.flip:
            mirrored = self.task.unflip(_floats(self.model(images.flip(-1))))
            output = _mean(output, mirrored)
        if isinstance(self.task, Pose):
            found = self.task.decode(output, [frame for _, frame, _ in batch])
            for row, (item, _, _) in enumerate(batch):
                item.parts.append((found.keypoints[row], found.scores[row]))
        else:
            for row, (item, frame, _) in enumerate(batch):
                one: Any = tuple(part[row] for part in output) if isinstance(output, tuple) else output[row]
                item.parts.append(self.task.decode(one, frame))
        for item, _, _ in batch:
            item.left -= 1

    def _done(self, waiting: deque[_Waiting[Key]]) -> Iterator[tuple[Key, Image, Result]]:
        while waiting and not waiting[0].left:
            item = waiting.popleft()
            yield item.key, item.image, self._result(item)

    def _result(self, item: _Waiting[Key]) -> Result:
        if isinstance(self.task, Pose):
            count = len(self.task.set)
            keypoints = np.array([points for points, _ in item.parts], np.float32).reshape(-1, count, 2)
            scores = np.array([values for _, values in item.parts], np.float32).reshape(-1, count)
            instances = PosePrediction(keypoints, scores).instance_scores(item.people.scores)
            return PoseResult(item.people.boxes, item.people.scores, keypoints, scores, instances)
        (found,) = item.parts
        match self.task.name:
            case "seg":
                return SegmentationResult(found)
            case "normal":
                return NormalResult(found)
            case "pointmap":
                return PointmapResult(found.points, found.scale, found.focal)
        return AlbedoResult(found)


def _check_image(image: Any) -> None:
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        given = f"{image.shape} {image.dtype}" if isinstance(image, np.ndarray) else type(image).__name__
        raise ValueError(f"an image is {given}: give uint8 [H, W, 3], RGB")
    if not image.size:
        raise ValueError(f"an image is {image.shape}: it has no pixels")


def _floats(output: Tensor | tuple[Tensor, ...]) -> Any:
    return tuple(part.float() for part in output) if isinstance(output, tuple) else output.float()


def _mean(first: Any, second: Any) -> Any:
    if isinstance(first, tuple):
        return tuple(_mean(one, other) for one, other in zip(first, second, strict=True))
    return (first + second) / 2
