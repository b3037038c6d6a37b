"""What selection costs at a billion rows and more: formulas, with constants that `bench_select` measures.

Hashes are taken as uniform and embeddings as clustered the way `curation.dedup.neighbours` reckons with; a pool with
more copies has more links and not more comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import comb

from curation.dedup.neighbours import ASSIGNMENTS, ITERATIONS, TRAIN_ROWS, partition_count, training_rows
from pipeline.shuffle import partition_count as shuffle_partitions

SKEW = 2.0
"""Mean of size^2 over the square of the mean size, of the k-means partitions of clustered data."""

CONTENT_BYTES, BAND_BYTES = 24, 17
"""Of the records that a row sends to the partition of its content, and to that of each band, before compression."""

PLANNED_SORT_NS, PLANNED_COMPARE_NS = 90.0, 20.0
"""What `curation.dedup.banding.plan` reckons with when it chooses the bands of a join."""

LINK_BYTES = 21
"""Of a link (kind 1, two rows 16, value 4), before compression."""

CELL_BYTES = 48 + 17
"""Of a row on its way to its cell (row, leaf, stratum, two keys, cosine) and back (row, cell, picked)."""

COMPONENT_FILES = 4
"""How often the bytes of the links are written to find components and bins, roughly: edges in both directions and one
or two rounds of stars (16 bytes each), links by node, links by bin."""


@dataclass(frozen=True)
class Constants:
    """What was measured, on one core.

    Attributes:
        candidates_us: a row, to read its scores, apply the policy and write it as a candidate.
        keys_us: a record that is sent to a partition.
        contents_us: a row, to find its equal bytes.
        record_us: a record of a band, to read it and find its equals.
        sort_ns: an entry of a sort by a key of bands.
        compare_ns: a comparison of two hashes.
        sample_us: a row of 512 dimensions, to read its embedding for the training sample.
        vector_us: a row and 512 dimensions, to read its embedding, scale it and send it to one partition.
        nearest_ns: a row, a centroid and 512 dimensions.
        search_ns: a comparison of two embeddings of 512 dimensions.
        visit_us: a row and 512 dimensions in a partition, to read it and get it ready for the search.
        resolve_us: a link, to be resolved.
        components_us: a link, to find its component and travel to the component's bin.
        balance_us: a row of 512 dimensions, to read it again, and its way to its cluster's quota and back.
        candidate_bytes: a row's file of candidates.
        compression: bytes of a file of keys over those of its records.
        vector_compression: the same of embeddings.
        hash_links, vector_links: links per row.
    """

    candidates_us: float
    keys_us: float
    contents_us: float
    record_us: float
    sort_ns: float
    compare_ns: float
    sample_us: float
    vector_us: float
    nearest_ns: float
    search_ns: float
    visit_us: float
    resolve_us: float
    components_us: float
    balance_us: float
    candidate_bytes: float
    compression: float
    vector_compression: float
    hash_links: float
    vector_links: float


@dataclass(frozen=True)
class StepPlan:
    """What a step costs.

    Attributes:
        formula: of the work that counts most.
        comparisons: of two hashes, or of an embedding with another or with a centroid.
        bytes: written to files that the next step reads.
        core_hours: CPU time.
        tasks: reduce tasks that it is split into; 0 where it is split by batches of rows.
    """

    name: str
    formula: str
    comparisons: float
    bytes: float
    core_hours: float
    tasks: int = 0


@dataclass(frozen=True)
class BandJoin:
    """How the buckets of one band are joined again, by `count` bands of the other bits.

    Attributes:
        keys: sets of bands to sort by, C(count, radius).
        candidates: comparisons for each pair of rows of a bucket.
    """

    count: int
    keys: int
    candidates: float


def join_of(rows: float, radius: int) -> BandJoin:
    """The join of one band that `curation.dedup.banding.plan` chooses for uniform hashes.

    Args:
        rows: of the pool.
        radius: bits.
    """
    rest = 64 - 64 / (radius + 1)
    pairs = band_pairs(rows, radius)

    def join(count: int) -> BandJoin:
        keys = comb(count, radius)
        return BandJoin(count, keys, keys * 2.0 ** (-rest * (count - radius) / count))

    def cost(one: BandJoin) -> float:
        return one.keys * rows * PLANNED_SORT_NS + pairs * one.candidates * PLANNED_COMPARE_NS

    counts = [count for count in range(radius + 1, radius + 13) if comb(count, radius) <= 2000]
    return min((join(count) for count in counts), key=cost)


def band_pairs(rows: float, radius: int) -> float:
    """Pairs of uniform hashes that agree on one of radius + 1 bands."""
    return rows * rows / 2 / 2.0 ** (64 / (radius + 1))


def scale_plan(
    rows: int,
    constants: Constants,
    radius: int = 4,
    dimensions: int = 768,
    assignments: int = ASSIGNMENTS,
    train_rows: int = TRAIN_ROWS,
    clusters: int = 4096,
) -> tuple[StepPlan, ...]:
    """The steps of a selection by bytes, hashes and embeddings, with a budget over clusters.

    Args:
        rows: N, candidates.
        radius: r, bits; b = r + 1 bands.
        dimensions: d of the embeddings.
        assignments: m, partitions that an embedding is sent to.
        train_rows: most rows that train the partitions.
        clusters: K, of the lowest level of the balance.
    """
    c, n, bands, width = constants, float(rows), radius + 1, dimensions / 512
    k = partition_count(rows, assignments, train_rows)
    key_bytes = n * (CONTENT_BYTES + BAND_BYTES * bands)
    key_tasks = shuffle_partitions(rows, CONTENT_BYTES + BAND_BYTES * bands)
    join = join_of(n, radius)
    entries, compared = bands * n * join.keys, bands * band_pairs(n, radius) * join.candidates
    trained = ITERATIONS * float(training_rows(k, train_rows)) * k
    searched = SKEW * (assignments - 0.5) * n * n / k
    vector_bytes = assignments * n * (2 * dimensions + 4 * assignments + 12)
    vector_tasks = min(shuffle_partitions(rows * assignments, 1024), k)
    links = n * (c.hash_links + c.vector_links)
    return (
        StepPlan("candidates", "N", 0, n * c.candidate_bytes, _hours(n * c.candidates_us)),
        StepPlan(
            "keys",
            f"N (24 + 17 b) bytes, b = {bands}",
            0,
            key_bytes * c.compression,
            _hours(n * (1 + bands) * c.keys_us),
        ),
        StepPlan("links-bytes", "N", 0, 0, _hours(n * c.contents_us), key_tasks),
        StepPlan(
            "links-bands",
            f"b N C(q, r) sorted, b N^2 / 2^(1 + 64/b) C(q, r) / 2^(64 r (q - r) / (b q)) compared, q = {join.count}",
            compared,
            n * c.hash_links * LINK_BYTES,
            _hours(bands * n * c.record_us + (entries * c.sort_ns + compared * c.compare_ns) / 1000),
            min(key_tasks, int(bands * 2 ** (64 / bands))),
        ),
        StepPlan("sample", "N", 0, 0, _hours(n * width * c.sample_us)),
        StepPlan("train", f"8 * 64 k * k, k = {k}", trained, 0, _hours(trained * width * c.nearest_ns / 1000), 1),
        StepPlan(
            "vectors",
            "N k; m N (2 d + 4 m + 12) bytes",
            n * k,
            vector_bytes * c.vector_compression,
            _hours(assignments * n * width * c.vector_us + n * k * width * c.nearest_ns / 1000),
        ),
        StepPlan(
            "links-vectors",
            "2 (m - 1/2) N^2 / k",
            searched,
            n * c.vector_links * LINK_BYTES,
            _hours(assignments * n * width * c.visit_us + searched * width * c.search_ns / 1000),
            vector_tasks,
        ),
        StepPlan(
            "components and stars",
            f"L = {c.hash_links + c.vector_links:.2g} N links",
            0,
            links * LINK_BYTES * COMPONENT_FILES,
            _hours(links * (c.resolve_us + c.components_us)),
        ),
        StepPlan(
            "balance",
            f"N K + 20 * 256 K * K, K = {clusters}; N 48 bytes",
            n * clusters + 20 * 256.0 * clusters**2,
            n * CELL_BYTES,
            _hours(n * width * c.balance_us + (n * clusters + 5120.0 * clusters**2) * width * c.nearest_ns / 1000),
        ),
    )


def _hours(microseconds: float) -> float:
    return microseconds / 3.6e9


def plan_text(rows: int, radius: int, dimensions: int, steps: Iterable[StepPlan]) -> str:
    """A plan as lines of text."""
    held = list(steps)
    lines = [f"{rows:,} rows, radius {radius}, {dimensions} dimensions:"]
    for step in held:
        tasks = f", {step.tasks:,} tasks" if step.tasks else ""
        lines.append(
            f"    {step.name:<21} {step.comparisons:8.1e} comparisons {step.bytes / 1e12:8.2f} TB "
            f"{step.core_hours:9.1f} core-hours{tasks}; {step.formula}"
        )
    total = sum(step.core_hours for step in held)
    lines.append(
        f"    {'all':<21} {sum(step.comparisons for step in held):8.1e} comparisons "
        f"{sum(step.bytes for step in held) / 1e12:8.2f} TB {total:9.1f} core-hours"
    )
    return "\n".join(lines)
