"""Builds the demo pool: `folder/` and `tars/`, each a source of its own, with its truth beside it.

    OUT/folder/...             source.kind=folder      source.path=OUT/folder
    OUT/tars/...               source.kind=webdataset  source.path=OUT/tars
    OUT/folder.truth.parquet   what is known of each input (`pipeline.demo.truth.TRUTH_SCHEMA`)
    OUT/tars.truth.parquet
    OUT/blocked.txt            SHA-256 of the pictures that a block list should stop, one a line
    OUT/demo-pool.json         seed, number of inputs, photographs and Pillow version

The bytes are a function of the seed, the number of inputs, the installed photographs and the version of Pillow (whose
encoders may change); not of the number of processes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import PIL
import pyarrow as pa
import pyarrow.parquet as pq

from curation.records import record_id
from pipeline.demo import pictures
from pipeline.demo.families import acceptable_labels, conflicts
from pipeline.demo.make import Made, make
from pipeline.demo.placement import in_folder, write_folder, write_tars
from pipeline.demo.plan import KINDS, Order, plan
from pipeline.demo.tars import write
from pipeline.demo.truth import Truth, to_table

MARKER = "demo-pool.json"
MAX_ATTEMPTS = 60

Job = tuple[Order, int, int, Made | None]


@dataclass(frozen=True, slots=True)
class PoolTruth:
    """Where a pool is and what is in it.

    Attributes:
        root: the folder that was built.
        folder: truth of `root/folder`, schema `TRUTH_SCHEMA`.
        tars: truth of `root/tars`.
        photographs: names of the sample photographs that it was made from.
    """

    root: Path
    folder: pa.Table
    tars: pa.Table
    photographs: tuple[str, ...]

    @property
    def blocked(self) -> Path:
        """The block list."""
        return self.root / "blocked.txt"


def build_pool(output_dir: str | Path, seed: int = 0, inputs: int = 2000, processes: int | None = None) -> PoolTruth:
    """Build a pool.

    Args:
        output_dir: is created; a demo pool that is there already is replaced.
        seed: any integer.
        inputs: number of inputs in both parts together, at least `plan.MIN_INPUTS`.
        processes: worker processes; None for one per core, at most 4. 1 works in this process.

    Raises:
        ValueError: too few inputs.
        FileExistsError: `output_dir` holds something that is not a demo pool.
        RuntimeError: no sample photograph with a person is installed.
    """
    orders = plan(inputs)
    root = Path(output_dir)
    names = tuple(item.name for item in pictures.available())
    _clear(root)
    facts = pool_facts(seed, inputs)
    write(root / MARKER, json.dumps(facts, indent=1).encode())
    made = _make_all(orders, seed, processes)
    acceptable = acceptable_labels(orders, made)

    def truth(order: Order, uri: str, member: str) -> Truth:
        item, kind = made[order.index], KINDS[order.kind]
        return Truth(
            record_id(uri, member),
            uri,
            member,
            kind.expected,
            acceptable[order.index],
            order.group,
            order.kind,
            item.transform,
            item.is_person,
            item.note,
            item.phash,
        )

    filed = [order for order in orders if in_folder(order, made)]
    packed = [order for order in orders if not in_folder(order, made)]
    result = PoolTruth(
        root,
        to_table(write_folder(root / "folder", filed, made, seed, truth)),
        to_table(write_tars(root / "tars", packed, made, seed, truth)),
        names,
    )
    blocked = sorted(hashlib.sha256(made[order.index].data).hexdigest() for order in orders if order.kind == "blocked")
    write(result.blocked, "".join(f"{line}\n" for line in blocked).encode())
    pq.write_table(result.folder, root / "folder.truth.parquet")
    pq.write_table(result.tars, root / "tars.truth.parquet")
    return result


def pool_facts(seed: int, inputs: int) -> dict[str, Any]:
    """What fixes the bytes of a pool: equal facts, equal pool."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    names = [item.name for item in pictures.available()]
    return {
        "seed": seed,
        "inputs": inputs,
        "photographs": names,
        "pillow": PIL.__version__,
        "generator": digest.hexdigest()[:16],
    }


def _clear(root: Path) -> None:
    if root.exists() and any(root.iterdir()):
        if not (root / MARKER).is_file():
            raise FileExistsError(f"{root} is not empty and holds no demo pool: give an empty or a new folder")
        for name in ("folder", "tars"):
            shutil.rmtree(root / name, ignore_errors=True)
        for name in ("folder.truth.parquet", "tars.truth.parquet", "blocked.txt"):
            (root / name).unlink(missing_ok=True)


def _make_all(orders: Sequence[Order], seed: int, processes: int | None) -> dict[int, Made]:
    """All inputs by index. Pictures that resemble another family are made again, in the order of the plan."""
    count = min(4, os.cpu_count() or 1) if processes is None else processes
    attempts = dict.fromkeys((order.index for order in orders), 0)
    made: dict[int, Made] = {}
    with _mapper(count) as run:
        todo = [order for order in orders if order.origin is None]
        while todo:
            jobs: list[Job] = [(order, seed, attempts[order.index], None) for order in todo]
            made.update(zip((order.index for order in todo), run(jobs), strict=True))
            todo = conflicts(orders, made)
            for order in todo:
                attempts[order.index] += 1
                if attempts[order.index] > MAX_ATTEMPTS:
                    raise RuntimeError(
                        f"no picture for {order} differs enough from the others: ask for fewer inputs, or install "
                        "more sample photographs (populace[demo])"
                    )
        derived = [order for order in orders if order.origin is not None]
        jobs = [(order, seed, 0, made[order.origin or 0]) for order in derived]
        made.update(zip((order.index for order in derived), run(jobs), strict=True))
    return made


@contextmanager
def _mapper(processes: int) -> Iterator[Callable[[Iterable[Job]], Iterable[Made]]]:
    """A map over jobs that keeps their order."""
    if processes <= 1:
        yield lambda jobs: map(_run, jobs)
        return
    # Spawned, not forked: the caller may have threads.
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield lambda jobs: executor.map(_run, jobs, chunksize=8)


def _run(job: Job) -> Made:
    order, seed, attempt, origin = job
    return make(order, seed, attempt, origin)


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m pipeline.demo.pool OUT --inputs N --seed S`."""
    parser = argparse.ArgumentParser(description="Build the demo pool: pictures with known truth.")
    parser.add_argument("output", help="folder to build it in")
    parser.add_argument("--inputs", type=int, default=2000, help="number of inputs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="any integer (default: %(default)s)")
    parser.add_argument(
        "--processes", type=int, default=None, help="worker processes (default: one per core, at most 4)"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    start = time.perf_counter()
    try:
        pool = build_pool(options.output, options.seed, options.inputs, options.processes)
    except (ValueError, FileExistsError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    seconds = time.perf_counter() - start
    print(
        f"{len(pool.folder)} inputs in {pool.root / 'folder'}, {len(pool.tars)} in {pool.root / 'tars'}, "
        f"from {len(pool.photographs)} photographs, in {seconds:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
