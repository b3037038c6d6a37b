"""Which corpus fills which place when several are mixed by weight: a fixed periodic pattern, exact in every prefix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]

LONGEST_PERIOD = 16_384
"""Places after which the pattern repeats, at most (our choice): shares are exact to 1 / 16,384 at least."""


def slot_counts(weights: Sequence[float]) -> list[int]:
    """Places of each corpus in one period of the pattern.

    Args:
        weights: positive, in any unit. Decimal fractions are taken as they are written: 0.1 is a tenth.

    Returns:
        Positive integers in the ratio of the weights, exactly where their sum is at most `LONGEST_PERIOD`; else with
        that sum, each within 1 of its share.

    Raises:
        ValueError: no weight, one that is not positive and finite, or one so small that it would get no place.
    """
    if not weights or not all(math.isfinite(weight) and weight > 0 for weight in weights):
        raise ValueError(f"weights are {list(weights)}: give positive, finite numbers, one for each corpus")
    exact = [Fraction(repr(float(weight))) for weight in weights]
    scale = math.lcm(*(weight.denominator for weight in exact))
    counts = [int(weight * scale) for weight in exact]
    divisor = math.gcd(*counts)
    counts = [count // divisor for count in counts]
    total = sum(counts)
    if total <= LONGEST_PERIOD:
        return counts
    floors = [count * LONGEST_PERIOD // total for count in counts]
    # Largest remainders; of equal ones the first.
    order = sorted(range(len(counts)), key=lambda one: (-(counts[one] * LONGEST_PERIOD % total), one))
    for one in order[: LONGEST_PERIOD - sum(floors)]:
        floors[one] += 1
    if min(floors) == 0:
        raise ValueError(
            f"weights are {list(weights)}: a corpus with less than 1/{LONGEST_PERIOD} of their sum would never be "
            "seen. Raise its weight or leave it out."
        )
    return floors


class Interleave:
    """Splits the endless positions among corpora.

    In the first n places, corpus k has n * share_k places, give or take less than 1, for every n: Tijdeman's solution
    of the chairman assignment problem (Discrete Mathematics 32, 1980), of the corpora that are due take the one whose
    deadline is nearest. 16 bytes are kept per place of the period.

    Args:
        weights: see `slot_counts`.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        self.counts = slot_counts(weights)
        self.period = sum(self.counts)
        self._corpus = _pattern(self.counts)
        self._rank = np.empty(self.period, np.int64)
        for corpus, count in enumerate(self.counts):
            self._rank[self._corpus == corpus] = np.arange(count)

    @property
    def shares(self) -> list[float]:
        """Share of each corpus; they add up to 1."""
        return [count / self.period for count in self.counts]

    def split(self, positions: Positions) -> tuple[npt.NDArray[np.int64], Positions]:
        """Corpus and place within that corpus's own endless order, int64 [n] each, for int64 [n] positions."""
        periods, slots = np.divmod(positions, self.period)
        corpora = self._corpus[slots]
        return corpora, periods * np.asarray(self.counts, np.int64)[corpora] + self._rank[slots]

    def before(self, position: int) -> list[int]:
        """How many of the first `position` places each corpus has."""
        periods, slots = divmod(position, self.period)
        inside = np.bincount(self._corpus[:slots], minlength=len(self.counts))
        return [periods * count + int(extra) for count, extra in zip(self.counts, inside, strict=True)]


def _pattern(counts: Sequence[int]) -> npt.NDArray[np.int64]:
    corpora, period = len(counts), sum(counts)
    if corpora == 1:
        return np.zeros(period, np.int64)
    pattern = np.empty(period, np.int64)
    # All of Tijdeman's inequality times 2 (K - 1) * period, in integers: no rounding, the same on every machine.
    unit = 2 * (corpora - 1)
    shares = [unit * count for count in counts]
    debts = [0] * corpora  # (n * share - places so far), scaled
    due, limit = period, (unit - 1) * period
    for place in range(period):
        best, deadline = -1, (0, 1)
        for corpus, share in enumerate(shares):
            debts[corpus] += share
            if debts[corpus] >= due:
                late = (limit - debts[corpus], share)
                if best < 0 or late[0] * deadline[1] < deadline[0] * late[1]:
                    best, deadline = corpus, late
        pattern[place] = best
        debts[best] -= unit * period
    return pattern
