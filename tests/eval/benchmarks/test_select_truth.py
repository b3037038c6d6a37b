"""What selection is compared with: the kernels find what is planted, and the shares count what differs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from curation.reasons import Reason
from eval.benchmarks.select_pool import plant
from eval.benchmarks.select_truth import Outcome, Timed, agreement, by_hash, by_vector, dropped, planted_recall


def test_kernels_drop_what_is_planted_and_nothing_else() -> None:
    rows = plant(600, 64)
    hashes, vectors = by_hash(rows), by_vector(rows)
    planted = {kind: rows.kind == kind for kind in ("exact", "hash", "vector")}
    assert np.array_equal(hashes.keeper, np.where(planted["exact"] | planted["hash"], rows.origin, -1))
    same = planted["exact"] | planted["vector"]
    assert (vectors.keeper[~same] == -1).all()
    # Rounding to float16 may take a copy at the threshold below it.
    assert (vectors.keeper[same] == rows.origin[same]).mean() > 0.95
    outcome = Outcome(hashes.keeper, np.full(600, ""))
    assert planted_recall(rows, outcome, "exact", "hash") == 1
    assert planted_recall(rows, outcome, "vector") == 0
    assert planted_recall(replace(rows, origin=rows.origin + 1), outcome, "exact") == 0


def test_agreement_counts_the_rows_that_either_side_drops() -> None:
    outcome = Outcome(np.array([-1, 0, 0, -1, -1]), np.array(["", "near_duplicate", "in_corpus", "", ""]))
    assert agreement(outcome, Timed(np.array([-1, 0, 3, 1, -1]), 0.0)) == 1 / 3
    assert agreement(outcome, Timed(outcome.keeper, 0.0)) == 1
    nothing = np.full(5, -1)
    assert agreement(Outcome(nothing, outcome.reason), Timed(nothing, 0.0)) == 1
    assert dropped(outcome, Reason.NEAR_DUPLICATE) == 1
    assert dropped(outcome, Reason.NEAR_DUPLICATE, Reason.IN_CORPUS) == 2
