"""Exact cosines, unit rows and groups of equal rows do not depend on what stands beside a row."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from curation import vectors as module
from curation.vectors import cosines, dot_slack, group_rows, row_keys, squares, to_matrix, unit_rows

small = hnp.arrays(
    st.sampled_from([np.float16, np.float32]),
    st.tuples(st.integers(0, 12), st.integers(1, 5)),
    elements=st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 3.0]),
)


def rows_of(seed: int, n: int, d: int, dtype: type = np.float16) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


def test_unit_rows_scale_and_tell_which_rows_have_no_direction() -> None:
    given_rows = np.array([[3, 4], [0, 0], [np.inf, 1], [np.nan, 0], [-0.0, 0], [6e-8, 0]], np.float16)
    unit, usable = unit_rows(given_rows)
    assert usable.tolist() == [True, False, False, False, False, True]
    assert unit.dtype == np.float32
    assert unit.tolist() == [
        [np.float32(0.6), np.float32(0.8)],
        [0, 0],
        [0, 0],
        [0, 0],
        [0, 0],
        [1, 0],
    ]


@pytest.mark.parametrize("scale", [1e-44, 1e-30, 1.0, 1e30, 3e38])
def test_unit_rows_take_any_finite_length(scale: float) -> None:
    unit, usable = unit_rows(np.array([[scale, 0], [0, -scale]], np.float32))
    assert usable.all()
    assert unit.tolist() == [[1, 0], [0, -1]]


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (1, 1)])
def test_unit_rows_of_odd_shapes(shape: tuple[int, int]) -> None:
    unit, usable = unit_rows(np.ones(shape, np.float16))
    assert unit.shape == shape
    assert usable.tolist() == [shape[1] > 0] * shape[0]


@pytest.mark.parametrize("bad", [np.ones((2, 2)), np.ones((2, 2), np.int8)])
def test_other_types_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(TypeError, match="float16 or float32"):
        unit_rows(bad)


def test_one_dimension_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(4,\)"):
        unit_rows(np.ones(4, np.float32))


def test_cosines_agree_with_exact_fractions() -> None:
    a, b = rows_of(0, 20, 37), rows_of(1, 20, 37)
    for got, left, right in zip(cosines(a, b), a.tolist(), b.tolist(), strict=True):
        dot = sum(Fraction(x) * Fraction(y) for x, y in zip(left, right, strict=True))
        product = sum(Fraction(x) ** 2 for x in left) * sum(Fraction(y) ** 2 for y in right)
        assert got == pytest.approx(float(dot) / float(product) ** 0.5, rel=1e-15, abs=1e-15)


def test_cosines_do_not_depend_on_the_block_or_the_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    for d in (1, 7, 129, 512):
        a, b = rows_of(2, 100, d), rows_of(3, 100, d)
        whole = cosines(a, b)
        assert np.array_equal(whole, cosines(b, a))
        assert np.array_equal(whole, cosines(np.asfortranarray(a), b[:, ::-1][:, ::-1]))
        assert np.array_equal(whole, cosines(a, b, squares(a), squares(b)))
        for step in (1, 3, 64):
            monkeypatch.setattr(module, "_CELLS", step * d)
            parts = [cosines(a[at : at + step], b[at : at + step]) for at in range(0, 100, step)]
            assert np.array_equal(whole, np.concatenate(parts))
            assert np.array_equal(whole, cosines(a, b))


def test_cosine_of_equal_and_opposite_rows_is_exactly_one() -> None:
    a = np.concatenate([rows_of(4, 500, 64), 100 * rows_of(5, 500, 64)]).astype(np.float16)
    assert (cosines(a, a) == 1).all()
    assert (cosines(a, -a) == -1).all()
    assert (cosines(a.astype(np.float32) * 1e30, a.astype(np.float32) * 1e30) == 1).all()


def test_cosine_of_a_row_without_direction_is_nan() -> None:
    a = np.array([[0, 0], [np.inf, 0], [np.nan, 1], [1, 1]], np.float16)
    b = np.ones((4, 2), np.float16)
    assert np.isnan(cosines(a, b)).tolist() == [True, True, True, False]
    assert np.isnan(cosines(b, a)).tolist() == [True, True, True, False]


def test_cosines_need_equal_shapes() -> None:
    with pytest.raises(ValueError, match="one shape"):
        cosines(np.ones((2, 3), np.float16), np.ones((3, 3), np.float16))


@pytest.mark.parametrize("d", [1, 3, 64, 512, 2048])
def test_dot_slack_bounds_the_error_of_a_float32_product(d: int) -> None:
    # Positive rows: errors of one sign add up.
    for rows in (rows_of(6, 40, d), np.abs(rows_of(7, 40, d)), np.ones((40, d), np.float16) * rows_of(8, 40, 1)):
        rows = rows[(rows != 0).any(axis=1)]
        unit, _ = unit_rows(rows)
        i, j = np.divmod(np.arange(len(rows) ** 2), len(rows))
        exact = cosines(rows[i], rows[j])
        assert np.abs((unit @ unit.T).ravel() - exact).max() <= dot_slack(d)
        # One term after another, the worst order.
        total = np.zeros((len(unit), len(unit)), np.float32)
        for column in unit.T:
            total += column[:, None] * column[None, :]
        assert np.abs(total.ravel() - exact).max() <= dot_slack(d)


def test_dot_slack_stays_far_below_what_thresholds_are_about() -> None:
    assert dot_slack(512) < 1e-4
    assert dot_slack(4096) < 1e-3


@settings(max_examples=80, deadline=None)
@given(small, st.randoms(use_true_random=False))
def test_groups_are_the_equal_rows_whatever_their_order(rows: np.ndarray, random) -> None:
    groups = group_rows(rows)
    members = np.split(groups.rows, groups.starts[1:])[: len(groups.starts)]
    by_value: dict[tuple, list[int]] = {}
    for index, row in enumerate(rows.tolist()):
        by_value.setdefault(tuple(value + 0.0 for value in row), []).append(index)
    assert sorted(group.tolist() for group in members) == sorted(by_value.values())
    assert groups.counts.tolist() == [len(group) for group in members]
    assert groups.first.tolist() == [min(group) for group in members]
    order = list(range(len(rows)))
    random.shuffle(order)
    shuffled = group_rows(rows[order])
    assert (rows[order][shuffled.first] == rows[groups.first]).all()


def test_rows_whose_keys_collide_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(9).integers(0, 3, (300, 3)).astype(np.float16)
    expected = {tuple(row) for row in rows.tolist()}
    monkeypatch.setattr(module, "row_keys", lambda v, seed=0: (v[:, 0] > 1).astype(np.uint64))
    groups = group_rows(rows)
    assert len(groups.starts) == len(expected) == 27
    assert {tuple(row) for row in rows[groups.first].tolist()} == expected
    assert groups.counts.sum() == 300
    for start, count in zip(groups.starts, groups.counts, strict=True):
        members = groups.rows[start : start + count]
        assert (rows[members] == rows[members[0]]).all()
        assert (np.diff(members) > 0).all()
    order = np.random.default_rng(1).permutation(300)
    assert (rows[order][group_rows(rows[order]).first] == rows[groups.first]).all()


def test_keys_depend_on_values_and_seed_only() -> None:
    rows = rows_of(10, 1000, 16)
    keys = row_keys(rows)
    assert len(np.unique(keys)) == 1000
    assert np.array_equal(row_keys(rows[::-1]), keys[::-1])
    assert (row_keys(rows, 1) != keys).all()
    signed = np.array([[0.0, 1], [-0.0, 1], [0, -1]], np.float32)
    first, second, third = row_keys(signed).tolist()
    assert first == second != third
    # A sign flipped here and there must not cancel.
    corners = (1 - 2 * ((np.arange(4096)[:, None] >> np.arange(12)) & 1)).astype(np.float16)
    assert len(np.unique(row_keys(corners))) == 4096
    assert abs((row_keys(corners) < 2**63).mean() - 0.5) < 0.05


def column(rows: list, kind: pa.DataType | None = None) -> pa.Array:
    plain = [None if row is None else [None if value is None else np.float16(value) for value in row] for row in rows]
    return pa.array(plain, kind or pa.list_(pa.float16()))


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float16()), pa.large_list(pa.float16()), pa.list_(pa.float16(), 2)], ids=str
)
def test_to_matrix_reads_every_kind_of_list(kind: pa.DataType) -> None:
    array = column([[1, 2], None, [3, 4], None], kind)
    for given_column in (array, pa.chunked_array([array.slice(0, 1), array.slice(1, 1), array.slice(2)])):
        matrix, present = to_matrix(given_column)
        assert matrix.dtype == np.float16
        assert matrix.tolist() == [[1, 2], [0, 0], [3, 4], [0, 0]]
        assert present.tolist() == [True, False, True, False]
    matrix, present = to_matrix(array.slice(1, 2))
    assert matrix.tolist() == [[0, 0], [3, 4]]
    assert present.tolist() == [False, True]


@pytest.mark.parametrize("rows", [[], [None, None]])
def test_to_matrix_without_any_embedding(rows: list) -> None:
    for given_column in (column(rows), pa.chunked_array([column(rows)]), pa.nulls(len(rows))):
        matrix, present = to_matrix(given_column)
        assert matrix.shape == (len(rows), 0)
        assert present.tolist() == [False] * len(rows)
    assert to_matrix(pa.chunked_array([], pa.list_(pa.float16())))[0].shape == (0, 0)


def test_to_matrix_names_the_row_of_another_length() -> None:
    with pytest.raises(ValueError, match=r"row 2 .* has 3 values, the first row has 2"):
        to_matrix(pa.chunked_array([column([[1, 2], None]), column([[1, 2, 3]])]))
    with pytest.raises(ValueError, match="has 0 values"):
        to_matrix(column([[]]))
    with pytest.raises(ValueError, match="null"):
        to_matrix(column([[1, None]]))


@pytest.mark.parametrize("bad", [pa.array([1.0]), pa.array([[1.0]]), pa.array(["x"])])
def test_to_matrix_refuses_other_types(bad: pa.Array) -> None:
    with pytest.raises(TypeError, match="float16"):
        to_matrix(bad)
