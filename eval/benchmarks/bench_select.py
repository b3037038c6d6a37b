"""The distributed selection as a pool grows: what each step takes, against the in-memory kernels on one core.

Real Ray, started as the pipeline does, in a process of its own; rows are synthetic (`select_pool`). The ratio to the
kernels is the price of the machinery: reading scores, files, Ray. Growth is against ten times fewer rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from curation.reasons import Reason
from eval.benchmarks.common import Figure, Report, note, parser, scratch
from eval.benchmarks.scale_plan import plan_text, scale_plan
from eval.benchmarks.select_constants import (
    COMPONENTS,
    hash_kernels,
    measured_constants,
    sum_of,
    total_links,
    vector_kernels,
)
from eval.benchmarks.select_once import Cost, StepCost, Task, select_apart
from eval.benchmarks.select_pool import RADIUS, THRESHOLD, Planted, plant, write_pool
from eval.benchmarks.select_truth import (
    agreement,
    by_hash,
    by_vector,
    dropped,
    planted_recall,
    read_outcome,
)
from pipeline.select.run import MOST_LINKS

LINEAR = 20.0
"""Ten times the rows may take at most this many times the CPU time: near-linear."""

SEARCH = 40.0
"""The same with embeddings, whose search is of order n^1.5."""

FLAT = 1.3
"""The driver's memory counts as flat when the most rows take at most this many times that of the fewest."""

EXACT_UP_TO = 20_000
"""Rows up to which the search of embeddings is exhaustive on both sides; beyond, each misses a few of its own."""

HASHES: dict[str, Any] = {"near_duplicates": {"radius": RADIUS}}
VECTORS: dict[str, Any] = {
    "exact_duplicates": False,
    "near_duplicates": None,
    "semantic_duplicates": {"threshold": THRESHOLD},
}
BALANCE = ("left", "balance-sample", "balance-fit", "assigned", "quotas", "picked", "cells")

Selecting = Callable[[Task], Cost]


class Bench:
    """Selections of growing pools.

    Args:
        options: of the command line.
        select: `select_apart`; `select_here` in a test.
    """

    def __init__(self, report: Report, options: argparse.Namespace, select: Selecting) -> None:
        self.report, self.options, self.select = report, options, select
        self._before: dict[str, tuple[int, Cost]] = {}
        self._first: dict[str, tuple[int, StepCost]] = {}

    def hashes(self, size: int) -> Cost:
        """Equal bytes and near hashes."""
        name = f"hashes, {size:,} rows"
        with self._pool(size, None) as (folder, rows):
            cost = self._select(folder, size, False, "one", HASHES)
            self._steps("hashes", size, cost, LINEAR)
            outcome = read_outcome(folder, "one", rows, self.options.chunk_rows, ("stars",))
            expected = by_hash(rows)
            self._share(f"{name}, copies dropped for their origin", planted_recall(rows, outcome, "exact", "hash"), 1.0)
            self._share(f"{name}, same as in memory", agreement(outcome, expected), 1.0)
            self._price(name, cost.sum(), expected.cpu_seconds)
            return cost

    def components(self, size: int, share: int = 4) -> Cost:
        """Equal bytes and near hashes again, resolved in several bins."""
        name = f"hashes, {size:,} rows, resolved in parallel"
        with self._pool(size, None) as (folder, rows):
            links = int(size * 0.3)
            cost = self._select(folder, size, False, "bins", HASHES, max(1, links // share))
            parallel = sum_of(cost, COMPONENTS)
            detail = {"bins": cost.sum("resolved").tasks, "us a link": 1e6 * parallel.cpu_seconds / total_links(cost)}
            self.report(
                Figure(f"{name}, components", parallel.cpu_seconds, "CPU s", detail=detail | _detail(parallel, size))
            )
            outcome = read_outcome(folder, "bins", rows, self.options.chunk_rows, ("stars",))
            self._share(f"{name}, same as in memory", agreement(outcome, by_hash(rows)), 1.0)
            return cost

    def embeddings(self, size: int) -> Cost:
        """Near embeddings, then a budget over clusters."""
        dimensions = self.options.dimensions
        name = f"embeddings, {size:,} x {dimensions}"
        balance = {"share": 0.3, "levels": list(self.options.levels)}
        with self._pool(size, dimensions) as (folder, rows):
            cost = self._select(folder, size, True, "one", {**VECTORS, "balance": balance})
            self._steps("embeddings", size, cost, SEARCH)
            chunk_rows = self.options.chunk_rows
            outcome = read_outcome(folder, "one", rows, chunk_rows, ("stars",))
            expected = by_vector(rows)
            least = 1.0 if size <= EXACT_UP_TO else 0.99
            self._share(
                f"{name}, equal embeddings dropped for their origin", planted_recall(rows, outcome, "exact"), 1.0
            )
            self._share(f"{name}, near ones dropped for their origin", planted_recall(rows, outcome, "vector"), 0.99)
            self._share(f"{name}, same as in memory", agreement(outcome, expected), least)
            near = [step for step in cost.steps if step.name not in BALANCE]
            self._price(name, Cost(tuple(near), {}).sum(), expected.cpu_seconds)
            final = read_outcome(folder, "one", rows, chunk_rows, ("stars", "cells"))
            kept = size - dropped(final, Reason.SEMANTIC_DUPLICATE, Reason.OVER_REPRESENTED)
            budget = cost.summary["balance"]["budget"]
            self.report(
                Figure(
                    f"{name}, rows after balancing", kept, "rows", budget, kept / budget, "exactly 1", kept == budget
                )
            )
            return cost

    def memory(self, *kinds: str) -> None:
        """Whether the driver's memory grew with the pool."""
        for kind in kinds:
            if kind not in self._before or self._first[kind][0] == self._before[kind][0]:
                continue
            (small, first), (large, last) = self._first[kind], self._before[kind]
            for who, before, after, goal in (
                ("driver", first.driver_mib, last.sum().driver_mib, True),
                ("largest worker", first.worker_mib, last.sum().worker_mib, False),
            ):
                ratio = after / before
                judged = (f"at most {FLAT}", ratio <= FLAT) if goal else ("", None)
                self.report(
                    Figure(
                        f"{kind}, memory of {who}, {large:,} rows against {small:,}",
                        after,
                        "MiB",
                        before,
                        ratio,
                        *judged,
                    )
                )

    @contextmanager
    def _pool(self, size: int, dimensions: int | None) -> Iterator[tuple[Path, Planted]]:
        with scratch(self.options.data) as folder:
            rows = plant(size, dimensions)
            write_pool(folder, rows, self.options.chunk_rows)
            note(f"{size:,} rows made")
            yield folder, rows

    def _select(
        self, folder: Path, size: int, embedding: bool, name: str, config: dict[str, Any], most_links: int = MOST_LINKS
    ) -> Cost:
        options = self.options
        task = Task(str(folder), name, size, options.chunk_rows, embedding, config, options.workers, most_links)
        return self.select(task)

    def _steps(self, kind: str, size: int, cost: Cost, most: float) -> None:
        before = self._before.get(kind)
        for step in [*cost.steps, cost.sum()]:
            name = f"{kind}, {size:,} rows, {step.name}"
            detail = _detail(step, size)
            if before is None or size != 10 * before[0]:
                self.report(Figure(name, step.cpu_seconds, "CPU s", detail=detail))
                continue
            earlier = before[1].sum() if step.name == "all" else before[1].sum(step.name)
            growth = step.cpu_seconds / max(earlier.cpu_seconds, 0.01)
            judged = step.name == "all"
            self.report(
                Figure(
                    name,
                    step.cpu_seconds,
                    "CPU s",
                    earlier.cpu_seconds,
                    growth,
                    f"at most {most:.0f}" if judged else "",
                    growth <= most if judged else None,
                    detail=detail,
                )
            )
        self._before[kind] = size, cost
        self._first.setdefault(kind, (size, cost.sum()))

    def _price(self, name: str, step: StepCost, kernels: float) -> None:
        ratio = step.cpu_seconds / max(kernels, 1e-9)
        detail = {"wall s": step.seconds, "workers": self.options.workers}
        self.report(
            Figure(f"{name} against the kernels in memory", step.cpu_seconds, "CPU s", kernels, ratio, detail=detail)
        )

    def _share(self, name: str, share: float, least: float) -> None:
        self.report(Figure(name, share, "", 1.0, share, f"at least {least:g}", share >= least))


def _detail(step: StepCost, size: int) -> dict[str, Any]:
    return {
        "wall s": step.seconds,
        "us a row": 1e6 * step.cpu_seconds / size,
        "bytes a row": step.written / size,
        "tasks": step.tasks,
        "driver MiB": step.driver_mib,
        "worker MiB": step.worker_mib,
    }


def main(select: Selecting = select_apart) -> None:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "--sizes", type=int, nargs="*", default=[10_000, 100_000, 1_000_000], help="rows, hashes only"
    )
    arguments.add_argument("--embedded", type=int, nargs="*", default=[10_000, 100_000], help="rows with embeddings")
    arguments.add_argument("--dimensions", type=int, default=512)
    arguments.add_argument("--levels", type=int, nargs="+", default=[256, 16], help="of the clusters of the balance")
    arguments.add_argument("--chunk-rows", type=int, default=4096)
    arguments.add_argument("--plan", action="store_true", help="print what 1 and 4 billion rows cost")
    arguments.add_argument("--calibrate", type=int, nargs=2, default=[1 << 20, 1 << 13], help="hashes, embeddings")
    options = arguments.parse_args()
    if options.plan and not (options.sizes and options.embedded):
        arguments.error("--plan needs constants of hashes and of embeddings: give both --sizes and --embedded")
    report = Report(options.json)
    bench = Bench(report, options, select)
    costs = [bench.hashes(size) for size in options.sizes]
    bins = bench.components(options.sizes[-1]) if options.sizes else None
    embedded = [bench.embeddings(size) for size in options.embedded]
    bench.memory("hashes", "embeddings")
    if options.plan and bins is not None:
        show = note if options.json else print
        constants = measured_constants(
            costs[-1],
            options.sizes[-1],
            bins,
            embedded[-1],
            options.embedded[-1],
            options.dimensions,
            options.levels,
            hash_kernels(options.calibrate[0]),
            vector_kernels(options.calibrate[1]),
        )
        show(str(constants))
        for rows in (10**9, 4 * 10**9):
            for radius in (4, 8):
                show(plan_text(rows, radius, 768, scale_plan(rows, constants, radius)))
    if not all(figure.met in (None, True) for figure in report.figures if "same as" in figure.name):
        raise SystemExit("the distributed selection and the kernels in memory do not agree")


if __name__ == "__main__":
    main()
