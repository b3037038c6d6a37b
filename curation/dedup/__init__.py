"""Duplicates among rows: pairs of near hashes, and which row of each group survives. Pure functions over arrays."""

from curation.dedup.duplicates import NearDuplicates, exact_duplicates, near_duplicates
from curation.dedup.hamming import (
    MAX_RADIUS,
    hamming_distance,
    hamming_pairs,
    hamming_pairs_between,
    iter_hamming_pairs,
)
from curation.dedup.survivors import quality_order, survivors

__all__ = [
    "MAX_RADIUS",
    "NearDuplicates",
    "exact_duplicates",
    "hamming_distance",
    "hamming_pairs",
    "hamming_pairs_between",
    "iter_hamming_pairs",
    "near_duplicates",
    "quality_order",
    "survivors",
]
