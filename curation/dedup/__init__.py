"""Duplicates among rows: pairs of near hashes, and which row of each group survives. Pure functions over arrays."""

from curation.dedup.bands import band_keys, band_links, plan_bands
from curation.dedup.components import (
    large_star,
    local_components,
    small_star,
    spanning_edges,
    star_components,
    unsettled,
)
from curation.dedup.duplicates import NearDuplicates, exact_duplicates, near_duplicates
from curation.dedup.hamming import (
    MAX_RADIUS,
    hamming_distance,
    hamming_pairs,
    hamming_pairs_between,
    iter_hamming_pairs,
)
from curation.dedup.neighbours import NeighbourConfig, neighbour_pairs
from curation.dedup.partitions import partition_links
from curation.dedup.stars import Stars, removed_curve, resolve_links
from curation.dedup.survivors import quality_order, survivors

__all__ = [
    "MAX_RADIUS",
    "NearDuplicates",
    "NeighbourConfig",
    "Stars",
    "band_keys",
    "band_links",
    "exact_duplicates",
    "hamming_distance",
    "hamming_pairs",
    "hamming_pairs_between",
    "iter_hamming_pairs",
    "large_star",
    "local_components",
    "near_duplicates",
    "neighbour_pairs",
    "partition_links",
    "plan_bands",
    "quality_order",
    "removed_curve",
    "resolve_links",
    "small_star",
    "spanning_edges",
    "star_components",
    "survivors",
    "unsettled",
]
