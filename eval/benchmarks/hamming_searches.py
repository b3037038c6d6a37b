"""Hamming searches on the same hashes, ours and those of other libraries: jobs for `measure_apart`.

FAISS `IndexBinaryFlat` compares all pairs. `IndexBinaryMultiHash` looks up parts of the hash in hash tables, and is
exact when a pair within the radius must agree on a part up to the bits that a look-up may flip. imagededup is the
best-known public image deduplicator; its default search compares all pairs in C++, its other one is a BK-tree in
Python.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curation.dedup import hamming_pairs, near_duplicates
from eval.benchmarks.apart import Watch
from eval.benchmarks.hash_pools import KINDS, PLANTED_BITS, Hashes, Indices, planted_pairs

MULTIHASH_PARTS, MULTIHASH_BITS = 3, 21
"""Parts of 21 bits: of what we tried at radius 4 (2 x 32, 3 x 21, 4 x 16, 5 x 12 bits) the fastest from 100,000 hashes
on. Of r differing bits at most r // 3 are in one of three parts."""


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        count: pairs.
        digest: of all pairs, the same for the same set of pairs.
        missed: planted pairs that are not among them; 0 where none are known.
    """

    count: int
    digest: int
    missed: int = 0


def digest(pairs: Indices) -> int:
    """A number of the set of pairs int64 [m, 2], whatever their order; 0 for none."""
    low, high = pairs.min(axis=1, initial=np.iinfo(np.int64).max), pairs.max(axis=1, initial=0)
    mixed = (low.astype(np.uint64) << np.uint64(32) | high.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return int(mixed.sum(dtype=np.uint64)) if len(pairs) else 0


def our_pairs(watch: Watch, kind: str, n: int, radius: int) -> Found:
    """Our pairs, and whether the planted ones are among them."""
    hashes = KINDS[kind](n)
    with watch():
        pairs = hamming_pairs(hashes, radius)
    missed = 0
    if kind == "planted" and radius >= PLANTED_BITS:
        known = np.sort(planted_pairs(n)[1], axis=1)
        missed = int((~np.isin(known[:, 0] * n + known[:, 1], pairs[:, 0] * n + pairs[:, 1])).sum())
    return Found(len(pairs), digest(pairs), missed)


def our_survivors(watch: Watch, kind: str, n: int, radius: int) -> float:
    """Our survivors: the share of rows kept."""
    hashes, quality, ids = inputs(KINDS[kind](n))
    with watch():
        found = near_duplicates(hashes, quality, ids, radius)
    return float((found.keeper < 0).mean())


def inputs(hashes: Hashes) -> tuple[Hashes, npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Hashes with a quality of few distinct values, as sizes in pixels are, and ids."""
    rng = np.random.default_rng(2)
    return hashes, rng.integers(0, 1000, len(hashes)).astype(np.float64), rng.permutation(len(hashes))


def faiss_flat(watch: Watch, kind: str, n: int, radius: int) -> Found:
    """FAISS, all pairs."""
    import faiss

    return _faiss(watch, faiss.IndexBinaryFlat(64), KINDS[kind](n), radius)


def faiss_multihash(watch: Watch, kind: str, n: int, radius: int) -> Found:
    """FAISS, hash tables of parts of the hash."""
    import faiss

    index = faiss.IndexBinaryMultiHash(64, MULTIHASH_PARTS, MULTIHASH_BITS)
    index.nflip = radius // MULTIHASH_PARTS
    return _faiss(watch, index, KINDS[kind](n), radius)


def _faiss(watch: Watch, index: Any, hashes: Hashes, radius: int, block: int = 100_000) -> Found:
    codes = np.ascontiguousarray(hashes).view(np.uint8).reshape(-1, 8)
    parts: list[Indices] = []
    with watch():
        index.add(codes)
        for start in range(0, len(codes), block):
            # FAISS takes distances below the radius.
            limits, _, found = index.range_search(codes[start : start + block], radius + 1)
            row = start + np.repeat(np.arange(len(limits) - 1), np.diff(limits.astype(np.int64)))
            once = row < found
            parts.append(np.stack([row[once], found[once]], axis=1))
        pairs = np.concatenate(parts)
    return Found(len(pairs), digest(pairs))


def imagededup_default(watch: Watch, kind: str, n: int, radius: int) -> Found:
    """imagededup's `PHash.find_duplicates`, all pairs in C++."""
    return _imagededup(watch, KINDS[kind](n), radius, "brute_force_cython")


def imagededup_bktree(watch: Watch, kind: str, n: int, radius: int) -> Found:
    """imagededup's `PHash.find_duplicates` with a BK-tree."""
    return _imagededup(watch, KINDS[kind](n), radius, "bktree")


def _imagededup(watch: Watch, hashes: Hashes, radius: int, method: str) -> Found:
    # It talks a lot, of the number of workers too.
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")
    encodings = {str(row): f"{value:016x}" for row, value in enumerate(hashes.tolist())}
    search = importlib.import_module("imagededup.methods").PHash(verbose=False)
    with watch():
        found = search.find_duplicates(
            encoding_map=encodings,
            max_distance_threshold=radius,
            search_method=method,
            num_enc_workers=0,
            num_dist_workers=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        )
    return _of_names(found)


def _of_names(found: dict[str, list[str]]) -> Found:
    pairs = np.array([(int(a), int(b)) for a, others in found.items() for b in others if int(a) < int(b)], np.int64)
    pairs = pairs.reshape(-1, 2)
    return Found(len(pairs), digest(pairs))


@dataclass(frozen=True)
class Peer:
    """A library's search.

    Attributes:
        job: for `measure_apart`; takes the kind of pool, n and the radius.
        package: what must be importable.
        install: what `pip install` takes.
        sizes: rows that it can do in bounded time.
    """

    name: str
    job: Callable[..., Found]
    package: str
    install: str
    sizes: tuple[int, ...]

    def missing(self) -> str | None:
        """What to do to have it, or None when it is there."""
        if importlib.util.find_spec(self.package) is not None:
            return None
        return f"{self.name} is not measured: {self.package} is not installed (pip install {self.install})"


# imagededup is no dependency: Apache-2.0, and it asks for no package that Populace does not have anyhow but PyWavelets.
PEERS = (
    Peer("FAISS IndexBinaryMultiHash", faiss_multihash, "faiss", "faiss-cpu", (100_000, 1_000_000)),
    Peer("FAISS IndexBinaryFlat", faiss_flat, "faiss", "faiss-cpu", (100_000,)),
    Peer("imagededup (default)", imagededup_default, "imagededup", "imagededup", (2_000, 10_000)),
    Peer("imagededup (BK-tree)", imagededup_bktree, "imagededup", "imagededup", (2_000, 10_000)),
)
