"""The annotate pass in its steady state, on Ray as in a real run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import ray

from curation.policy import Policy
from curation.sources import open_source
from eval.benchmarks.common import CpuMeter, Rate
from pipeline.annotate import AnnotateSpec, PoolSizes, annotate
from pipeline.config import PopulaceConfig, load_config, parse_config
from pipeline.curate import build_stages
from pipeline.fetch import Reader
from pipeline.plan import list_unit, make_plan
from pipeline.resources import ray_cluster
from pipeline.scores import part_name
from pipeline.storage import Storage

NO_POLICY: dict[str, Any] = {
    "too_small": None,
    "aspect_ratio": None,
    "low_entropy": None,
    "no_person": None,
    "person_too_small": None,
    "low_aesthetic": None,
    "not_photo": None,
    "text_overlay": None,
}
"""A policy that lets every row through."""


def screen_config(pool: Path, output: Path, **sections: Any) -> PopulaceConfig:
    """Header and screen only, nothing dropped, unless `sections` say otherwise."""
    data: dict[str, Any] = {
        "output": str(output),
        "source": {"kind": "folder", "path": str(pool)},
        "scorers": {"safety": None},
        "policy": dict(NO_POLICY),
    }
    return parse_config(data | sections)


def recipe_config(recipe: Path, pool: Path, output: Path, *overrides: str) -> PopulaceConfig:
    """A recipe of `configs/` over a folder of images."""
    return load_config(recipe, ["source.kind=folder", f"source.path={pool}", f"output={output}", *overrides])


def make_spec(config: PopulaceConfig) -> AnnotateSpec:
    """What `populace curate` has in hand when it begins to annotate: the listing is done, the models are found."""
    stages = build_stages(config)
    source = open_source(config.pool)
    storage = Storage(config.output)

    def run_units(items: Any) -> Any:
        return [(ordinal, list_unit(storage, source, ordinal, unit, config.chunk_rows)) for ordinal, unit in items]

    plan = make_plan(storage, source, source.units(), config.chunk_rows, run_units)
    policy = Policy(config.policy, stages.names)
    return AnnotateSpec(storage, plan, Reader(storage, source), stages, policy, config.decode)


def steady_annotate(config: PopulaceConfig, workers: int) -> Rate:
    """Rate of the annotate pass between its start-up and its tail, with `workers` actors in a cluster of its own.

    The clock is the time at which chunks are published. It runs from when as many chunks are done as there are workers
    to when so few are left that a worker may have none; the chunks published between count.

    Raises:
        ValueError: too few chunks to see a steady state.
    """
    spec = make_spec(config)
    chunks = len(spec.plan)
    if chunks < 4 * workers:
        raise ValueError(
            f"{chunks} chunks on {workers} workers show no steady state: at least {4 * workers} are needed; "
            "use a larger pool or a smaller chunk_rows"
        )
    cluster = config.ray.model_copy(update={"num_cpus": workers})
    with ray_cluster(cluster, None), CpuMeter() as meter:
        resources = ray.cluster_resources()
        pools = PoolSizes(resources.get("CPU", 1), resources.get("GPU", 0))
        alive = sum(summary.alive for summary in annotate(spec, list(range(chunks)), pools))
        meter.sample()
    published = np.array([Path(spec.storage.path(part_name(chunk))).stat().st_mtime for chunk in range(chunks)])
    order = np.argsort(published)
    first, last = workers - 1, chunks - 1 - workers
    start, stop = published[order[first]], published[order[last]]
    rows = int(spec.plan.rows[order[first + 1 : last + 1]].sum())
    return Rate(rows, float(stop - start), meter.between(start, stop), {"alive": alive})
