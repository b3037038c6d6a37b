"""Candidates are the rows that pass, under their global numbers, however chunks are dealt to batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from curation.dedup import quality_order
from curation.policy import Limit, Policy, PolicyConfig
from pipeline.plan import Plan
from pipeline.scores import ScoreTable, part_name
from pipeline.select import candidates
from pipeline.select.candidates import Layout, ReadScores, hash_usable
from pipeline.select.config import SelectConfig
from pipeline.storage import Storage
from tests.fixtures.counting import BrightnessScorer, MeanScorer, locator_table, locators, stage_set
from tests.fixtures.selection import POLICY, STAGES, Picture, Run


def reader(run: Run) -> ReadScores:
    return ReadScores(run.storage, run.plan, STAGES, POLICY)


def test_candidates_are_the_rows_that_pass_with_their_global_numbers(tmp_path: Path) -> None:
    storage, stages = Storage(tmp_path), stage_set(MeanScorer(), BrightnessScorer())
    policy = Policy(PolicyConfig(too_small=Limit(min=10), person_too_small=None), stages.names)
    for chunk in range(3):
        table = ScoreTable(locator_table(locators(3)), stages.columns)
        for at in range(3):
            for stage in stages:
                table.scored[stage.name][at] = stage.name != "read"
            table.set(at, {
                "width": 20, "height": 10 + at, "short_side": 10 * at, "bytes": None if at == 1 else 50,
                "sha256": f"{chunk}{at}", "phash": at, "phash_degenerate": False, "aesthetic": 0.5,
                "person_count": 1, "local_entropy": 5,
            })  # fmt: skip
        if chunk == 1:
            table.fail(2, "person", "scorer_failed", "boom")
        storage.write_table(part_name(chunk), table.to_table({"fingerprints": stages.fingerprints}))
    counts = np.array([3, 3, 3])
    plan = Plan(storage, counts, counts, counts, "x", {})
    assert plan.groups == [(0, 3)]
    scores = ReadScores(storage, plan, stages, policy)
    read = scores.passing(0, ("pixels", "bytes", "aesthetic"), frozenset({"sha256", "height", "not_measured"}))
    assert read.column_names == ["row", "id", "quality_0", "quality_1", "quality_2", "height", "sha256"]
    assert read.column("row").to_pylist() == [1, 2, 4, 7, 8]
    assert read.column("id").to_pylist() == [locators(3)[at].id for at in (1, 2, 1, 1, 2)]
    assert read.column("sha256").to_pylist() == ["01", "02", "11", "21", "22"]
    assert read.column("height").to_pylist() == [11, 12, 11, 11, 12]
    assert read.column("quality_0").to_pylist() == [220, 240, 220, 220, 240]
    assert np.isnan(read.column("quality_1").to_numpy()).tolist() == [True, False, True, True, False]
    assert read.column("quality_2").to_pylist() == [0.5] * 5
    assert scores.passing(0, (), frozenset()).column_names == ["row", "id"]


def test_batches_are_runs_of_groups_and_no_more_than_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Run(tmp_path, [Picture(str(number), "x") for number in range(23)], chunk_rows=3).plan
    layout = Layout(plan)
    assert layout.batches == [(group, group + 1) for group in range(8)]
    assert layout.first_row.tolist() == [0, 3, 6, 9, 12, 15, 18, 21, 23]
    assert layout.group_rows(7) == (21, 2)
    monkeypatch.setattr(candidates, "MOST_BATCHES", 3)
    few = Layout(plan)
    assert few.batches == [(0, 3), (3, 6), (6, 8)]
    assert few.first_row.tolist() == [0, 9, 18, 23]
    assert few.batch_of(np.array([0, 8, 9, 17, 18, 22])).tolist() == [0, 0, 1, 1, 2, 2]
    none = np.empty(0, np.int64)
    empty = Layout(Plan(plan.storage, none, none, none, "x", {}))
    assert (empty.batches, empty.first_row.tolist()) == ([], [0])


def test_a_column_of_chosen_rows_across_chunks(tmp_path: Path) -> None:
    run = Run(tmp_path, [Picture(str(at), "x", phash=None if at == 5 else 2**63 + at) for at in range(10)], 3)
    run.plan.__dict__["groups"] = [(0, 3), (3, 4)]
    read = reader(run)
    found = read.column(0, "phash", np.array([1, 2, 3, 5, 8]))
    assert found.type == pa.uint64()
    assert found.to_pylist() == [2**63 + 1, 2**63 + 2, 2**63 + 3, None, 2**63 + 8]
    # Rows of other groups are not this group's.
    assert read.column(1, "phash", np.array([1, 8, 9])).to_pylist() == [2**63 + 9]
    assert read.column(1, "embedding", np.array([0])).to_pylist() == []
    assert read.column(0, "embedding", np.empty(0, np.int64)).type == pa.list_(pa.float16())


def test_embeddings_of_chosen_rows_group_by_group(tmp_path: Path) -> None:
    pictures = [Picture(str(at), "x", vector=None if at in (2, 6, 7, 8) else (at, 1)) for at in range(12)]
    run = Run(tmp_path, pictures, 3)
    parts = list(reader(run).embeddings((0, 4), np.array([0, 2, 4, 6, 7, 8, 11])))
    assert [rows.tolist() for rows, _ in parts] == [[0], [4], [11]]
    assert [vectors.tolist() for _, vectors in parts] == [[[0, 1]], [[4, 1]], [[11, 1]]]
    assert all(vectors.dtype == np.float16 for _, vectors in parts)
    # Only the groups asked for.
    assert [rows.tolist() for rows, _ in reader(run).embeddings((1, 3), np.arange(12))] == [[3, 4, 5]]
    assert list(reader(run).embeddings((0, 4), np.array([2, 7]))) == []
    assert list(reader(run).embeddings((0, 4), np.empty(0, np.int64))) == []


def test_a_hash_that_is_missing_or_flat_cannot_be_compared() -> None:
    columns = {
        "phash": pa.chunked_array([[1, None], [3, 4, None]], pa.uint64()),
        "phash_degenerate": pa.chunked_array([[False, False, True], [None, None]], pa.bool_()),
    }
    assert hash_usable(columns).tolist() == [True, False, False, False, False]
    assert hash_usable(pa.table(columns)).tolist() == [True, False, False, False, False]
    assert hash_usable(pa.table(columns).slice(0, 0)).tolist() == []


def test_an_original_outranks_its_padded_and_its_cmyk_copy(tmp_path: Path) -> None:
    stages = stage_set(MeanScorer())
    storage = Storage(tmp_path)
    found = locators(4)
    table = ScoreTable(locator_table(found), stages.columns)
    # A CMYK copy, the original, a copy in a white frame, a grey copy; the original has the fewest bytes.
    modes = ["CMYK", "RGB", "RGB", "L"]
    sizes = [(20, 10, 1.0, 90), (20, 10, 1.0, 50), (30, 20, 0.32, 99), (20, 10, None, 70)]
    for at, (mode, (width, height, share, size)) in enumerate(zip(modes, sizes, strict=True)):
        for stage in stages:
            table.scored[stage.name][at] = stage.name != "read"
        table.set(at, {"width": width, "height": height, "mode": mode, "content_share": share, "bytes": size})
    storage.write_table(part_name(0), table.to_table({"fingerprints": stages.fingerprints}))
    counts = np.array([len(found)])
    rules = {**dict.fromkeys(PolicyConfig.model_fields), "blocked": False, "opted_out": False}
    nothing = PolicyConfig.model_validate(rules)
    scores = ReadScores(storage, Plan(storage, counts, counts, counts, "x", {}), stages, Policy(nothing, stages.names))
    read = scores.passing(0, SelectConfig().quality, frozenset())
    quality = np.stack([read.column(f"quality_{at}").to_numpy() for at in range(3)], axis=1)
    np.testing.assert_allclose(quality[:, 0], [200, 200, 192, 200], rtol=1e-6)
    assert quality[:, 1].tolist() == [0, 2, 2, 1]
    assert quality_order(quality, [str(at) for at in range(len(found))])[0] == 1
