"""Which pictures of the pool a perceptual hash takes for one another, by the hash of the reference implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from curation.reasons import Reason
from pipeline.demo.make import Made
from pipeline.demo.plan import KINDS, RADIUS, Order
from pipeline.demo.truth import KEPT

APART = RADIUS + 6
"""Different families differ by more bits than this, so that another decoder's hash does not join them."""

CERTAIN = RADIUS - 2
"""Up to this distance from every relative, a variant is a near duplicate whichever of them survives, and although the
pipeline hashes a picture that was reduced in another way: on the demo pool the two hashes are equal for 74 % of the
pictures, and differ by 2 bits for another 24 %."""

POSSIBLE = RADIUS + 4
"""Up to this distance, another decoder's hash may see a near duplicate."""


def distances(hashes: Sequence[int]) -> npt.NDArray[np.int64]:
    """Hamming distances between all pairs of 64-bit hashes: int64 [n, n]."""
    values = np.array(hashes, dtype=np.uint64)
    signs = np.unpackbits(values.view(np.uint8).reshape(-1, 8), axis=1).astype(np.int64) * 2 - 1
    return (64 - signs @ signs.T) // 2


def conflicts(orders: Sequence[Order], made: Mapping[int, Made]) -> list[Order]:
    """Finished pictures that resemble an earlier one of another family (in the order of the plan)."""
    hashed = _hashed(orders, made)
    if not hashed:
        return []
    near = distances([_hash(made, order) for order in hashed]) <= APART
    groups = np.array([order.group for order in hashed])
    again: list[Order] = []
    settled = np.zeros(len(hashed), dtype=bool)
    for position, order in enumerate(hashed):
        if np.any(near[position] & settled & (groups != order.group)):
            again.append(order)
        else:
            settled[position] = True
    return again


def acceptable_labels(orders: Sequence[Order], made: Mapping[int, Made]) -> dict[int, tuple[str, ...]]:
    """Other labels that are as right, by index: those of the kind, and both of "kept" and "near_duplicate" where the
    distance is too close to the radius to say."""
    result = {order.index: KINDS[order.kind].acceptable for order in orders}
    hashed = _hashed(orders, made)
    distance = distances([_hash(made, order) for order in hashed])
    groups = np.array([order.group for order in hashed])
    for position, order in enumerate(hashed):
        family = groups == order.group
        expected = KINDS[order.kind].expected
        if expected == Reason.NEAR_DUPLICATE and distance[position][family].max() > CERTAIN:
            result[order.index] = (*result[order.index], KEPT)
        if expected == KEPT and np.any(distance[position][~family] <= POSSIBLE):
            result[order.index] = (*result[order.index], Reason.NEAR_DUPLICATE)
    return result


def _hashed(orders: Sequence[Order], made: Mapping[int, Made]) -> list[Order]:
    return [order for order in orders if order.index in made and made[order.index].phash is not None]


def _hash(made: Mapping[int, Made], order: Order) -> int:
    value = made[order.index].phash
    assert value is not None
    return value
