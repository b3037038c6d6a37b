from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.metrics.sums import Sums

numbers = st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), max_size=20)


@given(numbers, numbers)
def test_totals_are_exact_and_do_not_depend_on_the_split(first: list[float], second: list[float]) -> None:
    parts = []
    for values in (first, second):
        sums = Sums(["x", "n"])
        for value in values:
            sums.add("x", value)
            sums.add("n", 1)
        parts.append(sums)
    parts[0].merge(parts[1])
    exact = sum(map(Fraction, first + second), Fraction(0))
    assert parts[0].value("x") == float(exact)
    count = len(first + second)
    if count:
        assert parts[0].mean("x", "n") == float(exact / count)
    else:
        assert math.isnan(parts[0].mean("x", "n"))
    again = Sums(["x", "n"])
    again.load(json.loads(json.dumps(parts[0].state().tolist())))
    assert np.array_equal(again.state(), parts[0].state())


def test_the_smallest_and_largest_numbers_survive() -> None:
    sums = Sums(["x"])
    for value in (1.7e308, 5e-324, -1.7e308):
        sums.add("x", value)
    assert sums.value("x") == 5e-324


def test_what_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="angle of a picture is nan"):
        Sums(["angle"]).add("angle", math.nan)
    with pytest.raises(ValueError, match="2 totals for 1 names"):
        Sums(["angle"]).load(["0", "0"])
