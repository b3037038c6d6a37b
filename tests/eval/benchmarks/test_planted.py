"""The planted families: the same seed gives the same bytes, copies show the original, strangers do not."""

from __future__ import annotations

import io
import random
from functools import cache

import numpy as np
import pytest
from PIL import Image

from eval.benchmarks import planted
from eval.benchmarks.bench_duplicate_quality import BORDERED
from eval.benchmarks.planted import COPIES, FRAMES, KINDS, STRANGERS, Family, make_family
from pipeline.demo.outlines import OUTLINES


@cache
def family() -> Family:
    return make_family(0, 1)


def grey(kind: str, size: tuple[int, int] = (24, 24)) -> np.ndarray:
    with Image.open(io.BytesIO(family().files[kind])) as opened:
        return np.asarray(opened.convert("L").resize(size, Image.Resampling.BOX), float)


def correlation(kind: str, mirrored: bool = False) -> float:
    first, second = grey("original"), grey(kind)
    return float(np.corrcoef(first.ravel(), second[:, ::-1].ravel() if mirrored else second.ravel())[0, 1])


def test_the_same_seed_gives_the_same_bytes_and_other_seeds_others() -> None:
    assert make_family(0, 1) == family()
    alone = make_family(0, 1, relatives=False)
    assert alone.files == {"original": family().files["original"]}
    assert make_family(1, 1, relatives=False).files != alone.files
    assert make_family(0, 2, relatives=False).files != alone.files


def test_a_family_has_every_kind() -> None:
    assert tuple(family().files) == KINDS
    assert len(set(family().files.values())) == len(KINDS)
    assert {*COPIES, *FRAMES, *STRANGERS} == set(KINDS) - {"original"}


def test_copies_and_frames_show_the_original_and_strangers_another_picture() -> None:
    for kind in (*COPIES, *FRAMES):
        if kind in BORDERED:
            continue  # the original is inside of a border
        turned = kind.startswith("mirrored")
        assert correlation(kind, turned) > (0.6 if kind == "much text" else 0.8), kind
        if turned:
            assert correlation(kind) < 0.6
    for kind in STRANGERS:
        assert correlation(kind) < 0.8, kind


def test_sizes_are_what_the_kinds_say() -> None:
    def size(kind: str) -> np.ndarray:
        with Image.open(io.BytesIO(family().files[kind])) as opened:
            return np.array(opened.size)

    whole = size("original")
    assert size("half size") == pytest.approx(whole / 2, abs=1)
    assert size("quarter size") == pytest.approx(whole / 4, abs=1)
    for share in (1, 2.5, 5):
        assert size(f"cropped by {share} %") == pytest.approx(whole * (1 - share / 100), abs=2)
    for kind in ("mirrored", *FRAMES, *STRANGERS, "caption", "PNG"):
        assert (size(kind) == whole).all()


def test_strangers_are_other_persons_in_the_same_place() -> None:
    for seed in range(4):
        rng = random.Random(seed)
        take = planted.new_take(rng)
        for other in (planted.other_person(rng, take), planted.other_person_on_the_spot(rng, take)):
            assert OUTLINES[other.person].photograph != OUTLINES[take.person].photograph
            assert other.background is take.background
        # The last of them stands where the first did: the heads are as wide, at the same place.
        assert other.faces == (take.faces[0],)
        face, (left, _, right, _) = OUTLINES[other.person].faces[0], take.faces[0]
        scale = other.cut_out.width / (OUTLINES[other.person].box[2] - OUTLINES[other.person].box[0])
        assert (face[2] - face[0]) * scale == pytest.approx(right - left, rel=0.02)
        middle = other.left + scale * ((face[0] + face[2]) / 2 - OUTLINES[other.person].box[0])
        assert middle == pytest.approx((left + right) / 2, abs=2)
        assert planted.other_pose(rng, take).person == take.person


def test_the_next_frame_moves_by_at_most_the_margin() -> None:
    rng = random.Random(3)
    take = planted.new_take(rng)
    still = np.asarray(take.draw(), float)
    for _ in range(5):
        frame = np.asarray(planted.next_frame(rng, take), float)
        assert frame.shape == still.shape
        assert 1 < np.abs(frame - still).mean() < 60
        # No edge is filled in: the outermost columns and rows are picture, as varied as those of the original.
        for edge, old in ((frame[:, 0], still[:, 0]), (frame[:, -1], still[:, -1]), (frame[0], still[0])):
            assert edge.std() > 0.3 * old.std()
