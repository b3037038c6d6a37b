"""Values that change over a run, each a pure function of the step: learning rate, temperature, momentum.

A step is 0-based, and a schedule gives the value that is used AT it. Where a schedule of n steps ends, its end value is
reached at step n, the first one after it, and kept: a warm-up of 1,000 iterations has its end value at step 1,000, and
the last step of a run is still a step with a learning rate above the final one.
"""

from __future__ import annotations

import math


def warmup_cosine(step: int, *, peak: float, final: float, warmup: int, total: int, start: float = 0.0) -> float:
    """A linear rise, then half a cosine down: the learning rate of the recipe.

    With s the step, w the warm-up and T the total::

        s < w        start + (peak - start) * s / w
        w <= s < T   final + (peak - final) * (1 + cos(pi * (s - w) / (T - w))) / 2
        s >= T       final

    The Sapiens2 paper (A.1.1) warms up for 1,000 of 500,000 iterations to 1e-4 and decays to 1e-7.

    Args:
        step: 0 or more.
        peak: the value at step `warmup`.
        final: the value from step `total` on.
        warmup: steps of the rise, 0 = none, at most `total`.
        total: steps of the whole run, 1 or more.
        start: the value at step 0, if there is a warm-up.

    Raises:
        ValueError: a negative step, or lengths that do not fit together.
    """
    _check_step(step)
    if not 0 <= warmup <= total or total < 1:
        raise ValueError(
            f"a warm-up of {warmup} steps in a run of {total}: give a run of at least 1 step and a warm-up of 0 up to "
            "the length of the run"
        )
    if step < warmup:
        return linear(step, start, peak, warmup)
    if step >= total:
        return final
    return cosine(step - warmup, peak, final, total - warmup)


def linear(step: int, start: float, end: float, steps: int) -> float:
    """A straight line: start + (end - start) * min(step / steps, 1).

    Args:
        step: 0 or more.
        start: the value at step 0 (of a schedule that has steps).
        end: the value from step `steps` on.
        steps: length, 0 or more; 0 = `end` from the beginning.

    Raises:
        ValueError: a negative step or length.
    """
    return start + (end - start) * _progress(step, steps)


def cosine(step: int, start: float, end: float, steps: int) -> float:
    """Half a cosine, flat at both ends: end + (start - end) * (1 + cos(pi * min(step / steps, 1))) / 2.

    Args:
        step: 0 or more.
        start: the value at step 0 (of a schedule that has steps).
        end: the value from step `steps` on, exactly.
        steps: length, 0 or more; 0 = `end` from the beginning.

    Raises:
        ValueError: a negative step or length.
    """
    return end + (start - end) * (1.0 + math.cos(math.pi * _progress(step, steps))) / 2.0


def _progress(step: int, steps: int) -> float:
    """The share of a schedule that lies behind a step, 0 to 1."""
    _check_step(step)
    if steps < 0:
        raise ValueError(f"a schedule of {steps} steps: give 0 (its end value from the beginning) or more")
    return 1.0 if step >= steps else step / steps


def _check_step(step: int) -> None:
    if step < 0:
        raise ValueError(f"step is {step}; steps count from 0")
