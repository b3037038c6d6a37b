from __future__ import annotations

import contextlib
import io
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.metrics import PoseMetric, PoseMetricConfig

K = 9
SIGMAS = tuple(np.linspace(0.02, 0.1, K).tolist())
GROUPS = {"foot": (6, 7), "face": (0, 1, 2), "hands": (3, 8)}
CONFIG = PoseMetricConfig(sigmas=SIGMAS, groups=GROUPS, head=(0, 1, 2), nms=None)
Scene = dict[str, Any]


def scenes(key: int, count: int = 12, crowds: bool = True, grid: int | None = None) -> list[Scene]:
    """Pictures with people of all sizes, some without labels, crowds, false and missing predictions, equal scores."""
    random = np.random.Generator(np.random.Philox(key=key))
    made = []
    for number in range(count):
        people = int(random.integers(0, 5)) if number else 2
        sizes = np.exp(random.uniform(np.log(20), np.log(300), people))
        corner = random.uniform(0, 300, (people, 2))
        truth = np.zeros((people, K, 3))
        truth[..., :2] = corner[:, None] + random.random((people, K, 2)) * sizes[:, None, None]
        truth[..., 2] = random.integers(0, 3, (people, K))
        truth[random.random(people) < 0.15, :, 2] = 0
        if number == 0:
            truth[0, :, 2] = 2
        boxes = np.concatenate([corner, corner + sizes[:, None]], axis=1)
        found = truth[random.random(people) < 0.85]
        sloppy = random.choice([0.0, 0.02, 0.1], (len(found), 1, 1)) * 60
        found = found[..., :2] + sloppy * random.normal(size=found[..., :2].shape)
        extra = random.uniform(0, 400, (int(random.integers(0, 3)), K, 2))
        predicted = np.concatenate([found, extra])
        scores = random.random(len(predicted))
        made.append(
            {
                "picture": number * 3 + 7,
                "predicted": predicted,
                "scores": scores if grid is None else np.round(scores * grid) / grid,
                "truth": truth,
                "areas": 0.6 * sizes**2,
                "boxes": boxes,
                "crowd": random.random(people) < (0.1 if crowds and number else 0),
            }
        )
    return made


def measured(made: list[Scene], config: PoseMetricConfig = CONFIG) -> PoseMetric:
    metric = PoseMetric(config)
    for scene in made:
        metric.update(**scene)
    return metric


def reference(made: list[Scene], group: tuple[int, ...], package: str) -> list[float]:
    """The ten figures of a COCO evaluator that is fed the keypoints of a group."""
    if package == "pycocotools":
        coco = pytest.importorskip("pycocotools.coco").COCO
        evaluator = pytest.importorskip("pycocotools.cocoeval").COCOeval
    else:
        coco = pytest.importorskip("faster_coco_eval").COCO
        evaluator = pytest.importorskip("faster_coco_eval").COCOeval_faster
    annotations: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for scene in made:
        for i, person in enumerate(scene["truth"]):
            x0, y0, x1, y1 = scene["boxes"][i].tolist()
            points = np.where(person[:, 2:] > 0, person, 0)[list(group)]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": scene["picture"],
                    "category_id": 1,
                    "iscrowd": int(scene["crowd"][i]),
                    "area": float(scene["areas"][i]),
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "num_keypoints": int((points[:, 2] > 0).sum()),
                    "keypoints": points.ravel().tolist(),
                }
            )
        for points, score in zip(scene["predicted"], scene["scores"], strict=True):
            flat = np.concatenate([points, np.ones((K, 1))], axis=1)[list(group)].ravel().tolist()
            low, high = points.min(axis=0), points.max(axis=0)
            results.append(
                {
                    "id": len(results) + 1,
                    "image_id": scene["picture"],
                    "category_id": 1,
                    "score": float(score),
                    "keypoints": flat,
                    "bbox": [*low.tolist(), *(high - low).tolist()],
                    "area": float(np.prod(high - low)),
                    "iscrowd": 0,
                }
            )
    images = [{"id": scene["picture"], "width": 700, "height": 700} for scene in made]
    sides = []
    with contextlib.redirect_stdout(io.StringIO()):
        for entries in (annotations, results):
            side = coco()
            side.dataset = {"images": images, "categories": [{"id": 1, "name": "person"}], "annotations": entries}
            side.createIndex()
            sides.append(side)
        run = evaluator(*sides, iouType="keypoints")
        run.params.kpt_oks_sigmas = np.array(SIGMAS)[list(group)]
        run.evaluate()
        run.accumulate()
        run.summarize()
    return [float(value) for value in run.stats[:10]]


NAMES = ("ap", "ap50", "ap75", "ap_medium", "ap_large", "ar", "ar50", "ar75", "ar_medium", "ar_large")


def ours(figures: dict[str, float], group: str) -> list[float]:
    values = [figures[f"{group}/{name}" if group else name] for name in NAMES]
    return [-1.0 if math.isnan(value) else value for value in values]


@pytest.mark.parametrize("package", ["pycocotools", "faster_coco_eval"])
@pytest.mark.parametrize("group", ["", *GROUPS])
@pytest.mark.parametrize("key", [1, 2, 3])
def test_agrees_with_the_coco_evaluators(package: str, group: str, key: int) -> None:
    made = scenes(key, 25, grid=10 if key == 2 else None)
    wanted = reference(made, GROUPS.get(group, tuple(range(K))), package)
    assert 0.05 < wanted[0] < 0.95
    assert ours(measured(made).compute(), group) == pytest.approx(wanted, abs=1e-12)


def test_more_predictions_than_count() -> None:
    made = scenes(4, 3, crowds=False)
    scene = made[0]
    random = np.random.Generator(np.random.Philox(key=5))
    scene["predicted"] = np.concatenate([random.uniform(0, 400, (30, K, 2)), scene["truth"][..., :2]])
    scene["scores"] = np.linspace(1, 0, len(scene["predicted"]))
    wanted = reference(made, tuple(range(K)), "pycocotools")
    assert ours(measured(made).compute(), "") == pytest.approx(wanted, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 5))
def test_splits_merge_to_the_whole_bit_by_bit_in_any_order(key: int, cut: int) -> None:
    made = scenes(key, 5, grid=4)
    # Both ranks saw picture 0, as samplers that fill the last batch have it.
    first, second = measured(made[:cut]), measured([*made[cut:][::-1], made[0]])
    stored = io.BytesIO()
    np.savez(stored, **first.state())
    stored.seek(0)
    second.merge(PoseMetric.from_state(np.load(stored)))
    np.testing.assert_equal(second.compute(), measured(made).compute())


def labelled(made: list[Scene]) -> list[Scene]:
    """All keypoints labelled: COCO's rule for people without any depends on the order of people."""
    for scene in made:
        scene["truth"][..., 2] = 2
    return made


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_order_of_people_does_not_matter_and_figures_are_shares(key: int) -> None:
    made = labelled(scenes(key, 5, crowds=False))
    random = np.random.Generator(np.random.Philox(key=key))
    shuffled = []
    for scene in made:
        people, found = random.permutation(len(scene["truth"])), random.permutation(len(scene["scores"]))
        of = {"truth": people, "areas": people, "boxes": people, "crowd": people, "predicted": found, "scores": found}
        shuffled.append({name: value[of[name]] if name in of else value for name, value in scene.items()})
    figures = measured(made).compute()
    np.testing.assert_equal(measured(shuffled).compute(), figures)
    assert all(math.isnan(value) or 0 <= value <= 1 for value in figures.values())
    assert figures["ap"] <= figures["ap50"] + 1e-12
    assert figures["pck_box@0.05"] <= figures["pck_box@0.2"]


def perfect(made: list[Scene]) -> list[Scene]:
    return [s | {"predicted": s["truth"][..., :2], "scores": np.linspace(1, 0.5, len(s["truth"]))} for s in made]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_perfect_predictions_have_1_everywhere(key: int) -> None:
    figures = measured(perfect(labelled(scenes(key, 5, crowds=False)))).compute()
    # By size, a prediction may take an overlapping person of the size instead of its own of another size, as in COCO.
    figures = {name: value for name, value in figures.items() if not name.endswith(("_medium", "_large"))}
    assert {round(value, 12) for value in figures.values() if not math.isnan(value)} == {1.0}


def test_state_goes_through_json_and_may_be_empty() -> None:
    for metric in (measured(scenes(6, 4)), PoseMetric(CONFIG)):
        state = {key: getattr(value, "tolist", lambda value=value: value)() for key, value in metric.state().items()}
        again = PoseMetric.from_state(json.loads(json.dumps(state)))
        assert again.state().keys() == metric.state().keys()
        for key, value in metric.state().items():
            assert np.array_equal(again.state()[key], value)


def test_suppressed_people_do_not_count() -> None:
    made = perfect(scenes(7, 6, crowds=False))
    doubled = [
        s | {"predicted": np.repeat(s["predicted"], 2, axis=0), "scores": np.repeat(s["scores"], 2)} for s in made
    ]
    suppress = CONFIG.model_copy(update={"nms": 0.9})
    assert measured(doubled, suppress).compute()["ap"] == pytest.approx(measured(made, suppress).compute()["ap"])
    assert measured(doubled).compute()["ap"] < 0.9


def test_pck_by_hand() -> None:
    """One person with a box of 100 and a head of 20, keypoints off by 0, 1, 2 ... 8 pixels."""
    truth = np.ones((2, K, 3))
    truth[:, :, 0] = np.arange(K) * 10
    truth[1] += [500, 0, 0]
    truth[0, 8, 2] = 0
    boxes = np.array([[0, 0, 100, 50], [500, 0, 600, 50.0]])
    predicted = truth[:1, :, :2].copy()
    predicted[0, :, 1] += np.arange(K)
    scene = {
        "picture": "a",
        "predicted": predicted,
        "scores": [1.0],
        "truth": truth,
        "areas": [5000] * 2,
        "boxes": boxes,
    }
    figures = measured([scene]).compute()
    # 8 and 9 labelled keypoints, the second person is not found; off by less than 5, 20, 1 and 4.
    assert figures["pck_box@0.05"] == 5 / 17
    assert figures["pck_box@0.2"] == 8 / 17
    assert figures["pck_head@0.05"] == 1 / 17
    assert figures["pck_head@0.2"] == 4 / 17
    assert figures["face/pck_box@0.05"] == 3 / 6
    # The prediction was meant for the other one.
    assert measured([scene | {"owners": [1]}]).compute()["pck_box@0.2"] == 0


def test_nothing_found() -> None:
    scene = scenes(8, 1)[0] | {"predicted": np.zeros((0, K, 2)), "scores": np.zeros(0)}
    figures = measured([scene]).compute()
    assert figures["ap"] == figures["ar"] == figures["pck_box@0.2"] == 0


def test_mistakes_are_named() -> None:
    metric = PoseMetric(CONFIG)
    with pytest.raises(ValueError, match="nothing to measure"):
        metric.compute()
    scene = scenes(9, 1)[0]
    metric.update(**scene)
    with pytest.raises(ValueError, match="picture 7 came before"):
        metric.update(**scene | {"scores": scene["scores"] + 1})
    with pytest.raises(ValueError, match="not finite"):
        metric.update(**scene | {"areas": scene["areas"] * np.nan})
    with pytest.raises(ValueError, match="owners are 9 to 9"):
        metric.update(**scene | {"owners": np.full(len(scene["scores"]), 9)})
    with pytest.raises(ValueError, match="nms differ"):
        metric.merge(PoseMetric(CONFIG.model_copy(update={"nms": 0.5})))
    for groups in ({"a": (0, 0)}, {"a": ()}, {"a": (99,)}, {"": (1,)}):
        with pytest.raises(ValueError, match="group"):
            PoseMetricConfig(sigmas=SIGMAS, groups=groups)
    with pytest.raises(ValueError, match="positive"):
        PoseMetricConfig(sigmas=(0.1, 0.0))
