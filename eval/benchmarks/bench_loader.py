"""The loader of pretraining against a bare loop that reads, decodes and cuts the same views, and the order's growth.

Shards of photographs of 2 to 12 megapixels, the paper's views (2 of 1024x768, 4 of 448x336). Both sides take turns:

- loader in the training process, against the bare loop in the same process;
- loader with worker processes, against the bare loop in as many processes;
- how much of that time bare decoding takes, and what decoding at a covering scale saves;
- time to find a place of the sample order, in corpora of 1x and 10x the size.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from curation.decode import Header, decode, read_header
from curation.manifest import INDEX_FOLDER, MANIFEST_NAME, build_manifest, manifest_bytes, manifest_shard
from curation.records import record_id
from curation.shards import Sample, index_bytes, shard_name, write_shard
from eval.benchmarks.common import Figure, Rate, Report, alternate, compare, note, parser, run_loop, scratch
from eval.benchmarks.pools import photographs
from training.data.config import CorpusConfig, DataConfig
from training.data.corpus import open_corpus
from training.data.keys import Purpose, generator
from training.data.loader import PretrainLoader
from training.data.order import SampleOrder
from training.data.sampler import BatchPlan
from training.data.views import ViewsConfig, make_views
from training.objectives.masks import MaskConfig, sample_keep

MICRO_BATCH = 4
PER_SHARD = 8
SEED = 1
STRIDE = 16


def export(folder: Path, pictures: Sequence[Path]) -> Path:
    """Shards of the pictures."""
    (folder / INDEX_FOLDER).mkdir(parents=True)
    entries = []
    for number, start in enumerate(range(0, len(pictures), PER_SHARD)):
        name = shard_name(number)
        samples = [
            Sample(record_id(path.name, ""), path.stem, "jpg", path.read_bytes(), {})
            for path in pictures[start : start + PER_SHARD]
        ]
        with open(folder / f"{name}.tar", "wb") as file:
            result = write_shard(file, samples, name)
        index = index_bytes(result.index)
        (folder / INDEX_FOLDER / f"{name}.parquet").write_bytes(index)
        entries.append(manifest_shard(result, index))
    manifest = build_manifest(entries, config_hash="", formats={}, source_fingerprint="")
    (folder / MANIFEST_NAME).write_bytes(manifest_bytes(manifest))
    return folder


@dataclass(frozen=True)
class Work:
    """What both sides do.

    Attributes:
        shards: the corpus.
        views: cut of each picture.
        samples: of one round.
    """

    shards: Path
    views: ViewsConfig
    samples: int

    @property
    def grid(self) -> tuple[int, int]:
        """Tokens of a global view."""
        return self.views.global_size[0] // STRIDE, self.views.global_size[1] // STRIDE

    def data(self, workers: int, **options: Any) -> DataConfig:
        """The loader's configuration."""
        return DataConfig(corpora=(CorpusConfig(path=str(self.shards)),), workers=workers, **options)

    def places(self) -> list[tuple[int, str, int, int]]:
        """(place, tar, offset, bytes) of a round, as the loader's order has them."""
        corpus = open_corpus(self.data(0))
        rows, _ = corpus.order(SEED).row(np.arange(self.samples))
        found = []
        for place, (shard, row) in enumerate(zip(*corpus.locate(rows), strict=True)):
            index = corpus.index(int(shard))
            found.append((place, corpus.tars[shard].location, int(index.offsets[row]), int(index.sizes[row])))
        return found


def ours(work: Work, workers: int, **options: Any) -> Rate:
    """Our loader. The clock starts with the arrival of a batch, after workers have started, and stops with another."""
    data = work.data(workers, **options)
    corpus = open_corpus(data)
    # Batches that are prepared while the clock does not run yet are not counted: the consumer waits from the start.
    warm = max(1, workers)
    plan = BatchPlan(MICRO_BATCH, MICRO_BATCH)
    order = corpus.order(SEED)
    steps = warm + work.samples // MICRO_BATCH
    with PretrainLoader(
        corpus, order, data=data, views=work.views, mask=MaskConfig(), grid=work.grid, plan=plan, stop_step=steps
    ) as loader:
        batches = iter(loader)
        for _ in range(warm):
            next(batches)
        started, cpu, rows, total = time.perf_counter(), _cpu(), 0, 0
        for batch in batches:
            rows += len(batch)
            total += batch.global_views.nbytes + batch.local_views.nbytes + batch.keep.nbytes
            if rows == work.samples:
                used = _cpu() - cpu  # before the workers are gone
                seconds = time.perf_counter() - started
    return Rate(rows, seconds, used, {"bytes": total})


def _cpu() -> float:
    import psutil

    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


@dataclass
class Bare:
    """The bare loop of one process: read, decode, and, unless `decode_only`, cut the views and draw the masks."""

    work: Work
    decode_only: bool = False
    files: dict[str, int] = field(default_factory=dict)

    def setup(self) -> None:
        """Handle a first picture."""
        torch.set_num_threads(1)
        self.files = {}  # descriptors of another process mean nothing here
        self(self.work.places()[:1])

    def __call__(self, items: Sequence[tuple[int, str, int, int]]) -> dict[str, int]:
        """Handle some places; counts the bytes of their tensors."""
        total = 0
        config, mask = self.work.data(0).decode, MaskConfig()
        for place, tar, offset, size in items:
            if tar not in self.files:
                self.files[tar] = os.open(tar, os.O_RDONLY)
            data = os.pread(self.files[tar], size, offset)
            header = read_header(data, config)
            assert isinstance(header, Header)
            pixels = decode(data, header, config, None).pixels  # type: ignore[union-attr]
            if self.decode_only:
                total += pixels.nbytes
                continue
            views = make_views(pixels, generator(SEED, Purpose.VIEWS, place), self.work.views)
            masks = generator(SEED, Purpose.MASK, place)
            keep = [sample_keep(masks, self.work.grid, mask) for _ in range(self.work.views.global_count)]
            total += views.global_views.nbytes + views.local_views.nbytes + sum(one.nbytes for one in keep)
        return {"bytes": total}


def bare(loop: Bare, items: Sequence[tuple[int, str, int, int]]) -> Rate:
    """The bare loop in this process."""
    loop(items[:1])
    started, cpu = time.perf_counter(), time.process_time()
    counts = loop(items)
    return Rate(len(items), time.perf_counter() - started, time.process_time() - cpu, counts)


def lookups(samples: int, batch: int, batches: int) -> Iterator[float]:
    """Microseconds per place of consecutive batches, in a corpus of shards of 10,000; permuting windows included."""
    order = SampleOrder([np.full(samples // 10_000, 10_000)], SEED)
    order.row([0])
    for step in range(batches):
        started = time.perf_counter()
        order.row(np.arange(step * batch, (step + 1) * batch))
        yield 1e6 * (time.perf_counter() - started) / batch


def growth(report: Report, samples: int) -> None:
    """Finding places in ten times the corpus."""
    small, large = (statistics.mean(lookups(count, 2048, 400)) for count in (samples, 10 * samples))
    name = f"finding a place among {10 * samples:,} samples, against {samples:,}"
    ratio = large / small
    report(Figure(name, large, "us", small, ratio, "at most 1.5", ratio <= 1.5))


def loading(report: Report, work: Work, workers: int, rounds: int) -> None:
    """The loader against the bare loop, in this process and in several."""
    items, loop = work.places(), Bare(work)
    decoding = Bare(work, decode_only=True)
    rates = alternate(
        rounds,
        partial(ours, work, 0),
        partial(bare, loop, items),
        partial(bare, decoding, items),
        partial(ours, work, 0, decode_scale="covering"),
    )
    report(
        compare("loader in the training process, against read + decode + views", "images/s", rates[0], rates[1], 0.9)
    )
    report(compare("the same, against bare decode", "images/s", rates[0], rates[2]))
    report(compare("decode_scale covering, against full", "images/s", rates[3], rates[0]))
    if workers:
        # Longer: workers that end apart count more in a short run.
        work = replace(work, samples=2 * work.samples)
        items, loop = work.places(), Bare(work)
        several = alternate(rounds, partial(ours, work, workers), lambda: run_loop(loop, items, workers, MICRO_BATCH))
        name = f"loader with {workers} workers, against read + decode + views in {workers} processes"
        report(compare(name, "images/s", several[0], several[1], 0.9))


def main() -> None:
    """Run it."""
    arguments = parser(__doc__)
    arguments.add_argument("--images", type=int, default=32, help="photographs of a round; a multiple of 8")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--global-size", type=int, nargs=2, default=(1024, 768))
    arguments.add_argument("--local-size", type=int, nargs=2, default=(448, 336))
    arguments.add_argument("--samples", type=int, default=10_000_000, help="samples of the smaller corpus for lookups")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    report = Report(given.json)
    growth(report, given.samples)
    note("making the pool")
    pool = photographs(given.data / f"loader-{given.images}", given.images, max(1, given.workers))
    with scratch(given.data) as folder:
        shards = export(folder / "shards", sorted(pool.glob("*.jpg")))
        views = ViewsConfig(global_size=tuple(given.global_size), local_size=tuple(given.local_size))
        loading(report, Work(shards, views, given.images), given.workers, given.rounds)


if __name__ == "__main__":
    main()
