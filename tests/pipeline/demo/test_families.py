from __future__ import annotations

import random
from dataclasses import replace

from pipeline.demo.families import APART, acceptable_labels, conflicts, distances
from pipeline.demo.make import Made
from pipeline.demo.plan import Order
from pipeline.demo.truth import KEPT

BASE = 0x0F0F0F0F0F0F0F0F


def made(value: int | None) -> Made:
    return Made(b"", "jpg", "", "", (), value, True)


def test_distances_are_those_of_a_bit_count() -> None:
    rng = random.Random(0)
    hashes = [0, 2**64 - 1, *(rng.getrandbits(64) for _ in range(40))]
    assert distances(hashes).tolist() == [[(a ^ b).bit_count() for b in hashes] for a in hashes]


def test_the_later_of_two_alike_families_is_made_again() -> None:
    orders = [Order(0, "person", 0), Order(1, "person", 1), Order(2, "framed", 0), Order(3, "blurred", 0)]
    apart = (1 << (APART + 1)) - 1
    hashes = {0: BASE, 1: BASE ^ 0b1, 2: BASE ^ (apart << 20), 3: None}
    results = {index: made(value) for index, value in hashes.items()}
    assert conflicts(orders, results) == [orders[1]]
    # A picture that is made again does not keep others out.
    results[2] = made(BASE ^ 0b1 ^ ((apart >> 1) << 20))
    assert conflicts(orders, results) == [orders[1]]


def test_variants_near_the_radius_may_be_kept() -> None:
    orders = [
        Order(0, "person", 0),
        Order(1, "resized", 0, 0),
        Order(2, "recoloured", 0, 0),
        Order(3, "mirrored", 0, 0),
    ]
    far = BASE ^ (2**30 - 1)
    results = {0: made(BASE), 1: made(BASE ^ 0b11), 2: made(BASE ^ 0b1), 3: made(far)}
    assert acceptable_labels(orders, results) == {0: (), 1: (), 2: (), 3: ()}
    results[2] = made(BASE ^ 0b111000)
    assert acceptable_labels(orders, results) == {0: (), 1: (KEPT,), 2: (KEPT,), 3: ()}


def test_a_new_picture_that_resembles_its_origin_may_be_a_duplicate() -> None:
    orders = [Order(0, "person", 0), Order(1, "mirrored", 0, 0), Order(2, "person", 1)]
    results = {0: made(BASE), 1: made(BASE ^ 0b1), 2: made(2**64 - 1)}
    assert acceptable_labels(orders, results) == {0: ("near_duplicate",), 1: ("near_duplicate",), 2: ()}
    results[1] = replace(results[1], phash=None)
    assert acceptable_labels(orders, results)[0] == ()
