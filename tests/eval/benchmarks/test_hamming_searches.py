"""Planted pairs are found; other libraries find the same pairs, or are said to be missing."""

from __future__ import annotations

import numpy as np
import pytest

from curation.dedup import hamming_pairs, near_duplicates
from eval.benchmarks.apart import Watch
from eval.benchmarks.hamming_searches import PEERS, Peer, digest, inputs, our_pairs, our_survivors
from eval.benchmarks.hash_pools import KINDS, planted


def test_jobs_tell_what_was_found() -> None:
    watch = Watch()
    found = our_pairs(watch, "planted", 3000, 4)
    pairs = hamming_pairs(planted(3000), 4)
    assert (found.count, found.digest, found.missed) == (len(pairs), digest(pairs), 0)
    assert watch.seconds > 0
    # Planted copies differ by up to 4 bits: of a smaller radius they are not asked.
    assert our_pairs(Watch(), "planted", 3000, 2).missed == 0
    hashes, quality, ids = inputs(planted(3000))
    kept = near_duplicates(hashes, quality, ids, 4).keeper < 0
    assert our_survivors(Watch(), "planted", 3000, 4) == kept.mean()
    assert 0.89 < kept.mean() < 0.91


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
@pytest.mark.parametrize(("kind", "radius"), [("planted", 4), ("skewed", 4), ("planted", 0), ("one_bucket", 7)])
def test_every_peer_finds_the_same_pairs(peer: Peer, kind: str, radius: int) -> None:
    pytest.importorskip(peer.package)
    assert peer.missing() is None
    watch = Watch()
    found = peer.job(watch, kind, 700, radius)
    expected = hamming_pairs(KINDS[kind](700), radius)
    assert (found.count, found.digest) == (len(expected), digest(expected))
    assert len(expected) > 5
    assert watch.seconds > 0


def test_a_peer_that_is_not_there_is_said_to_be_missing() -> None:
    absent = Peer("X", PEERS[0].job, "no_such_package", "no-such", (10,))
    text = absent.missing()
    assert text == "X is not measured: no_such_package is not installed (pip install no-such)"


def test_the_digest_is_of_the_set_of_pairs() -> None:
    pairs = np.array([[1, 2], [1, 3], [5, 900_000_000]])
    assert digest(pairs) == digest(pairs[::-1, ::-1])
    assert digest(pairs) not in (digest(pairs[:2]), digest(pairs + 1), 0)
    assert digest(np.array([[1, 4], [2, 3]])) != digest(np.array([[1, 3], [2, 4]]))
    assert digest(np.empty((0, 2), np.int64)) == 0
