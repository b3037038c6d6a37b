"""Pose: average precision and recall by object keypoint similarity (COCO), and the share of correct keypoints (PCK).

Shares of 0 to 1. AP and AR agree with the COCO evaluator fed the keypoints of a group, where NaN stands for its -1.
That includes its rule for people without labelled keypoints (of the group): they excuse predictions near their box, the
last of several such people first, so that there the order of a picture's people can matter, and perfect predictions can
miss 1. The size of a prediction, by which unmatched ones drop out of `_medium` and `_large`, is that of the box around
all its keypoints in every group.
Differences from the released evaluator: it runs both hands apart (give two groups for that) and reports the run over
all 308 only; its training-time PCK divides x by the heatmap's height and y by its width, ours by one length; it drops
repeated annotations, we refuse pictures that come twice with different content.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from curation.config import Config
from eval.metrics.average_precision import THRESHOLDS, match, precision_recall
from eval.metrics.base import Array, State, as_array, load_config, same_config
from eval.metrics.oks import extents, oks, oks_nms
from eval.metrics.pck import UNITS, count, lengths, pair, pair_owned

SIZES = {"": (0.0, 1e10), "_medium": (32.0**2, 96.0**2), "_large": (96.0**2, 1e10)}
"""Areas in square pixels, both ends included (COCO)."""
WHOLE = ""


class PoseMetricConfig(Config):
    """The keypoints, and what is counted."""

    sigmas: tuple[float, ...] = Field(description="OKS sigma of each keypoint", min_length=1)
    groups: dict[str, tuple[int, ...]] = Field(
        default_factory=dict, description="parts that are measured on their own besides the whole: name -> keypoints"
    )
    head: tuple[int, ...] = Field((), description="keypoints of the head, whose box is a unit of PCK; empty: none")
    max_detections: int = Field(20, ge=1, description="best scored people of a picture that count in AP (20: COCO)")
    nms: float | None = Field(
        0.9, gt=0, le=1, description="OKS above which the worse of two people is dropped (0.9: released); null: none"
    )
    pck: tuple[float, ...] = Field(
        (0.05, 0.2), min_length=1, description="PCK limits, in units of the box's or head's longer side"
    )

    @model_validator(mode="after")
    def _consistent(self) -> PoseMetricConfig:
        if min(self.sigmas) <= 0:
            raise ValueError("sigmas must be positive")
        for name, group in {**self.groups, "head": self.head}.items():
            if len(set(group)) != len(group) or (not group and name in self.groups):
                raise ValueError(f"group {name!r} is empty or names a keypoint twice")
            if group and not 0 <= min(group) <= max(group) < len(self.sigmas):
                raise ValueError(f"group {name!r} has keypoints outside 0 to {len(self.sigmas) - 1}")
        if WHOLE in self.groups or any("/" in name for name in self.groups):
            raise ValueError("names of groups must not be empty or hold a slash")
        return self


@dataclass
class _Picture:
    """What is left of a picture: m predictions in order of falling score, S = groups x sizes, T = 10 thresholds."""

    scores: NDArray[np.float64]  # [m]
    matched: NDArray[np.bool_]  # [m, S, T]
    ignored: NDArray[np.bool_]  # [m, S, T]
    truths: NDArray[np.int64]  # [S], those that count
    correct: NDArray[np.int64]  # [units, limits, groups]
    labelled: NDArray[np.int64]  # [units, groups]

    def equals(self, other: _Picture) -> bool:
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in vars(self))


class PoseMetric:
    """Matches of every picture (53 bytes a prediction in the state with five groups); averages are taken at the end.

    Equal scores rank by the picture's identifier (shorter first, then by letters, which is the order of whole numbers),
    so the figures depend neither on the order of pictures nor on ranks.
    """

    def __init__(self, config: PoseMetricConfig) -> None:
        self.config = config
        self._sigmas = np.array(config.sigmas)
        self._names = [WHOLE, *config.groups]
        everything = np.arange(len(config.sigmas))
        self._groups = [everything, *(np.array(group) for group in config.groups.values())]
        self._pictures: dict[str, _Picture] = {}

    def update(
        self,
        picture: str | int,
        predicted: Any,
        scores: Any,
        truth: Any,
        areas: Any,
        boxes: Any,
        crowd: Any = None,
        owners: Any = None,
    ) -> None:
        """Take in all people of a picture.

        Args:
            picture: identifier.
            predicted: [m, K, 2 or more], x and y in the picture's pixels; more columns are not read.
            scores: [m], of people (`oks.instance_scores`).
            truth: [n, K, 3], x, y in pixels, v > 0 for labelled.
            areas: [n], square pixels (of the segment, as COCO annotates it).
            boxes: [n, 4], corners (x, y, x, y).
            crowd: bool [n]; None: no crowds.
            owners: whole numbers [m], which truth each prediction is meant for, for PCK (top-down from true boxes;
                of several the best scored counts); None: they are paired so that the sum of similarities is highest.

        Raises:
            ValueError: shapes do not fit, a number is not finite, or the picture came before with other content.
        """
        points = len(self.config.sigmas)
        predicted = as_array(predicted, "predicted", (None, points, None))[..., :2].astype(np.float64)
        scores = as_array(scores, "scores", (len(predicted),), np.float64)
        truth = as_array(truth, "truth", (None, points, 3), np.float64)
        areas = as_array(areas, "areas", (len(truth),), np.float64)
        boxes = as_array(boxes, "boxes", (len(truth), 4), np.float64)
        crowds = np.zeros(len(truth), dtype=np.bool_)
        if crowd is not None:
            crowds = as_array(crowd, "crowd", (len(truth),), np.bool_)
        # Coordinates of what is not labelled may be anything.
        truth = np.where(truth[..., 2:] > 0, truth, 0.0)
        named = {"predicted": predicted, "scores": scores, "truth": truth, "areas": areas, "boxes": boxes}
        for name, values in named.items():
            if not np.isfinite(values).all():
                raise ValueError(f"{name} of picture {picture} has a number that is not finite")
        order = np.argsort(-scores, kind="stable")
        if self.config.nms is not None:
            order = oks_nms(predicted, scores, self._sigmas, self.config.nms)
        similarity = oks(predicted[order], truth, areas, boxes, self._sigmas, self._groups)
        if owners is None:
            pairs = {person: int(order[kept]) for person, kept in pair(similarity[0]).items()}
        else:
            pairs = pair_owned(as_array(owners, "owners", (len(predicted),), np.int64), scores, len(truth))
        distance = np.full(truth.shape[:2], np.inf)
        for person, meant in pairs.items():
            distance[person] = np.hypot(*(predicted[meant] - truth[person, :, :2]).T)
        labelled = (truth[..., 2] > 0) & ~crowds[:, None]
        sizes = lengths(truth, boxes, self.config.head)
        correct, total = count(distance, labelled, sizes, self.config.pck, self._groups)
        order = order[: self.config.max_detections]
        matched, ignored, truths = self._match(similarity[:, : len(order)], predicted[order], truth, areas, crowds)
        self._insert(str(picture), _Picture(scores[order], matched, ignored, truths, correct, total))

    def _match(
        self, similarity: Array, predicted: Array, truth: Array, areas: Array, crowd: Array
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64]]:
        limits = np.array(list(SIZES.values()))[:, :, None]
        nothing = np.stack([~(truth[:, group, 2] > 0).any(axis=1) for group in self._groups])
        other_size = (areas < limits[:, 0]) | (areas > limits[:, 1])
        skipped = ((nothing | crowd)[:, None] | other_size).reshape(len(self._groups) * len(SIZES), len(truth))
        matched, ignored = match(similarity.repeat(len(SIZES), axis=0), skipped, crowd)
        # A wrong prediction of another size does not count as wrong; its size is that of the box of all its keypoints.
        extent = extents(predicted) if len(predicted) else np.zeros(0)
        elsewhere = np.tile((extent < limits[:, 0]) | (extent > limits[:, 1]), (len(self._groups), 1))
        ignored |= ~matched & elsewhere.T[:, :, None]
        return matched, ignored, (~skipped).sum(axis=1)

    def _insert(self, name: str, picture: _Picture) -> None:
        if not self._pictures.setdefault(name, picture).equals(picture):
            raise ValueError(
                f"picture {name} came before with other people; give all people of a picture in one update, and "
                "different pictures different identifiers"
            )

    def merge(self, other: PoseMetric) -> None:
        """Take in another's pictures; one that both have seen counts once."""
        same_config(self.config, other.config)
        for name, picture in other._pictures.items():
            self._insert(name, picture)

    def _sorted(self) -> list[tuple[str, _Picture]]:
        return sorted(self._pictures.items(), key=lambda item: (len(item[0]), item[0]))

    def state(self) -> State:
        """config; per picture names (text), predictions (how many), truths, correct, labelled (counts); per prediction
        scores (float64) and bits (uint8, packed matched and ignored).
        """
        names, pictures = [name for name, _ in self._sorted()], [picture for _, picture in self._sorted()]
        filled = [self._nothing(), *pictures]
        bits = np.concatenate([np.stack([p.matched, p.ignored], axis=1) for p in filled])
        fields = {name: [getattr(p, name) for p in pictures] for name in ("truths", "correct", "labelled")}
        return {
            "config": self.config.model_dump_json(),
            "names": np.array(names, dtype=np.str_),
            "predictions": np.array([len(p.scores) for p in pictures], dtype=np.int64),
            "scores": np.concatenate([p.scores for p in filled]),
            "bits": np.packbits(bits.reshape(len(bits), math.prod(bits.shape[1:])), axis=1),
            **{name: np.array(values, dtype=np.int64) for name, values in fields.items()},
        }

    def _nothing(self) -> _Picture:
        settings, groups = len(self._groups) * len(SIZES), len(self._groups)
        none = np.zeros((0, settings, len(THRESHOLDS)), dtype=np.bool_)
        counts = np.zeros((len(UNITS), len(self.config.pck), groups), dtype=np.int64)
        return _Picture(np.zeros(0), none, none, np.zeros(settings, dtype=np.int64), counts, counts[:, 0])

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> PoseMetric:
        """The metric of a state."""
        metric = cls(load_config(PoseMetricConfig, state))
        empty = metric._nothing()
        names = [str(name) for name in state["names"]]
        ends = np.cumsum(as_array(state["predictions"], "predictions", (len(names),), np.int64))
        scores = np.asarray(state["scores"], dtype=np.float64)
        width = 2 * empty.matched.shape[1] * empty.matched.shape[2]
        packed = np.asarray(state["bits"], dtype=np.uint8).reshape(len(scores), -(-width // 8))
        bits = np.unpackbits(packed, axis=1, count=width).astype(np.bool_)
        both = bits.reshape(len(scores), 2, *empty.matched.shape[1:])
        for i, (name, end) in enumerate(zip(names, ends.tolist(), strict=True)):
            part = slice(int(ends[i - 1]) if i else 0, end)
            counts = [np.asarray(state[key][i], dtype=np.int64) for key in ("truths", "correct", "labelled")]
            metric._pictures[name] = _Picture(scores[part], both[part, 0], both[part, 1], *counts)
        return metric

    def compute(self) -> dict[str, float]:
        """The figures of the whole, and of each group with its name and a slash in front.

        ap, ar: mean over the OKS thresholds 0.50, 0.55 ... 0.95 of the average precision, and of the recall of the
        best 20 predictions a picture; ap50, ap75, ar50, ar75: at one threshold; ap_medium, ap_large, ar_medium,
        ar_large: of people of 32^2 to 96^2 and over 96^2 square pixels. NaN where no such person was labelled.
        pck_box@A: share of labelled keypoints nearer to their truth than A times the longer side of the person's box;
        pck_head@A: of the box around the labelled keypoints of the head. Both over all keypoints of all people; those
        of people that were not found are wrong. NaN without such keypoints, or heads.

        Raises:
            ValueError: no labelled person was seen.
        """
        pictures = [picture for _, picture in self._sorted()]
        if not sum(int(picture.truths[0]) for picture in pictures):
            raise ValueError("no person with labelled keypoints was seen: there is nothing to measure")
        truths = np.sum([p.truths for p in pictures], axis=0)
        scores = np.concatenate([p.scores for p in pictures])
        order = np.argsort(-scores, kind="stable")
        matched = np.concatenate([p.matched for p in pictures])[order]
        counted = ~np.concatenate([p.ignored for p in pictures])[order]
        figures: dict[str, float] = {}
        for setting, (group, size) in enumerate(product(self._names, SIZES)):
            prefix = f"{group}/" if group else ""
            precision, recall = precision_recall(matched[:, setting], counted[:, setting], int(truths[setting]))
            for name, values in (("ap", precision), ("ar", recall)):
                figures[f"{prefix}{name}{size}"] = float(values.mean())
                if not size:
                    figures[f"{prefix}{name}50"] = float(values[0])
                    figures[f"{prefix}{name}75"] = float(values[5])
        correct, labelled = (np.sum([getattr(p, key) for p in pictures], axis=0) for key in ("correct", "labelled"))
        for (column, group), (row, unit) in product(enumerate(self._names), enumerate(UNITS)):
            total = int(labelled[row, column])
            for number, limit in enumerate(self.config.pck):
                name = f"{group}/pck_{unit}@{limit:g}" if group else f"pck_{unit}@{limit:g}"
                figures[name] = int(correct[row, number, column]) / total if total else math.nan
        return figures
