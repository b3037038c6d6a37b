"""The Ray graph: one operator or several, a worker that dies, a run that stalls on nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from curation.config import fingerprint
from curation.decode import DecodeConfig
from curation.policy import Limit, Policy, PolicyConfig
from curation.scorers.base import ResourceConfig, Scorer
from curation.scorers.header import HeaderScorer
from curation.scorers.screen import ScreenScorer
from curation.sources import FolderConfig, open_source
from pipeline.annotate import AnnotateSpec, FindDone, PoolSizes, Summary, annotate, chunks_with_parts
from pipeline.fetch import Reader
from pipeline.plan import list_unit, make_plan
from pipeline.scores import part_name
from pipeline.stages import assemble
from pipeline.storage import Storage
from tests.fixtures import pool
from tests.fixtures.scorers import EmbeddingScorer, KillingScorer, MeanConfig, MeanScorer, NormScorer

pytestmark = pytest.mark.usefixtures("ray_cluster")

POOLS = PoolSizes(cpus=2, gpus=0)
DEAD = ("truncated", "empty", "not_an_image", "too_small")
"""Outcomes of the test pool that end a row before it reaches a scorer."""


def make_spec(folder: Path, run: Path, scorers: list[Scorer], chunk_rows: int = 8) -> AnnotateSpec:
    decode = DecodeConfig()
    stages = assemble(scorers, HeaderScorer(decode), ScreenScorer(None, decode), fingerprint(decode))
    policy = Policy(
        PolicyConfig(too_small=Limit(min=64), low_entropy=None, person_too_small=None, no_person=Limit(min=1)),
        stages.names,
    )
    storage = Storage(run)
    source = open_source(FolderConfig(path=str(folder)))
    plan = make_plan(
        storage,
        source,
        source.units(),
        chunk_rows,
        lambda items: ((ordinal, list_unit(storage, source, ordinal, unit, chunk_rows)) for ordinal, unit in items),
    )
    return AnnotateSpec(storage, plan, Reader(storage, source), stages, policy, decode)


def parts(spec: AnnotateSpec) -> list[bytes]:
    return [spec.storage.read_bytes(part_name(chunk)) for chunk in range(len(spec.plan))]


def scorers(embedding_cpus: float = 1.0) -> list[Scorer]:
    apart = MeanConfig(resources=ResourceConfig(num_cpus=embedding_cpus))
    return [MeanScorer(MeanConfig()), EmbeddingScorer(apart), NormScorer(MeanConfig())]


def test_one_operator_and_two_operators_write_the_same_parts(tmp_path: Path) -> None:
    """Unequal resources split the graph, as a GPU would: pixels of living rows are then handed over."""
    folder = tmp_path / "pool"
    pool.write_folder(folder, 60)
    one = make_spec(folder, tmp_path / "one", scorers())
    two = make_spec(folder, tmp_path / "two", scorers(embedding_cpus=0.5))
    assert [len(spec.stages.groups()) for spec in (one, two)] == [1, 2]
    for spec, pools in ((one, PoolSizes(cpus=2, gpus=0, max_workers=1)), (two, POOLS)):
        summaries = list(annotate(spec, list(range(len(spec.plan))), pools))
        assert sorted(summary.chunk for summary in summaries) == list(range(len(spec.plan)))
        assert sum(summary.rows for summary in summaries) == 60
    assert parts(one) == parts(two)
    table = pq.read_table(tmp_path / "two" / "work" / "scores")
    alive = [row for row in table.to_pylist() if row["scored_embedding"]]
    assert len(alive) == sum(outcome not in DEAD for *_, outcome in pool.inputs(60))
    assert all(len(row["embedding"]) == 12 for row in alive)


def test_a_row_that_kills_its_worker_is_named_and_the_others_are_measured(tmp_path: Path) -> None:
    folder = tmp_path / "pool"
    pool.write_folder(folder, 20)
    (folder / "00/00004a.png").write_bytes(pool.encode(Image.new("RGB", (96, 96), (255, 0, 0)), kind="PNG"))
    spec = make_spec(folder, tmp_path / "run", [KillingScorer(MeanConfig())])
    summaries = list(annotate(spec, list(range(len(spec.plan))), POOLS))
    assert sum(summary.rows for summary in summaries) == 21
    rows = pq.read_table(tmp_path / "run" / "work" / "scores").to_pylist()
    crashed = [row["uri"] for row in rows if row["problem"] == "worker_crashed"]
    assert crashed == ["00/00004a.png"]
    sound = [outcome for *_, outcome in pool.inputs(20) if outcome not in DEAD]
    assert sum(row["scored_person"] for row in rows) == len(sound)
    assert spec.storage.names("work/attempts") == []


def test_only_missing_chunks_are_pending_and_summaries_count_living_rows(tmp_path: Path) -> None:
    folder = tmp_path / "pool"
    pool.write_folder(folder, 40)
    spec = make_spec(folder, tmp_path / "run", scorers())
    summaries = list(annotate(spec, [0, 2], POOLS))
    assert all(isinstance(summary, Summary) for summary in summaries)
    passed = [outcome not in DEAD for *_, outcome in pool.inputs(40)]
    counts = [(chunk, 8, sum(passed[8 * chunk : 8 * chunk + 8])) for chunk in (0, 2)]
    assert sorted((summary.chunk, summary.rows, summary.alive) for summary in summaries) == counts
    assert chunks_with_parts(spec) == [0, 2]
    done = FindDone(spec)([0, 2])
    assert [(summary.chunk, summary.rows, summary.alive) for summary in done] == counts
    passing = Policy(spec.policy.config, spec.stages.names)
    assert passing.columns == spec.policy.columns
    # A part that is cut short does not count as done.
    table = pq.read_table(tmp_path / "run" / part_name(2))
    spec.storage.write_table(part_name(2), table.slice(0, 5))
    assert [summary.chunk for summary in FindDone(spec)([0, 2])] == [0]


def test_nothing_to_do_is_nothing_done(tmp_path: Path) -> None:
    folder = tmp_path / "pool"
    pool.write_folder(folder, 10)
    spec = make_spec(folder, tmp_path / "run", scorers())
    assert list(annotate(spec, [], POOLS)) == []


@pytest.mark.parametrize(
    ("cpus", "gpus", "workers", "need", "expected"),
    [
        (2, 0, None, (1, 0), (2, 2)),
        (1, 0, None, (2, 0), (1, 1)),
        (64, 8, None, (2, 0.5), (16, 16)),
        (0, 0, 32, (1, 1), (1, 32)),
        (64, 0, 8, (1, 0), (8, 8)),
    ],
)
def test_pools_start_at_the_width_of_the_cluster(
    cpus: float, gpus: float, workers: int | None, need: tuple[float, float], expected: tuple[int, int]
) -> None:
    assert PoolSizes(cpus, gpus, workers).size(*need, operators=1, chunks=1000) == expected
