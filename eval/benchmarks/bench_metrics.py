"""Metrics of the five tasks against the packages that people use for them: pictures a second on the same arrays.

One thread on either side; both get numpy arrays of one picture at a time and give all their figures at the end. Needs
pycocotools, faster-coco-eval, torchmetrics, scikit-image and scikit-learn. Ours computes more than the peers do: three
alignments of a pointmap, both definitions of SSIM, all six pose groups at once where the COCO evaluators run six times.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from eval.benchmarks.common import Rate, Report, alternate, compare, parser
from eval.metrics import (
    AlbedoMetric,
    NormalMetric,
    PointmapMetric,
    PoseMetric,
    PoseMetricConfig,
    SegmentationMetric,
)

Pictures = Sequence[tuple[Any, ...]]
KEYPOINTS = 308
# As the released parts, in a row: body, foot, left hand, right hand, face; what is left is in the whole only.
GROUPS = {
    name: tuple(range(start, stop))
    for (start, stop), name in zip(
        pairwise((0, 17, 23, 43, 63, 301)), ("body", "foot", "left_hand", "right_hand", "face"), strict=True
    )
}
CONFIG = PoseMetricConfig(sigmas=(0.05,) * KEYPOINTS, groups=GROUPS, nms=None)


def timed(work: Callable[[], Any], pictures: int) -> Callable[[], Rate]:
    """A side of a comparison."""

    def run() -> Rate:
        started, cpu = time.perf_counter(), time.process_time()
        work()
        return Rate(pictures, time.perf_counter() - started, time.process_time() - cpu)

    return run


def stream(metric: Callable[[], Any], pictures: Pictures) -> Callable[[], Any]:
    """Our side."""

    def work() -> dict[str, float]:
        running = metric()
        for picture in pictures:
            running.update(*picture)
        figures: dict[str, float] = running.compute()
        return figures

    return work


def crowd(random: np.random.Generator, count: int, people: int) -> Pictures:
    """Pictures of people with predictions near them."""
    made = []
    for number in range(count):
        corner = random.uniform(0, 400, (people, 1, 2))
        points = corner + random.random((people, KEYPOINTS, 2)) * 150
        truth = np.concatenate([points, random.integers(0, 3, (people, KEYPOINTS, 1))], axis=2)
        boxes = np.concatenate([corner[:, 0], corner[:, 0] + 150], axis=1)
        noise = random.normal(size=points.shape) * random.uniform(0, 20, (people, 1, 1))
        made.append((number, points + noise, random.random(people), truth, np.full(people, 12000.0), boxes))
    return made


def coco_tables(pictures: Pictures, group: Sequence[int]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Annotations and results of a group of keypoints, as the COCO evaluators read them."""
    annotations: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for image, predicted, scores, truth, areas, boxes in pictures:
        for i in range(len(truth)):
            x0, y0, x1, y1 = boxes[i].tolist()
            common = {"image_id": image, "category_id": 1, "iscrowd": 0, "bbox": [x0, y0, x1 - x0, y1 - y0]}
            flat = np.concatenate([predicted[i], np.ones((KEYPOINTS, 1))], axis=1)[group].ravel().tolist()
            known = truth[i][group]
            labels = {"area": float(areas[i]), "num_keypoints": int((known[:, 2] > 0).sum())}
            annotations.append({"id": len(annotations) + 1, **common, **labels, "keypoints": known.ravel().tolist()})
            size = float(np.prod(np.ptp(predicted[i], axis=0)))
            given = {"score": float(scores[i]), "area": size, "keypoints": flat}
            results.append({"id": len(results) + 1, **common, **given})
    return annotations, results


def coco(pictures: Pictures, package: str) -> Callable[[], Any]:
    """A COCO evaluator on all groups; its tables are made before the clock starts."""
    if package == "pycocotools":
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    else:
        from faster_coco_eval import COCO
        from faster_coco_eval import COCOeval_faster as COCOeval
    images = [{"id": picture[0]} for picture in pictures]
    prepared = []
    with contextlib.redirect_stdout(io.StringIO()):
        for group in [tuple(range(KEYPOINTS)), *GROUPS.values()]:
            sides = []
            for entries in coco_tables(pictures, list(group)):
                side = COCO()
                side.dataset = {"images": images, "categories": [{"id": 1, "name": "person"}], "annotations": entries}
                side.createIndex()
                sides.append(side)
            prepared.append((sides, np.full(len(group), 0.05)))

    def work() -> list[float]:
        figures = []
        with contextlib.redirect_stdout(io.StringIO()):
            for sides, sigmas in prepared:
                run = COCOeval(*sides, iouType="keypoints")
                run.params.kpt_oks_sigmas = sigmas
                run.evaluate()
                run.accumulate()
                run.summarize()
                figures.append(float(run.stats[0]))
        return figures

    return work


def torchmetrics_segmentation(pictures: Pictures) -> Callable[[], Any]:
    """IoU, accuracies and F1 from torchmetrics' shared confusion counts."""
    from torchmetrics import MetricCollection
    from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score, MulticlassJaccardIndex

    def work() -> Any:
        options: dict[str, Any] = {"num_classes": 29, "ignore_index": 255, "validate_args": False}
        running = MetricCollection(
            {
                "iou": MulticlassJaccardIndex(average="macro", **options),
                "macc": MulticlassAccuracy(average="macro", **options),
                "aacc": MulticlassAccuracy(average="micro", **options),
                "dice": MulticlassF1Score(average="macro", **options),
            }
        )
        for prediction, truth in pictures:
            running.update(torch.from_numpy(prediction).long(), torch.from_numpy(truth).long())
        return running.compute()

    return work


def sklearn_segmentation(pictures: Pictures) -> Callable[[], Any]:
    """scikit-learn's confusion matrix, summed."""
    from sklearn.metrics import confusion_matrix

    def work() -> Any:
        total = np.zeros((29, 29), dtype=np.int64)
        for prediction, truth in pictures:
            known = truth != 255
            total += confusion_matrix(truth[known], prediction[known], labels=range(29))
        return total

    return work


def torch_angles(pictures: Pictures) -> Callable[[], Any]:
    """The usual lines of torch: cosine similarity, arc cosine, all angles kept for the median."""

    def work() -> Any:
        kept = []
        for prediction, truth, mask in pictures:
            cosine = torch.cosine_similarity(torch.from_numpy(prediction), torch.from_numpy(truth), dim=2)
            kept.append(torch.rad2deg(torch.acos(cosine.clamp(-1, 1)))[torch.from_numpy(mask)].double())
        angles = torch.cat(kept)
        shares = [(angles < limit).double().mean() for limit in (5, 11.25, 22.5, 30)]
        return angles.mean(), angles.median(), angles.square().mean().sqrt(), shares

    return work


def torchmetrics_errors(pictures: Pictures) -> Callable[[], Any]:
    """torchmetrics' errors of points as they are, without alignment."""
    from torchmetrics.regression import MeanAbsoluteError, MeanSquaredError

    def work() -> Any:
        running: list[Any] = [MeanAbsoluteError(num_outputs=3), MeanSquaredError()]
        for prediction, truth, mask in pictures:
            given, true = (torch.from_numpy(points[mask]) for points in (prediction, truth))
            for metric in running:
                metric.update(given.contiguous(), true.contiguous())
        return [metric.compute() for metric in running]

    return work


def skimage_similarity(pictures: Pictures) -> Callable[[], Any]:
    """scikit-image's SSIM and PSNR of whole pictures."""
    from skimage.metrics import peak_signal_noise_ratio, structural_similarity

    def work() -> list[tuple[float, float]]:
        settings = {"channel_axis": 2, "gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
        return [
            (
                float(structural_similarity(truth, prediction, data_range=1.0, **settings)),
                float(peak_signal_noise_ratio(truth, prediction, data_range=1.0)),
            )
            for prediction, truth, _ in pictures
        ]

    return work


def main() -> None:
    """Print a figure for each pair."""
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--pictures", type=int, default=8, help="dense pictures of 1024 x 768")
    arguments.add_argument("--people", type=int, default=4, help="people a picture, for pose (100 pictures)")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    random = np.random.Generator(np.random.Philox(key=6))
    shape = (1024, 768)
    report = Report(options.json)
    everywhere = np.ones(shape, dtype=bool)
    labels, maps = [], []
    for _ in range(options.pictures):
        truth = random.integers(0, 29, shape, dtype=np.uint8)
        labels.append((np.where(random.random(shape) < 0.7, truth, 0).astype(np.uint8), truth))
        true = random.uniform(0.1, 1, (*shape, 3)).astype(np.float32)
        maps.append((true + 0.1 * random.normal(size=true.shape).astype(np.float32), true, everywhere))
    people = crowd(random, 100, options.people)

    pairs: list[tuple[str, Callable[[], Any], Pictures, Callable[[], Any]]] = [
        ("pose, six groups, against pycocotools", lambda: PoseMetric(CONFIG), people, coco(people, "pycocotools")),
        ("pose, six groups, against faster-coco-eval", lambda: PoseMetric(CONFIG), people, coco(people, "faster")),
        ("segmentation against torchmetrics", SegmentationMetric, labels, torchmetrics_segmentation(labels)),
        ("segmentation against scikit-learn", SegmentationMetric, labels, sklearn_segmentation(labels)),
        ("normals against lines of torch", NormalMetric, maps, torch_angles(maps)),
        ("pointmap against torchmetrics' MAE and MSE", PointmapMetric, maps, torchmetrics_errors(maps)),
    ]
    # Albedo is bounded, the other maps are not.
    colours = [(prediction, truth, mask) for prediction, truth, mask in maps[: max(options.pictures // 4, 1)]]
    pairs.append(("albedo against scikit-image's SSIM and PSNR", AlbedoMetric, colours, skimage_similarity(colours)))
    for name, metric, pictures, theirs in pairs:
        ours = stream(metric, pictures)
        mine, peer = alternate(options.rounds, timed(ours, len(pictures)), timed(theirs, len(pictures)))
        report(compare(name, "pictures/s", mine, peer))


if __name__ == "__main__":
    main()
