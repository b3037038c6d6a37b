"""Sums of floats without rounding, so that a metric does not depend on the order of pictures or the number of ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

# The smallest positive float64 is 2^-1074: every finite float is a whole number of these.
_UNIT = 1074


class Sums:
    """Named totals, kept as whole numbers of 2^-1074.

    Adding is associative and commutative to the last bit, which float addition is not; one addition takes about a
    microsecond, so add sums of pictures, not pixels.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._totals = dict.fromkeys(names, 0)

    def add(self, name: str, value: float) -> None:
        """Add a finite number.

        Raises:
            ValueError: it is not finite.
        """
        if not math.isfinite(value):
            raise ValueError(
                f"{name} of a picture is {value}; look for overflow or NaN in the prediction or the labels"
            )
        numerator, denominator = float(value).as_integer_ratio()
        self._totals[name] += numerator << (_UNIT - denominator.bit_length() + 1)

    def merge(self, other: Sums) -> None:
        """Add all totals of another with the same names."""
        for name, total in other._totals.items():
            self._totals[name] += total

    def value(self, name: str) -> float:
        """A total, rounded once."""
        return self._totals[name] / (1 << _UNIT)

    def mean(self, name: str, count: str) -> float:
        """A total over another, rounded once; NaN if the other is 0."""
        return self._totals[name] / self._totals[count] if self._totals[count] else math.nan

    def state(self) -> NDArray[np.str_]:
        """The totals in hexadecimal, in the order of the names."""
        return np.array([f"{total:x}" for total in self._totals.values()], dtype=np.str_)

    def load(self, state: Iterable[object]) -> None:
        """Take the totals that `state` gave.

        Raises:
            ValueError: not as many totals as names.
        """
        values = [int(str(total), 16) for total in state]
        if len(values) != len(self._totals):
            raise ValueError(f"{len(values)} totals for {len(self._totals)} names; the state is of another metric")
        self._totals = dict(zip(self._totals, values, strict=True))
