"""Floors under the measured quality of duplicate search, on a small planted pool, and the counting itself."""

from __future__ import annotations

import io
from functools import cache

import numpy as np
import pytest
from rich.console import Console

from eval.benchmarks.bench_duplicate_quality import (
    MIRRORED,
    RADIUS,
    REENCODED,
    THRESHOLDS,
    Recall,
    false_merges,
    figures,
    recalls,
    table,
)
from eval.benchmarks.planted import KINDS, STRANGERS
from eval.benchmarks.planted_measured import Measured, measure


@cache
def small() -> Measured:
    return measure(2, seed=1)


@cache
def rows() -> dict[str, Recall]:
    return {row.kind: row for row in recalls(small())}


def test_copies_are_found_at_the_default_radius() -> None:
    assert tuple(rows()) == KINDS[1:]
    for kind in (*REENCODED, "half size", "quarter size", "recoloured"):
        assert rows()[kind].by_radius[RADIUS] == 1, kind
    for kind in ("cropped by 1 %", "caption", "half size, cropped by 1 %, JPEG 60"):
        assert rows()[kind].by_radius[8] == 1, kind


def test_mirrored_copies_are_found_with_the_switch_only() -> None:
    for kind in MIRRORED:
        assert rows()[kind].by_radius[8] == 0
        assert rows()[kind].by_radius_mirrored[RADIUS] == 1


def test_other_persons_in_the_same_place_are_not_merged() -> None:
    for kind in STRANGERS[:2]:
        assert rows()[kind].by_radius_mirrored[RADIUS] == 0
        assert rows()[kind].by_threshold[THRESHOLDS.index(0.98)] == 0


def test_different_originals_are_not_merged() -> None:
    found = [*false_merges(small()), *false_merges(measure(25, seed=1, relatives=False))]
    assert [figure.ours for figure in found] == [0] * 5
    assert all(figure.met for figure in found)
    assert "300 pairs" in found[-1].goal


def test_originals_are_the_same_with_and_without_relatives() -> None:
    alone = measure(2, seed=1, relatives=False)
    assert (alone.phash == small().phash[:, :1]).all()
    assert small().phash.shape == (2, len(KINDS))
    assert small().embedding.shape == (2, len(KINDS), 1280)


def test_the_embedding_finds_what_looks_the_same() -> None:
    assert rows()["PNG"].by_threshold == (1,) * len(THRESHOLDS)
    assert rows()["JPEG 90"].by_threshold[THRESHOLDS.index(0.98)] == 1
    for row in rows().values():
        assert list(row.by_threshold) == sorted(row.by_threshold, reverse=True)
        assert list(row.by_radius) == sorted(row.by_radius)
        assert all(low <= high for low, high in zip(row.by_radius, row.by_radius_mirrored, strict=True))
        assert row.either >= max(row.by_radius[RADIUS], row.by_threshold[THRESHOLDS.index(0.96)])


def test_shares_are_counted_exactly() -> None:
    # Copies 0, 3 and 5 bits away; the mirrored hash of the third is 1 bit away.
    phash = np.array([[0, 0], [0, 0b111], [0, 0b11111]], np.uint64)
    mirrored = np.array([[2**64 - 1, 2**64 - 1]] * 2 + [[2**64 - 1, 1]], np.uint64)
    vectors = np.array([[[1, 0], [1, 0]], [[1, 0], [0, 1]], [[1, 0], [0.955, 0.2966]]], np.float16)
    names = np.array(["a", "b", "c"])
    measured = Measured(("original", "copy"), names, names, phash, mirrored, np.ones((3, 2), bool), vectors)
    (row,) = recalls(measured)
    assert row.by_radius == pytest.approx((1 / 3, 1 / 3, 1 / 3, 2 / 3, 2 / 3, 1, 1, 1, 1))
    assert row.by_radius_mirrored == pytest.approx((1 / 3, 2 / 3, 2 / 3, 1, 1, 1, 1, 1, 1))
    at = dict(zip(THRESHOLDS, row.by_threshold, strict=True))
    assert (at[0.95], at[0.96]) == pytest.approx((2 / 3, 1 / 3))
    assert row.either == pytest.approx(2 / 3)
    hashes, mirrored_too, cosines = false_merges(measured)
    assert (hashes.ours, mirrored_too.ours, cosines.ours) == (3, 3, 3)
    assert not hashes.met
    assert not cosines.met


def test_the_table_and_the_figures_hold_every_kind() -> None:
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(table(list(rows().values())))
    text = console.export_text()
    assert all(kind in text for kind in KINDS[1:])
    names = " ".join(figure.name for figure in figures(small(), list(rows().values())))
    assert all(kind in names for kind in KINDS[1:])
