"""Views: the crops are those of the published sampling, depend on the key alone, and show what their boxes say."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError
from scipy import stats

from curation.records import Pixels
from training.data.batch import Sample, Views, collate
from training.data.colour import ColourConfig, apply_colour, identity
from training.data.views import (
    ATTEMPTS,
    ViewParameters,
    ViewsConfig,
    apply_views,
    draw_views,
    finish_on_device,
    make_views,
    resize,
)

SMALL = ViewsConfig(global_size=(32, 24), local_size=(16, 12), fallback="centre")
PLAIN = ColourConfig(jitter_probability=0, grayscale_probability=0, blur_probability=0, solarize_probability=0)


def rng(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


def picture(height: int, width: int, key: int = 0) -> Pixels:
    """A smooth picture with some noise on it, without symmetry."""
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(x / (7 + 3 * c) + c) + np.cos(y / (5 + 2 * c)) + x / width for c in range(3)], axis=-1)
    noisy = 128 + 40 * waves + rng(key).normal(0, 12, (height, width, 3))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def digest(views: Views) -> str:
    tensors = [value for value in vars(views).values() if value is not None]
    return hashlib.sha256(b"".join(tensor.contiguous().numpy().tobytes() for tensor in tensors)).hexdigest()


def slow_box(
    draws: np.ndarray, size: tuple[int, int], view: tuple[int, int], scale: tuple[float, float], config: ViewsConfig
) -> tuple[int, int, int, int]:
    """The published sampling, try by try, with the fallback of torchvision: the central crop of the nearest shape."""
    height, width = size
    low, high = (factor * view[1] / view[0] for factor in config.aspect)
    for u in draws.tolist():
        area = height * width * (scale[0] + u[0] * (scale[1] - scale[0]))
        shape = math.exp(math.log(low) + u[1] * (math.log(high) - math.log(low)))
        w, h = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < w <= width and 0 < h <= height:
            return min(int(u[2] * (width - w + 1)), width - w), min(int(u[3] * (height - h + 1)), height - h), w, h
    if width / height < low:
        w, h = width, max(1, round(width / low))
    elif width / height > high:
        w, h = max(1, round(height * high)), height
    else:
        w, h = width, height
    return (width - w) // 2, (height - h) // 2, w, h


@settings(max_examples=60, deadline=None)
@given(key=st.integers(0, 2**32), height=st.integers(1, 3000), width=st.integers(1, 3000))
def test_boxes_are_those_of_a_slow_reference(key: int, height: int, width: int) -> None:
    boxes = draw_views(rng(key), (height, width), SMALL).boxes

    draws = rng(key).random((6, ATTEMPTS, 4))
    for index, box in enumerate(boxes):
        view, scale = (SMALL.global_size, SMALL.global_scale) if index < 2 else (SMALL.local_size, SMALL.local_scale)
        assert tuple(box.tolist()) == slow_box(draws[index], (height, width), view, scale, SMALL)


def test_shares_shapes_and_places_have_their_distributions() -> None:
    # On a picture of the view's shape, shares up to 0.7 fit at every shape allowed: no try fails and nothing is biased.
    height, width = 4000, 3000
    drawn = [draw_views(rng(key), (height, width), SMALL) for key in range(1500)]
    boxes = np.concatenate([one.boxes[2:] for one in drawn]).astype(np.float64)
    left, top, wide, high = boxes.T

    def uniform(values: np.ndarray, low: float, high: float) -> float:
        return float(stats.kstest(values, "uniform", args=(low, high - low)).pvalue)

    assert uniform(wide * high / (height * width), 0.2, 0.7) > 1e-3
    assert uniform(np.log(wide / high / 0.75), math.log(3 / 4), math.log(4 / 3)) > 1e-3
    assert uniform(left / (width - wide), 0, 1) > 1e-3
    assert uniform(top / (height - high), 0, 1) > 1e-3
    flips = np.array([one.flipped for one in drawn])
    assert np.abs(flips.mean(0) - 0.5).max() < 0.065  # 5 standard deviations of each view's share
    assert abs(np.corrcoef(flips[:, 0], flips[:, 1])[0, 1]) < 0.13


def test_global_views_show_the_configured_share_of_the_picture() -> None:
    shares = [
        box[2] * box[3] / (400 * 300) for key in range(300) for box in draw_views(rng(key), (400, 300), SMALL).boxes[:2]
    ]

    assert 0.495 < min(shares) < 0.51
    assert 0.95 < max(shares) <= 1


@pytest.mark.parametrize(("height", "width"), [(100, 1000), (500, 1), (1, 1)])
def test_without_a_crop_that_fits_the_largest_of_an_allowed_shape_is_taken_from_the_centre(
    height: int, width: int
) -> None:
    boxes = draw_views(rng(0), (height, width), SMALL.model_copy(update={"aspect": (1.0, 1.0)})).boxes

    wide, high = min(width, round(height * 0.75)), min(height, max(1, round(width / 0.75)))
    assert boxes[0].tolist() == [(width - wide) // 2, (height - high) // 2, wide, high]


def test_a_random_fallback_spreads_over_the_picture() -> None:
    config = SMALL.model_copy(update={"fallback": "random"})
    boxes = np.stack([draw_views(rng(key), (100, 1000), config).boxes[0] for key in range(200)])

    assert (boxes[:, 1:] == [0, 100, 100]).all()
    assert boxes[:, 0].min() < 50
    assert boxes[:, 0].max() > 850


def test_another_size_of_picture_or_another_switch_changes_nothing_else() -> None:
    config = SMALL
    one = draw_views(rng(1), (300, 200), config)
    other = draw_views(rng(1), (50, 900), config)
    coloured = draw_views(rng(1), (300, 200), config.model_copy(update={"colour_on_globals": True}))

    assert np.array_equal(one.flipped, other.flipped)
    assert np.array_equal(one.colour, other.colour)
    assert np.array_equal(one.boxes, coloured.boxes)
    assert np.array_equal(one.colour[2:], coloured.colour[2:])
    assert np.array_equal(one.colour[:2], identity(2))
    assert not np.array_equal(coloured.colour[:2], identity(2))


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "fast"])
@pytest.mark.parametrize("size", [(1, 700), (500, 1), (1, 1), (3, 2), (15, 11), (20, 2000), (333, 250)])
def test_pictures_of_every_size_give_full_views(size: tuple[int, int], interpolation: str) -> None:
    config = ViewsConfig(global_size=(32, 24), local_size=(16, 12), interpolation=interpolation)
    views = make_views(np.full((*size, 3), (10, 100, 200), np.uint8), rng(2), config)

    assert views.global_views.shape == (2, 3, 32, 24)
    assert views.local_views.shape == (4, 3, 16, 12)
    assert views.global_views.dtype == views.local_views.dtype == torch.uint8
    assert (views.global_views == torch.tensor([10, 100, 200]).reshape(1, 3, 1, 1)).all()
    reach = views.boxes[:, :2] + views.boxes[:, 2:]
    assert (views.boxes[:, :2] >= 0).all()
    assert (views.boxes[:, 2:] >= 1).all()
    assert (reach <= torch.tensor(size[::-1])).all()


@pytest.mark.parametrize("size", [(20, 17), (90, 120), (400, 300)])
def test_views_show_their_boxes_mirrored_where_they_say_so(size: tuple[int, int]) -> None:
    pixels = picture(*size)
    views = make_views(pixels, rng(4), SMALL.model_copy(update={"colour": PLAIN}))

    assert views.flipped.any()
    assert not views.flipped.all()
    for view, box, flipped in zip([*views.global_views, *views.local_views], views.boxes, views.flipped, strict=True):
        left, top, wide, high = box.tolist()
        crop = Image.fromarray(pixels[top : top + high, left : left + wide])
        wanted = np.asarray(crop.resize(tuple(view.shape[:0:-1]), Image.Resampling.BICUBIC)).astype(int)
        shown = view.numpy().transpose(1, 2, 0).astype(int)
        assert np.abs(shown[:, ::-1] - wanted if flipped else shown - wanted).max() <= 2


@pytest.mark.parametrize("factor", [0.2, 0.35, 0.7, 2.3])
def test_resizing_is_pillows_and_the_fast_way_is_near(factor: float) -> None:
    pixels = picture(300, 220)
    size = (round(300 * factor), round(220 * factor))

    def distance(interpolation: str, filter_: Image.Resampling) -> np.ndarray:
        wanted = np.asarray(Image.fromarray(pixels).resize(size[::-1], filter_)).transpose(2, 0, 1).astype(int)
        return np.abs(resize(pixels, size, interpolation).numpy().astype(int) - wanted)  # type: ignore[arg-type]

    assert distance("bicubic", Image.Resampling.BICUBIC).max() <= 2
    assert distance("bicubic", Image.Resampling.BICUBIC).mean() < 0.02
    assert distance("bilinear", Image.Resampling.BILINEAR).max() <= 2
    assert distance("fast", Image.Resampling.BICUBIC).mean() < 6


def test_detail_too_fine_for_a_view_is_averaged_and_does_not_alias() -> None:
    stripes = np.zeros((240, 240, 3), np.uint8)
    stripes[:, ::2] = 255

    smooth = resize(stripes, (160, 160), "bicubic").float()
    aliased = resize(stripes, (160, 160), "fast").float()

    assert smooth[:, 4:-4, 4:-4].std() < 25
    assert aliased[:, 4:-4, 4:-4].std() > 60


def test_colours_of_global_views_are_those_of_the_picture() -> None:
    pixels = picture(200, 150)
    strong = ColourConfig(jitter_probability=1, blur_probability=1, grayscale_probability=1)
    with_colour = make_views(pixels, rng(5), SMALL.model_copy(update={"colour": strong}))
    without = make_views(pixels, rng(5), SMALL.model_copy(update={"colour": PLAIN}))
    everywhere = make_views(pixels, rng(5), SMALL.model_copy(update={"colour": strong, "colour_on_globals": True}))

    assert torch.equal(with_colour.global_views, without.global_views)
    for views in (with_colour.local_views, everywhere.global_views):
        assert (views[:, 0] == views[:, 1]).all()  # grey
        assert (views[:, 0] == views[:, 2]).all()
    assert torch.equal(with_colour.local_views, everywhere.local_views)
    assert (without.global_views[:, 0] != without.global_views[:, 1]).any()


@pytest.mark.parametrize("colour_on_globals", [False, True])
def test_colours_applied_on_the_device_are_those_of_the_workers(colour_on_globals: bool) -> None:
    worker = SMALL.model_copy(update={"colour_on_globals": colour_on_globals})
    device = worker.model_copy(update={"apply_colour": "device"})

    def batch(config: ViewsConfig) -> list[Sample]:
        pixels = picture(120, 90)
        keep = np.zeros((2, 1), np.int64)
        return [Sample(i, i, str(i), make_views(pixels, rng(i), config), keep) for i in range(4)]

    early, late = collate(batch(worker)), collate(batch(device))

    assert early.colour is None
    assert late.colour is not None
    assert not torch.equal(late.local_views, early.local_views)
    finished = finish_on_device(late, device)
    assert finished.colour is None
    assert torch.equal(finished.local_views, early.local_views)
    assert torch.equal(finished.global_views, early.global_views)
    assert finish_on_device(early, worker) is early
    # The way that an accelerator takes, on whole batches.
    images = late.local_views.flatten(0, 1).float() / 255
    whole = apply_colour(images, late.colour[:, 2:].flatten(0, 1), one_by_one=False)
    assert ((whole * 255).round() - early.local_views.flatten(0, 1).float()).abs().max() <= 1


def test_the_same_key_gives_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    pixels = picture(150, 210)
    here = [digest(make_views(pixels, rng(key), SMALL)) for key in (0, 0, 1)]
    assert here[0] == here[1] != here[2]

    np.save(tmp_path / "picture.npy", pixels)
    program = (
        "import sys, hashlib, numpy as np, torch; torch.set_num_threads(1)\n"
        "from training.data.views import ViewsConfig, make_views\n"
        "config = ViewsConfig(global_size=(32, 24), local_size=(16, 12), fallback='centre')\n"
        "rng = np.random.Generator(np.random.Philox(key=0)); np.random.seed(5); torch.manual_seed(6)\n"
        "views = make_views(np.load(sys.argv[1]), rng, config)\n"
        "tensors = [value for value in vars(views).values() if value is not None]\n"
        "print(hashlib.sha256(b''.join(t.contiguous().numpy().tobytes() for t in tensors)).hexdigest())\n"
    )
    there = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "picture.npy")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(__file__).parents[3],
    )
    assert there.stdout.strip() == here[0]


def test_without_local_views() -> None:
    for where in ("workers", "device"):
        config = SMALL.model_copy(update={"local_count": 0, "apply_colour": where})
        views = make_views(picture(50, 40), rng(0), config)
        assert views.local_views.shape == (0, 3, 16, 12)
        assert views.boxes.shape == (2, 4)
        batch = finish_on_device(collate([Sample(0, 0, "0", views, np.zeros((2, 1), np.int64))]), config)
        assert batch.colour is None


def test_the_picture_is_left_as_it_is() -> None:
    pixels = picture(50, 40)
    before = pixels.copy()
    make_views(pixels, rng(0), SMALL)

    assert np.array_equal(pixels, before)


def test_wrong_arguments_are_explained() -> None:
    with pytest.raises(ValueError, match="0 x 5 pixels: both sides must be 1 or more"):
        draw_views(rng(0), (0, 5), SMALL)
    for wrong in (np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3), np.float32), np.zeros((4, 4, 4), np.uint8)):
        with pytest.raises(ValueError, match=r"give uint8 \[height, width, 3\]"):
            apply_views(wrong, draw_views(rng(0), (4, 4), SMALL), SMALL)
    drawn = draw_views(rng(0), (400, 400), SMALL)
    with pytest.raises(ValueError, match="reaches out of the picture of 100 x 100"):
        apply_views(picture(100, 100), drawn, SMALL)
    outside = ViewParameters(drawn.boxes - 500, drawn.flipped, drawn.colour)
    with pytest.raises(ValueError, match="reaches out of the picture"):
        apply_views(picture(400, 400), outside, SMALL)


def test_the_defaults_divide_into_tokens_and_others_are_explained() -> None:
    ViewsConfig().check_stride(16)
    with pytest.raises(ValueError, match=r"local_size is \(448, 336\).*multiples of 32, for example \(448, 320\)"):
        ViewsConfig().check_stride(32)
    ViewsConfig(local_count=0).check_stride(32)
    with pytest.raises(ValueError, match=r"global_size is \(100, 96\).*for example \(96, 96\)"):
        ViewsConfig(global_size=(100, 96)).check_stride(16)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"global_size": (0, 5)}, "give \\(height, width\\)"),
        ({"local_size": (4, 40)}, "too small for a blur kernel"),
        ({"global_size": (4, 4), "colour_on_globals": True}, "global_size is .* too small for a blur kernel"),
        ({"global_scale": (0.7, 0.5)}, "0 < low <= high <= 1"),
        ({"local_scale": (0.2, 1.5)}, "0 < low <= high <= 1"),
        ({"aspect": (2.0, 1.0)}, "aspect is"),
        ({"global_count": 0}, "greater than or equal to 1"),
        ({"crops": 3}, "Extra inputs"),
    ],
)
def test_configurations_that_cannot_work_are_refused(settings_: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ViewsConfig(**settings_)  # type: ignore[arg-type]
