"""Text overlays on photographs are found with about their true area; photographs without text have none."""

from __future__ import annotations

import logging
import resource
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pydantic import ValidationError

from curation.records import Batch
from curation.scorers.base import BatchRunner, ResourceConfig
from curation.scorers.text_overlay import (
    TextOverlayConfig,
    TextOverlayScorer,
    covered_share,
    detector_file,
    preprocess,
)

data = pytest.importorskip("skimage.data")
matplotlib = pytest.importorskip("matplotlib")

Picture = npt.NDArray[np.uint8]


@pytest.fixture(scope="module")
def scorer() -> TextOverlayScorer:
    scorer = TextOverlayScorer(TextOverlayConfig())
    scorer.setup()
    return scorer


def photographs() -> list[Picture]:
    return [data.astronaut(), data.chelsea(), data.coffee(), data.rocket()]


def overlay(
    picture: Picture, lines: list[str], height: float, font: str = "DejaVuSans-Bold.ttf"
) -> tuple[Picture, float]:
    """White letters with a black outline; and the share of the letters' bounding boxes."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.fromarray(picture)
    draw = ImageDraw.Draw(image)
    size = int(height * picture.shape[0])
    letters = ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / font), size)
    covered = np.zeros(picture.shape[:2], bool)
    y = 10
    for line in lines:
        while draw.textlength(line, letters) > picture.shape[1] - 20:
            line = line[:-1]
        draw.text((10, y), line, font=letters, fill="white", stroke_width=max(1, size // 14), stroke_fill="black")
        left, top, right, bottom = draw.textbbox((10, y), line, letters, stroke_width=max(1, size // 14))
        covered[max(0, int(top)) : int(bottom) + 1, max(0, int(left)) : int(right) + 1] = True
        y += int(size * 1.4)
    return np.asarray(image), float(covered.mean())


def score(scorer: TextOverlayScorer, pictures: list[Picture]) -> dict[str, Any]:
    return dict(scorer.score(Batch([str(k) for k in range(len(pictures))], pictures, {})))


def test_photographs_without_text_have_none(scorer: TextOverlayScorer) -> None:
    textures = [np.repeat(picture[..., None], 3, axis=2) for picture in (data.brick(), data.grass())]
    flat = np.full((300, 400, 3), 90, np.uint8)
    pictures = [data.chelsea(), data.coffee(), data.rocket(), *textures, flat]
    assert score(scorer, pictures) == {"text_share": [0.0] * 6, "text_boxes": [0] * 6}


def test_text_in_the_scene_counts_as_text(scorer: TextOverlayScorer) -> None:
    """The astronaut's suit has a lettered mission patch."""
    result = score(scorer, [data.astronaut()])
    assert 0 < result["text_share"][0] < 0.01


@pytest.mark.parametrize("height", [0.05, 0.08, 0.15])
def test_an_overlay_is_found_with_its_area(scorer: TextOverlayScorer, height: float) -> None:
    lines = ["Breaking news today", "SALE 50% OFF"]
    made = [overlay(picture, lines, height) for picture in photographs()]
    result = score(scorer, [picture for picture, _ in made])
    ratios = np.array(result["text_share"]) / [share for _, share in made]
    assert ratios.min() > 0.7
    assert ratios.max() < 1.3
    assert abs(np.median(ratios) - 1) < 0.2
    assert min(result["text_boxes"]) >= 2


def test_more_lines_cover_more(scorer: TextOverlayScorer) -> None:
    made = [overlay(data.chelsea(), ["every monday morning"] * count, 0.08)[0] for count in (1, 3, 5)]
    shares = score(scorer, made)["text_share"]
    assert shares[0] < shares[1] < shares[2]
    assert shares[2] > 3 * shares[0]


def test_a_page_of_text_is_mostly_text(scorer: TextOverlayScorer) -> None:
    page = np.repeat(data.page()[..., None], 3, axis=2)
    result = score(scorer, [page])
    assert result["text_share"][0] > 0.3
    assert result["text_boxes"][0] >= 5


def test_a_box_as_high_as_the_picture_is_no_line_of_text() -> None:
    """The cup of coffee is one large box for the network; the limit on a line's height removes it."""
    tall = TextOverlayScorer(TextOverlayConfig(max_line_height=1, box_threshold=0.5))
    tall.setup()
    assert score(tall, [data.coffee()])["text_share"][0] > 0.5


def test_a_picture_does_not_depend_on_its_batch_or_on_threads(scorer: TextOverlayScorer) -> None:
    pictures = [overlay(picture, ["one line of text"], 0.06)[0] for picture in photographs()]
    pictures.append(np.ascontiguousarray(pictures[0].transpose(1, 0, 2)))
    expected = score(scorer, pictures)
    alone = [score(scorer, [picture]) for picture in pictures]
    assert [row["text_share"][0] for row in alone] == expected["text_share"]
    for cpus, size in ((1, 2), (2, 5)):
        config = TextOverlayConfig(batch_size=size, resources=ResourceConfig(num_cpus=cpus))
        columns, errors = BatchRunner(TextOverlayScorer(config))(Batch(list("abcde"), pictures, {}))
        assert errors == {}
        assert columns == expected


@pytest.mark.parametrize("shape", [(1, 1), (1, 3000), (3000, 1), (31, 33), (480, 480), (20, 2000)])
def test_any_size_of_picture_is_measured(scorer: TextOverlayScorer, shape: tuple[int, int]) -> None:
    result = score(scorer, [np.full((*shape, 3), 128, np.uint8)])
    assert 0 <= result["text_share"][0] <= 1


def test_the_input_is_padded_to_multiples_of_32_and_scaled() -> None:
    picture = np.zeros((100, 200, 3), np.uint8)
    picture[..., 0] = 255  # red
    image, height, width = preprocess(picture, 480)
    assert (image.shape, height, width) == ((1, 3, 128, 224), 100, 200)
    assert image[0, :, 50, 100].tolist() == [-1, -1, 1]  # blue, green, red
    assert not image[0, :, 100:].any()
    assert not image[0, :, :, 200:].any()
    assert preprocess(np.zeros((1000, 500, 3), np.uint8), 480)[0].shape == (1, 3, 480, 256)


def test_overlapping_boxes_are_counted_once() -> None:
    square = np.array([[0, 0], [9, 0], [9, 9], [0, 9]], np.int32)
    assert covered_share(square[None], 20, 20) == 0.25
    assert covered_share(np.stack([square, square]), 20, 20) == 0.25
    assert covered_share(np.stack([square, square + np.array([5, 0], np.int32)]), 20, 20) == pytest.approx(150 / 400)
    assert covered_share(np.zeros((0, 4, 2), np.int32), 20, 20) == 0
    assert covered_share((square * 100)[None], 20, 20) == 1


def test_memory_stays_flat_over_many_shapes(scorer: TextOverlayScorer) -> None:
    random = np.random.default_rng(0)
    score(scorer, [np.zeros((480, 480, 3), np.uint8)])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(24):
        height, width = random.integers(40, 480, 2)
        score(scorer, [random.integers(0, 255, (height, width, 3), dtype=np.uint8)])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


def test_the_network_is_recorded_and_nothing_is_logged(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG):
        quiet = TextOverlayScorer(TextOverlayConfig())
        (weights,) = quiet.check()
        quiet.setup()
        score(quiet, [data.chelsea()])
    assert weights.name == "PP-OCRv6_det_small.onnx"
    assert weights.bytes == detector_file().stat().st_size
    assert not [record for record in caplog.records if "rapidocr" in record.name.lower()]
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_settings_are_checked() -> None:
    for wrong in ({"max_side": 500}, {"box_threshold": 0}, {"max_line_height": 1.5}):
        with pytest.raises(ValidationError):
            TextOverlayConfig(**wrong)
    assert TextOverlayConfig(device="cpu").identity() == TextOverlayConfig(device="auto").identity()


def test_cuda_without_its_runtime_is_explained() -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this machine has the CUDA runtime")
    with pytest.raises(ValueError, match="install onnxruntime-gpu"):
        TextOverlayScorer(TextOverlayConfig(device="cuda")).setup()
