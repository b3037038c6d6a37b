"""The effective number of clusters, and the summary of what balancing did."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.balance import NO_LEAF, effective_number, spread, summarise


def test_known_values() -> None:
    assert effective_number([]) == 0.0
    assert effective_number([0, 0]) == 0.0
    assert effective_number([7]) == 1.0
    assert effective_number([5, 5, 5, 5, 0]) == pytest.approx(4.0, abs=1e-12)
    # Shares 1/2, 1/4, 1/4: entropy 1.5 ln 2.
    assert effective_number([2, 1, 1]) == pytest.approx(2**1.5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_at_most_the_number_of_clusters_and_independent_of_their_order(counts: list[int], random) -> None:
    value = effective_number(counts)
    assert (value == 0.0) == (sum(counts) == 0)
    assert value == 0.0 or 0.999999 <= value <= sum(count > 0 for count in counts)
    shuffled = [*counts, 0, 0]
    random.shuffle(shuffled)
    assert effective_number(shuffled) == value


def test_bad_counts_are_errors() -> None:
    with pytest.raises(ValueError, match="got -1"):
        effective_number([1, -1])
    with pytest.raises(ValueError, match="integers"):
        effective_number([0.5])


def test_spread_counts_sizes_by_octave() -> None:
    assert spread([0, 1, 1, 2, 3, 4, 1000]) == {
        "rows": 1011,
        "clusters": 6,
        "effective": effective_number([1, 1, 2, 3, 4, 1000]),
        "largest": 1000,
        "sizes": {"1": 2, "2": 2, "4": 1, "512": 1},
    }
    assert spread([]) == {"rows": 0, "clusters": 0, "effective": 0.0, "largest": 0, "sizes": {}}


def test_summary_by_level_and_stratum() -> None:
    leaf = [0, 1, 2, 0, NO_LEAF]
    stratum = [0, 0, 0, 2, 2]
    result = summarise(leaf, stratum, [90, 5, 5, 40, 9], [5, 5, 5, 0, 3], [[0, 0, 1]], ["near", "middle", "far"])
    leaves, tops = result["levels"]
    assert (leaves["before"]["rows"], leaves["after"]["rows"]) == (140, 15)
    assert (leaves["before"]["largest"], leaves["after"]["largest"]) == (130, 5)
    assert leaves["after"]["effective"] == pytest.approx(3.0)
    assert tops["before"]["effective"] == pytest.approx(effective_number([135, 5]))
    assert tops["after"]["effective"] == pytest.approx(effective_number([10, 5]))
    near, far = result["strata"]["each"]  # "middle" has no rows
    assert near == {
        "name": "near",
        "rows": {"before": 100, "after": 15},
        "effective": {"before": effective_number([90, 5, 5]), "after": pytest.approx(3.0)},
    }
    assert far == {"name": "far", "rows": {"before": 49, "after": 3}, "effective": {"before": 1.0, "after": 0.0}}
    assert result["strata"]["effective"]["before"] == effective_number([100, 49])
    assert result["no_embedding"] == {"before": 9, "after": 3}
    assert json.loads(json.dumps(result)) == result


def test_the_summary_of_nothing() -> None:
    result = summarise([], [], [], [], [[0]], ["all"])
    assert result["strata"] == {"effective": {"before": 0.0, "after": 0.0}, "each": []}
    assert [level["before"]["rows"] for level in result["levels"]] == [0, 0]


def test_more_rows_after_than_before_is_an_error() -> None:
    with pytest.raises(ValueError, match="more rows after"):
        summarise([0], [0], [1], [2], [], ["all"])
    with pytest.raises(ValueError, match="one length"):
        summarise([0], [0, 1], [1], [1], [], ["all"])


def test_the_scale_of_counts_is_no_matter() -> None:
    counts = np.array([3, 5, 8])
    assert effective_number(counts * 10**15) == pytest.approx(effective_number(counts))
