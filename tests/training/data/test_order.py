"""The order of samples is a bijection in every epoch, and a function of the place alone."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.data.order import SampleOrder

PINNED = [4, 5, 3, 8, 6, 7, 1, 2, 0]
FINGERPRINT = "a176af7309d619e6"

shard_lists = st.lists(st.integers(0, 7), min_size=1, max_size=12).filter(sum)


@given(shard_lists, st.integers(0, 2**64 - 1), st.integers(1, 5), st.integers(0, 10**9))
@settings(max_examples=30, deadline=None)
def test_every_sample_once_in_every_epoch(shards: list[int], seed: int, window: int, epoch: int) -> None:
    order, total = SampleOrder([shards], seed, window), sum(shards)
    rows, epochs = order.row(np.arange(epoch * total, (epoch + 2) * total))
    assert sorted(rows[:total]) == sorted(rows[total:]) == list(range(total))
    assert epochs.tolist() == [epoch] * total + [epoch + 1] * total


@given(shard_lists, st.lists(st.integers(0, 500), max_size=40), st.booleans())
@settings(max_examples=30, deadline=None)
def test_a_place_does_not_depend_on_how_it_is_asked_for(shards: list[int], places: list[int], mixed: bool) -> None:
    parts, weights = ([shards, [3, 2]], [1.0, 2.0]) if mixed else ([shards], None)
    rows, epochs = SampleOrder(parts, 5, 2, weights).row(np.arange(501))
    asked = SampleOrder(parts, 5, 2, weights)
    together = asked.row(np.array(places, np.int64))
    assert [one.tolist() for one in together] == [rows[places].tolist(), epochs[places].tolist()]
    for place in places:
        assert [one.tolist() for one in asked.row([place])] == [[rows[place]], [epochs[place]]]


def test_epochs_seeds_and_windows_differ() -> None:
    shards = [50] * 8
    order = SampleOrder([shards], 1, 2)
    rows, _ = order.row(np.arange(1200))
    orders = [rows[:400].tolist(), rows[400:800].tolist(), rows[800:].tolist()]
    orders.append(SampleOrder([shards], 2, 2).row(np.arange(400))[0].tolist())
    assert len({tuple(one) for one in orders}) == 4
    # Two windows of one epoch are not shuffled alike.
    inside = [np.argsort(rows[start : start + 100] % 50, kind="stable").tolist() for start in (0, 100)]
    assert inside[0] != inside[1]


def test_the_order_stays_what_it_was() -> None:
    """A run continues after an upgrade: these numbers may only change together with the name in the fingerprint."""
    assert SampleOrder([[3, 4, 2]], 7, 2).row(np.arange(9))[0].tolist() == PINNED
    assert SampleOrder([[3, 4, 2]], 7, 2).fingerprint == FINGERPRINT


def test_consecutive_places_touch_the_shards_of_one_window() -> None:
    shards, window = np.full(40, 100), 4
    order = SampleOrder([shards], 3, window)
    touched = order.row(np.arange(4000))[0] // 100
    for start in range(0, 4000, 400):
        assert len(set(touched[start : start + 400])) == window
        # Mixed: a batch of 64 comes from all of them.
        assert len(set(touched[start : start + 64])) == window
    # And the shards that are to be fetched are those.
    for place in (0, 399, 400, 3999):
        now, after = order.window_shards(place)
        start = place // 400 * 400
        assert set(now) == set(touched[start : start + 400])
        following = order.row(np.arange(start + 400, start + 800))[0] // 100
        assert set(after) == set(following)


def test_shuffling_is_even() -> None:
    """Each sample is as often in each place of its window as any other."""
    places = [SampleOrder([[4]], seed).row(np.arange(4))[0].tolist() for seed in range(2400)]
    counts = Counter(map(tuple, places))
    assert len(counts) == 24
    # Each of 24 orders 100 times; the 99.99 % point of chi-squared with 23 degrees of freedom is 55.
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 55


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=5), st.integers(0, 10**12))
@settings(max_examples=15, deadline=None)
def test_weights_hold_in_every_prefix(weights: list[float], start: int) -> None:
    parts = [[5, 3]] * len(weights)
    order = SampleOrder(parts, 2, 1, weights)
    shares = order.shares
    assert shares is not None
    np.testing.assert_allclose(shares, np.array(weights) / sum(weights), atol=1 / 16_384)
    rows, _ = order.row(np.arange(3000))
    taken = np.cumsum(rows[:, None] // 8 == np.arange(len(weights)), axis=0)
    assert np.abs(taken - np.arange(1, 3001)[:, None] * shares).max() < 1
    # Each corpus walks its own epochs, wherever one looks.
    rows, epochs = order.row(np.arange(start, start + 400))
    for corpus in range(len(weights)):
        of_corpus = epochs[rows // 8 == corpus]
        assert (np.diff(of_corpus) >= 0).all()
        whole = Counter(of_corpus.tolist())
        for epoch in sorted(whole)[1:-1]:
            seen = rows[(rows // 8 == corpus) & (epochs == epoch)]
            assert sorted(seen) == list(range(8 * corpus, 8 * corpus + 8))


def test_simple_weights_are_exact() -> None:
    rows, _ = SampleOrder([[10], [10], [10]], 0, 1, [0.5, 0.3, 0.2]).row(np.arange(10))
    assert Counter((rows // 10).tolist()) == {0: 5, 1: 3, 2: 2}


def test_substitutes_come_from_the_window_of_their_place() -> None:
    order = SampleOrder([[6] * 6], 4, 2)
    for place in (0, 11, 12, 35, 36 + 14):
        window = order.row(np.arange(place // 12 * 12, place // 12 * 12 + 12))[0]
        drawn = [order.substitute(place, attempt) for attempt in range(1, 60)]
        assert set(drawn) <= set(window.tolist())
        assert len(set(drawn)) > 6
        assert drawn == [SampleOrder([[6] * 6], 4, 2).substitute(place, attempt) for attempt in range(1, 60)]
    mixed = SampleOrder([[6], [6]], 4, 2, [1, 1])
    for place in range(8):
        row = int(mixed.row([place])[0][0])
        assert mixed.substitute(place, 1) // 6 == row // 6


def test_memory_does_not_grow_with_samples() -> None:
    """10**10 samples in one corpus: places are found, and only windows are held."""
    order = SampleOrder([np.full(100_000, 100_000)], 0, 1)
    rows, epochs = order.row([0, 10**10 - 1, 10**10, 5 * 10**10 + 3])
    assert epochs.tolist() == [0, 0, 1, 5]
    assert ((rows >= 0) & (rows < 10**10)).all()
    assert len(pickle.dumps(order)) < 25 * 100_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[]], 0), "no sample"),
        (([[0, 0]], 0), "no sample"),
        (([[1]], 0, 0), "shuffle_shards is 0"),
        (([[1], [2]], 0, 1, [1.0]), "1 weights for 2 corpora"),
        (([[1], [0]], 0, 1, [1.0, 1.0]), "corpus 1 has a weight and no sample"),
        (([[1], [1]], 0, 1, [1.0, -1.0]), "positive"),
        (([[1], [1]], 0, 1, [1.0, 1e-9]), "never be seen"),
        (([[-1]], 0), "0 or more"),
    ],
)
def test_what_makes_no_order_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SampleOrder(*arguments)


def test_negative_places_are_refused() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        SampleOrder([[1]], 0).row([-1])
