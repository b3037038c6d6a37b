"""Whether the duplicates of a ledger are stars around kept rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from curation.reasons import Reason
from pipeline.demo.families import distances

DUPLICATES = (Reason.EXACT_DUPLICATE, Reason.NEAR_DUPLICATE)


@dataclass(frozen=True, slots=True)
class DuplicateLinks:
    """Whether the duplicates in the ledger are stars: each names a kept row that it is near.

    Attributes:
        exact, near: rows dropped for each reason.
        not_kept: duplicates whose survivor is not a kept row.
        other_family: duplicates whose survivor is of another family, and near it by its hash all the same.
        wrong_distance: near duplicates whose distance is not that of the two hashes, or more than the radius.
        kept_pairs: pairs of kept rows within the radius, degenerate hashes left out.
    """

    exact: int
    near: int
    not_kept: int
    other_family: int
    wrong_distance: int
    kept_pairs: int


def duplicate_links(ledger: Sequence[Mapping[str, Any]], families: Mapping[str, str], radius: int) -> DuplicateLinks:
    """Follow every duplicate of a ledger to the row that it names.

    Args:
        ledger: rows with id, verdict, reason, duplicate_of, distance, phash and, if known, phash_degenerate.
        families: id -> duplicate family.
        radius: of near duplicates, bits.
    """
    rows = {row["id"]: row for row in ledger}
    counts: Counter[str] = Counter()
    for row in ledger:
        if row["verdict"] == "kept" or row["reason"] not in DUPLICATES:
            continue
        counts[row["reason"]] += 1
        survivor = rows.get(row["duplicate_of"])
        if survivor is None or survivor["verdict"] != "kept":
            counts["not_kept"] += 1
            continue
        counts["other_family"] += families.get(row["id"]) != families.get(survivor["id"])
        if row["reason"] == Reason.NEAR_DUPLICATE:
            bits = None
            if row["phash"] is not None and survivor["phash"] is not None:
                bits = (row["phash"] ^ survivor["phash"]).bit_count()
            counts["wrong_distance"] += bits is None or bits != row["distance"] or bits > radius
    hashes = [
        row["phash"]
        for row in ledger
        if row["verdict"] == "kept" and row["phash"] is not None and not row.get("phash_degenerate")
    ]
    return DuplicateLinks(
        exact=counts[Reason.EXACT_DUPLICATE],
        near=counts[Reason.NEAR_DUPLICATE],
        not_kept=counts["not_kept"],
        other_family=counts["other_family"],
        wrong_distance=counts["wrong_distance"],
        kept_pairs=int(np.triu(distances(hashes) <= radius, 1).sum()) if hashes else 0,
    )
