"""From places of the sample order to a batch of views: read, decode, augment, mask."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from curation.decode import DecodeConfig, Header, Problem, decode, decode_memory, read_header, working_size
from curation.records import Payload
from curation.sources.redact import describe
from training.data.batch import Batch, Sample, Views, collate
from training.data.config import DataConfig
from training.data.corpus import Corpus
from training.data.errors import DataError, Skipped
from training.data.keys import Purpose, generator
from training.data.order import SampleOrder
from training.data.reader import ImageReader, ReadAhead
from training.data.views import ViewParameters, ViewsConfig, apply_views, draw_views
from training.objectives.masks import MaskConfig, sample_keep

log = logging.getLogger(__name__)

ATTEMPTS = 16
"""Samples tried for one place (our choice): with a tenth of a window unreadable, 16 failures in a row come once in
10**16 places; a place that needs more has a window that is broken as a whole."""


class SampleMaker:
    """Makes micro-batches. Picklable; each process makes its own connections and opens its own files.

    Everything that is drawn is keyed by (seed, place): a batch depends on nothing but its places.

    Args:
        corpus, order: what is read, and in what order.
        data: how it is read.
        views: of each picture.
        mask: of each global view.
        grid: (height, width) of a global view in tokens.
    """

    def __init__(
        self,
        corpus: Corpus,
        order: SampleOrder,
        data: DataConfig,
        views: ViewsConfig,
        mask: MaskConfig,
        grid: tuple[int, int],
    ) -> None:
        self._corpus, self._order, self._data, self._views, self._mask = corpus, order, data, views, mask
        self._grid = grid
        self._reader = ImageReader(corpus, max(64, 3 * data.shuffle_shards), data.verify)
        self._ahead: ReadAhead | None = None
        self._window: frozenset[int] = frozenset()

    def make(self, positions: Sequence[int]) -> tuple[Batch, list[Skipped]]:
        """The batch at some places, and the samples that could not be read and were passed over.

        Raises:
            DataError: a shard cannot be read, or no readable sample was found for a place.
        """
        self._prepare(positions[0])
        rows, _ = self._order.row(np.asarray(positions, np.int64))
        skipped: list[Skipped] = []
        payloads = self._reader.read_many(rows.tolist())
        samples = [
            self._sample(position, row, payload, skipped)
            for position, row, payload in zip(positions, rows.tolist(), payloads, strict=True)
        ]
        return collate(samples), skipped

    def close(self) -> None:
        """Close files and stop reading ahead."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None
        self._reader.close()

    def _prepare(self, position: int) -> None:
        """Let go of the shards of windows that are over, and fetch those that come."""
        cache = self._corpus.cache
        if cache is None:
            return
        windows = self._order.window_shards(position)
        near = frozenset(shard for window in windows for shard in window)
        if near == self._window and not self._data.read_ahead:
            return
        self._window = near
        self._reader.keep(near)
        if self._data.read_ahead:
            if self._ahead is None:
                self._ahead = ReadAhead(self._corpus, cache, self._data.read_ahead)
            self._ahead.want([shard for window in windows for shard in window])

    def _sample(self, position: int, row: int, payload: Payload, skipped: list[Skipped]) -> Sample:
        for attempt in range(ATTEMPTS):
            if attempt:
                row = self._order.substitute(position, attempt)
                payload = self._reader.read(row)
            shard, inner = (int(place[0]) for place in self._corpus.locate([row]))
            name, tar = self._corpus.index(shard).id(inner), self._corpus.tars[shard].shown
            try:
                views = self._make_views(position, payload)
                if isinstance(views, Views):
                    rng = generator(self._order.seed, Purpose.MASK, position)
                    keep = [sample_keep(rng, self._grid, self._mask) for _ in range(self._views.global_count)]
                    return Sample(position, row, name, views, np.stack(keep), attempt)
            except Exception as error:
                raise DataError(
                    f"sample {name} (row {inner} of {tar}) at place {position} cannot be made into views: "
                    f"{describe(error)}"
                ) from error
            skipped.append(Skipped(position, row, name, tar, views.reason, views.detail))
        raise DataError(
            f"none of {ATTEMPTS} samples for place {position} can be read; the last was {name} (row {inner} of {tar}): "
            f"{skipped[-1].reason}, {skipped[-1].detail}. Check the corpus: `populace curate` verifies its shards."
        )

    def _make_views(self, position: int, payload: Payload) -> Views | Problem:
        if payload.data is None:
            assert payload.reason is not None
            return Problem(payload.reason, payload.detail or "")
        config = self._data.decode
        header = read_header(payload.data, config)
        if isinstance(header, Problem):
            return header
        parameters, side = self._draw(position, header, config)
        decoded = decode(payload.data, header, config, side)
        return decoded if isinstance(decoded, Problem) else apply_views(decoded.pixels, parameters, self._views)

    def _draw(self, position: int, header: Header, config: DecodeConfig) -> tuple[ViewParameters, int | None]:
        """The views, and the long side to decode to; None: the full size."""

        def drawn(width: int, height: int) -> ViewParameters:
            rng = generator(self._order.seed, Purpose.VIEWS, position)
            return draw_views(rng, (height, width), self._views)

        if self._data.decode_scale == "covering" or decode_memory(header, None) > config.max_memory:
            long = max(header.width, header.height)
            for factor in (8, 4, 2):
                side = -(-long // factor)
                parameters = drawn(*working_size(header.width, header.height, side))
                if covers(parameters, self._views):
                    return parameters, side
        return drawn(header.width, header.height), None


def covers(parameters: ViewParameters, config: ViewsConfig) -> bool:
    """Whether no view would enlarge its part of the picture."""
    sizes = parameters.boxes[:, [3, 2]]
    first = config.global_count
    return bool((sizes[:first] >= config.global_size).all() and (sizes[first:] >= config.local_size).all())
