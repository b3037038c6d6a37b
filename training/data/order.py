"""The order in which samples are seen: place -> sample, a pure function of (seed, shards, weights).

Every epoch visits the shards in an order of its own. Consecutive shards of that order form windows of
`shuffle_shards`, and the samples of a window come in a random order of their own before those of the next window. So
every sample comes once per epoch, consecutive places touch the shards of one window (of two at its end), and a place is
found without walking to it. A run's position in its data is one integer.

With weights each corpus walks its own epochs, and `training.data.interleave` says whose turn it is.

State: 24 bytes per shard, 8 more for each of 2 epochs, and 8 bytes per sample of the 2 windows used last; nothing
grows with the number of samples of a corpus.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from curation.config import fingerprint
from training.data.interleave import Interleave
from training.data.keys import Purpose, derive_key, permutation
from training.data.lru import Recent

Positions = npt.NDArray[np.int64]
_EPOCHS_KEPT = 2
_WINDOWS_KEPT = 2


class _Stream:
    """The endless order of some shards.

    Args:
        samples: int64 [S], samples of each shard.
        first_shard: number of the first of them in the corpus; the others follow.
        first_row: row of its first sample; the others follow.
        key: parts of the key of all draws.
        shuffle_shards: shards of a window.
    """

    def __init__(
        self, samples: Positions, first_shard: int, first_row: int, key: tuple[int, ...], shuffle_shards: int
    ) -> None:
        rows = first_row + np.cumsum(samples) - samples
        used = np.flatnonzero(samples)
        self.total = int(samples.sum())
        self._samples, self._rows, self._shards = samples[used], rows[used], first_shard + used
        self._key, self._per_window = key, shuffle_shards
        self._epochs: Recent[int, tuple[Positions, Positions]] = Recent(_EPOCHS_KEPT)
        self._windows: Recent[tuple[int, int], Positions] = Recent(_WINDOWS_KEPT)

    def rows(self, positions: Positions) -> tuple[Positions, Positions]:
        """Row and epoch of each position, int64 [n] each."""
        epochs, places = np.divmod(positions, self.total)
        rows = np.empty(len(positions), np.int64)
        for epoch in np.unique(epochs):
            of_epoch = np.flatnonzero(epochs == epoch)
            _, starts = self._epoch(int(epoch))
            windows = np.searchsorted(starts, places[of_epoch], side="right") - 1
            by_window = np.argsort(windows, kind="stable")
            cuts = np.flatnonzero(np.diff(windows[by_window])) + 1
            for group in np.split(by_window, cuts):
                at, window = of_epoch[group], int(windows[group[0]])
                rows[at] = self._window(int(epoch), window)[places[at] - starts[window]]
        return rows, epochs

    def window_rows(self, position: int) -> Positions:
        """All rows of the window that a position is in, in the order in which they come."""
        epoch, window = self._find(position)
        return self._window(epoch, window)

    def window_shards(self, position: int, ahead: int) -> list[list[int]]:
        """The shards of the window that a position is in, and of each of the next `ahead` windows."""
        epoch, window = self._find(position)
        found = []
        for _ in range(1 + ahead):
            order, starts = self._epoch(epoch)
            found.append(self._shards[self._members(order, window)].tolist())
            window += 1
            if window == len(starts) - 1:
                epoch, window = epoch + 1, 0
        return found

    def _find(self, position: int) -> tuple[int, int]:
        epoch, place = divmod(position, self.total)
        starts = self._epoch(epoch)[1]
        return epoch, int(np.searchsorted(starts, place, side="right")) - 1

    def _epoch(self, epoch: int) -> tuple[Positions, Positions]:
        """Order of the shards, int64 [S], and the place where each window starts, int64 [windows + 1]."""

        def make() -> tuple[Positions, Positions]:
            order = permutation(len(self._samples), *self._key, Purpose.SHARDS, epoch)
            ends = np.cumsum(self._samples[order])
            last = np.minimum(np.arange(self._per_window, len(order) + self._per_window, self._per_window), len(order))
            return order, np.concatenate([[0], ends[last - 1]]).astype(np.int64)

        return self._epochs.get(epoch, make)

    def _window(self, epoch: int, window: int) -> Positions:
        def make() -> Positions:
            members = self._members(self._epoch(epoch)[0], window)
            rows = np.concatenate([np.arange(self._rows[one], self._rows[one] + self._samples[one]) for one in members])
            return rows[permutation(len(rows), *self._key, Purpose.WINDOW, epoch, window)]

        return self._windows.get((epoch, window), make)

    def _members(self, order: Positions, window: int) -> Positions:
        return order[window * self._per_window : (window + 1) * self._per_window]


class SampleOrder:
    """Place in the endless order -> row of the corpus.

    Args:
        parts: int64 [S_k] for each corpus k, the samples of its shards; shards may be empty.
        seed: 0 to 2**64 - 1.
        shuffle_shards: shards whose samples are shuffled together; at least 1.
        weights: one positive number for each corpus, the shares in which they are mixed (`Interleave`); None: all
            corpora are one, and every sample comes once per epoch.

    Raises:
        ValueError: no samples, a corpus without samples that has a weight, or another number of weights than of
            corpora.
    """

    def __init__(
        self,
        parts: Sequence[npt.ArrayLike],
        seed: int,
        shuffle_shards: int = 16,
        weights: Sequence[float] | None = None,
    ) -> None:
        if shuffle_shards < 1:
            raise ValueError(f"shuffle_shards is {shuffle_shards}: give at least 1")
        sizes = [np.asarray(part, np.int64) for part in parts]
        if any(size.ndim != 1 or (size < 0).any() for size in sizes):
            raise ValueError("parts must be lists of numbers of samples, one of 0 or more for each shard")
        totals = [int(size.sum()) for size in sizes]
        if not sum(totals):
            raise ValueError("the corpora hold no sample: list a corpus that has some")
        self.samples, self.seed, self.shuffle_shards = sum(totals), seed, shuffle_shards
        self._interleave: Interleave | None = None
        if weights is None:
            self._streams = [_Stream(np.concatenate(sizes), 0, 0, (seed, 0), shuffle_shards)]
        else:
            if len(weights) != len(sizes):
                raise ValueError(f"{len(weights)} weights for {len(sizes)} corpora: give one for each")
            if not all(totals):
                raise ValueError(f"corpus {totals.index(0)} has a weight and no sample: leave it out")
            self._interleave = Interleave(weights)
            shards = np.cumsum([0] + [len(size) for size in sizes])
            rows = np.cumsum([0, *totals])
            self._streams = [
                _Stream(size, int(shards[number]), int(rows[number]), (seed, 1 + number), shuffle_shards)
                for number, size in enumerate(sizes)
            ]
        self.fingerprint = fingerprint(
            "sample order 1",
            seed,
            shuffle_shards,
            [size.tolist() for size in (sizes if weights is not None else [np.concatenate(sizes)])],
            self._interleave.counts if self._interleave is not None else None,
        )
        """Of all that fixes the order: a run continues exactly where this is the same."""

    @property
    def shares(self) -> list[float] | None:
        """Share of each corpus; None without weights."""
        return self._interleave.shares if self._interleave is not None else None

    def row(self, positions: npt.ArrayLike) -> tuple[Positions, Positions]:
        """The samples at some places.

        Args:
            positions: int64 [n], 0 or more, in any order.

        Returns:
            int64 [n], rows of the corpus; int64 [n], how often that corpus had been seen in full before.
        """
        places = np.asarray(positions, np.int64)
        if places.ndim != 1 or (places < 0).any():
            raise ValueError("positions must be a list of integers of 0 or more")
        if self._interleave is None:
            return self._streams[0].rows(places)
        corpora, inner = self._interleave.split(places)
        rows, epochs = np.empty(len(places), np.int64), np.empty(len(places), np.int64)
        for number in np.unique(corpora):
            at = corpora == number
            rows[at], epochs[at] = self._streams[number].rows(inner[at])
        return rows, epochs

    def substitute(self, position: int, attempt: int) -> int:
        """Another row for a place whose sample cannot be read: drawn from the same window, keyed by (seed, position,
        attempt), so that every run takes the same one and no other shard has to be fetched."""
        stream, inner = self._at(position)
        rows = stream.window_rows(inner)
        return int(rows[derive_key(self.seed, Purpose.REPLACEMENT, position, attempt) % len(rows)])

    def window_shards(self, position: int, ahead: int = 1) -> list[list[int]]:
        """The shards that places from `position` on need: those of the current windows of all corpora, then those of
        each of the next `ahead` windows."""
        inner = [position] if self._interleave is None else self._interleave.before(position)
        windows = [stream.window_shards(place, ahead) for stream, place in zip(self._streams, inner, strict=True)]
        return [[shard for stream in windows for shard in stream[depth]] for depth in range(1 + ahead)]

    def _at(self, position: int) -> tuple[_Stream, int]:
        if self._interleave is None:
            return self._streams[0], position
        corpora, inner = self._interleave.split(np.array([position], np.int64))
        return self._streams[corpora[0]], int(inner[0])
