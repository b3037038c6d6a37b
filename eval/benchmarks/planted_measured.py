"""What the pipeline's own functions measure of planted families: hashes and embeddings, and distances between them."""

from __future__ import annotations

import multiprocessing as mp
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from curation.decode import DecodeConfig, Header, Problem, read_header
from curation.records import Batch, Pixels
from curation.scorers.screen import ScreenScorer
from curation.vectors import cosines
from eval.benchmarks.planted import KINDS, make_family
from pipeline.demo.outlines import OUTLINES
from pipeline.resources import limit_native_threads

NO_DISTANCE = 65
"""In place of a distance where a hash is degenerate: more than any."""


@dataclass(frozen=True, slots=True)
class Measured:
    """n families of k pictures each.

    Attributes:
        kinds: [k]; the first is "original".
        person, place: [n] names of the photographs that an original is made from.
        phash, mirrored: uint64 [n, k].
        usable: bool [n, k], the hash is not degenerate.
        embedding: float16 [n, k, 1280]; [n, 0] when it was not measured.
    """

    kinds: tuple[str, ...]
    person: npt.NDArray[np.str_]
    place: npt.NDArray[np.str_]
    phash: npt.NDArray[np.uint64]
    mirrored: npt.NDArray[np.uint64]
    usable: npt.NDArray[np.bool_]
    embedding: npt.NDArray[np.float16]

    def distance(self, kind: str, mirrored: bool) -> npt.NDArray[np.int64]:
        """Bits between each original and its relative of a kind, int64 [n]; `NO_DISTANCE` where one has none."""
        at = self.kinds.index(kind)
        bits = _bits(self.phash[:, 0], self.phash[:, at])
        if mirrored:
            bits = np.minimum(bits, _bits(self.phash[:, 0], self.mirrored[:, at]))
        return np.where(self.usable[:, 0] & self.usable[:, at], bits, NO_DISTANCE)

    def cosine(self, kind: str) -> npt.NDArray[np.float64]:
        """Cosine between each original's embedding and its relative's, float64 [n]."""
        return cosines(self.embedding[:, 0], self.embedding[:, self.kinds.index(kind)])

    def apart(self) -> npt.NDArray[np.bool_]:
        """bool [n (n - 1) / 2]: the pairs of originals, in the order of `pair_distance`, that share neither the
        photograph of the person nor that of the place."""
        i, j = np.triu_indices(len(self.phash), 1)
        return (self.person[i] != self.person[j]) & (self.place[i] != self.place[j])

    def pair_distance(self, mirrored: bool) -> npt.NDArray[np.int64]:
        """Bits between all pairs of different originals, int64 [n (n - 1) / 2], as `distance`."""
        i, j = np.triu_indices(len(self.phash), 1)
        bits = _bits(self.phash[i, 0], self.phash[j, 0])
        if mirrored:
            bits = np.minimum(bits, _bits(self.phash[i, 0], self.mirrored[j, 0]))
        return np.where(self.usable[i, 0] & self.usable[j, 0], bits, NO_DISTANCE)

    def pair_cosine(self) -> npt.NDArray[np.float64]:
        """Cosines between all pairs of different originals, float64 [n (n - 1) / 2]."""
        rows = self.embedding[:, 0]
        return np.concatenate(
            [cosines(np.broadcast_to(rows[at], rows[at + 1 :].shape), rows[at + 1 :]) for at in range(len(rows))]
        )


def _bits(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    return np.bitwise_count(a ^ b).astype(np.int64)


def measure(originals: int, seed: int = 0, relatives: bool = True, workers: int = 1) -> Measured:
    """Make and measure families 0 .. originals - 1.

    Args:
        originals: 2 or more.
        seed: of the pool; the same seed gives the same result whatever the number of workers.
        relatives: False makes originals only and takes no embeddings: for counting false merges of many pictures.
        workers: processes; 1 works in this one.
    """
    work = partial(_measure_family, seed, relatives)
    if workers == 1:
        rows = [work(index) for index in range(originals)]
    else:
        with mp.get_context("spawn").Pool(workers, limit_native_threads, (1,)) as pool:
            rows = pool.map(work, range(originals), chunksize=2)
    persons, places, phash, mirrored, usable, embedding = zip(*rows, strict=True)
    return Measured(
        KINDS if relatives else KINDS[:1],
        np.array(persons),
        np.array(places),
        np.array(phash, np.uint64),
        np.array(mirrored, np.uint64),
        np.array(usable),
        np.array(embedding, np.float16),
    )


def _measure_family(seed: int, relatives: bool, index: int) -> tuple[Any, ...]:
    family = make_family(seed, index, relatives)
    columns, pixels = zip(*(_screen(data) for data in family.files.values()), strict=True)
    embeddings = _embed(pixels) if relatives else []
    return (
        OUTLINES[family.person].photograph,
        family.place,
        [row["phash"] for row in columns],
        [row["phash_mirrored"] for row in columns],
        [not row["phash_degenerate"] for row in columns],
        embeddings,
    )


def _screen(data: bytes) -> tuple[dict[str, Any], Pixels]:
    header = read_header(data, DecodeConfig())
    assert isinstance(header, Header), header
    columns, pixels = ScreenScorer().measure(data, header)
    assert not isinstance(pixels, Problem), pixels
    return columns, pixels


@cache
def _embedder() -> Any:
    from curation.scorers.embedding_efficientnet import EfficientNetEmbedding, EfficientNetEmbeddingConfig

    scorer = EfficientNetEmbedding(EfficientNetEmbeddingConfig())
    scorer.setup()
    return scorer


def _embed(pixels: Sequence[Pixels]) -> Sequence[npt.NDArray[np.float16]]:
    batch = Batch([str(at) for at in range(len(pixels))], list(pixels), {})
    found: Sequence[npt.NDArray[np.float16]] = _embedder().score(batch)["embedding"]
    return found
