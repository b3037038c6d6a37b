"""A whole run, as a user relies on it: counts add up, nothing is measured twice, the same run gives the same bytes."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from curation.manifest import verify_shards
from pipeline.config import ConfigError, parse_config
from pipeline.curate import CurateResult, curate
from pipeline.ledger import funnel
from pipeline.progress import RunProgress
from pipeline.rundir import RunConflictError
from pipeline.storage import Storage
from tests.fixtures import pool

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT = 100
SCORED = 60
BASE: dict[str, Any] = {
    "policy": {"no_person": None, "person_too_small": None},
    "scorers": {"person": {"kind": "cascade", "max_side": 96}, "aesthetic": {"kind": "photographic"}},
}
"""Two small models of this machine."""


def run(data: dict[str, Any], **options: bool) -> CurateResult:
    return curate(parse_config(data), RunProgress(Console(quiet=True), quiet=True), **options)


def ledger(output: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted((output / "ledger").glob("*.parquet"))])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Counter[str]]:
    folder = tmp_path_factory.mktemp("pool")
    return folder, pool.write_folder(folder, COUNT)


@pytest.fixture(scope="module")
def finished(source: tuple[Path, Counter[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("runs") / "reference"
    run(pool.config(source[0], output, ray={"max_workers": 2}))
    return output


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pool and its run with `BASE`."""
    folder = tmp_path_factory.mktemp("scored")
    pool.write_folder(folder / "pool", SCORED)
    run(pool.config(folder / "pool", folder / "run", **BASE))
    return folder


@pytest.fixture
def copied(scored: Path, tmp_path: Path) -> Path:
    """A copy of `scored` that may be spoilt, as if the run had been made here."""
    shutil.copytree(scored, tmp_path, dirs_exist_ok=True)
    record = tmp_path / "run/run.json"
    record.write_bytes(record.read_bytes().replace(str(scored).encode(), str(tmp_path).encode()))
    return tmp_path


def test_counts_add_up_and_every_outcome_is_as_made(source: tuple[Path, Counter[str]], finished: Path) -> None:
    counts = funnel(Storage(finished))
    expected = dict(source[1])
    assert counts["kept"] == expected.pop("kept")
    assert counts["dropped"] == expected
    assert counts["inputs"] == COUNT == counts["kept"] + sum(counts["dropped"].values())


def test_ledger_has_one_row_for_each_input_in_source_order(source: tuple[Path, Counter[str]], finished: Path) -> None:
    table = ledger(finished)
    names = sorted(path.relative_to(source[0]).as_posix() for path in source[0].rglob("*") if path.is_file())
    assert table.column("uri").to_pylist() == names
    assert len(set(table.column("id").to_pylist())) == COUNT
    rows = pool.inputs(COUNT)
    expected = {name: outcome for name, _, outcome in rows}
    found = {row["uri"]: row["reason"] or "kept" for row in table.select(["uri", "reason"]).to_pylist()}
    for number in range(3, COUNT, 10):
        # Of two equal files the smaller id survives, whichever that is.
        pair = rows[number - 3][0], rows[number][0]
        assert sorted(found.pop(name) for name in pair) == sorted(expected.pop(name) for name in pair)
    assert found == expected


def test_duplicates_name_a_kept_row_and_the_true_distance(finished: Path) -> None:
    rows = {row["id"]: row for row in ledger(finished).to_pylist()}
    dropped = [row for row in rows.values() if row["duplicate_of"] is not None]
    assert len(dropped) == COUNT // 5
    for row in dropped:
        keeper = rows[row["duplicate_of"]]
        assert keeper["verdict"] == "kept"
        assert row["distance"] == bin(row["phash"] ^ keeper["phash"]).count("1") <= 4
        if row["reason"] == "exact_duplicate":
            assert row["sha256"] == keeper["sha256"]
    kept = [row["phash"] for row in rows.values() if row["verdict"] == "kept" and not row["phash_degenerate"]]
    assert all(bin(a ^ b).count("1") > 4 for i, a in enumerate(kept) for b in kept[:i])


def test_limits_are_recorded_with_the_score_that_broke_them(finished: Path) -> None:
    for row in ledger(finished).to_pylist():
        if row["reason"] == "too_small":
            assert (row["column"], row["score"], row["threshold"]) == ("short_side", row["short_side"], 64)
            assert row["phash"] is None  # the header dropped it: not a pixel was decoded
        if row["reason"] == "low_entropy":
            assert row["score"] == pytest.approx(row["local_entropy"])
            assert row["score"] < row["threshold"] == 3.0


def test_shards_hold_the_original_bytes_of_the_kept_rows(source: tuple[Path, Counter[str]], finished: Path) -> None:
    assert verify_shards(finished / "shards") == []
    index = pa.concat_tables([pq.read_table(path) for path in sorted((finished / "shards/index").glob("*"))])
    rows = {row["id"]: row for row in ledger(finished).to_pylist() if row["verdict"] == "kept"}
    assert sorted(index.column("id").to_pylist()) == sorted(rows)
    for entry in index.to_pylist():
        data = (finished / "shards" / f"{entry['shard']}.tar").read_bytes()
        image = data[entry["image_offset"] : entry["image_offset"] + entry["image_size"]]
        assert image == (source[0] / rows[entry["id"]]["uri"]).read_bytes()


def test_second_call_measures_nothing_and_changes_nothing(source: tuple[Path, Counter[str]], finished: Path) -> None:
    before = pool.results(finished)
    stamps = {path: path.stat().st_mtime_ns for path in finished.rglob("*.parquet")}
    result = run(pool.config(source[0], finished))
    assert result.annotated == 0
    assert pool.results(finished) == before
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*.parquet")} == stamps


def test_same_bytes_on_another_run_whatever_the_workers(
    source: tuple[Path, Counter[str]], finished: Path, tmp_path: Path
) -> None:
    run(pool.config(source[0], tmp_path / "again"))  # on one
    assert pool.results(tmp_path / "again") == pool.results(finished)


def test_another_chunk_size_gives_the_same_verdicts_and_the_same_tars(
    source: tuple[Path, Counter[str]], finished: Path, tmp_path: Path
) -> None:
    run(pool.config(source[0], tmp_path / "again", chunk_rows=7))
    columns = ["id", "verdict", "reason", "duplicate_of", "distance", "phash"]
    assert ledger(tmp_path / "again").select(columns).equals(ledger(finished).select(columns))
    ours, theirs = pool.results(tmp_path / "again")["shards"], pool.results(finished)["shards"]
    assert {n: b for n, b in ours.items() if n.endswith(".tar")} == {
        n: b for n, b in theirs.items() if n.endswith(".tar")
    }


def test_tightening_decides_from_the_ledger_without_the_source(copied: Path) -> None:
    folder, output = copied / "pool", copied / "run"
    # Make every picture unreadable without changing the listing: a decode would turn rows into read errors.
    for path in folder.rglob("*.*"):
        path.write_bytes(b"\0" * path.stat().st_size)
    data = pool.config(folder, output, **BASE)
    data["policy"] |= {"low_entropy": {"min": 9.0}}
    result = run(data)
    assert result.annotated == 0
    assert result.kept == 0
    expected = Counter(outcome for *_, outcome in pool.inputs(SCORED))
    passing = sum(expected[name] for name in ("kept", "exact_duplicate", "near_duplicate", "low_entropy"))
    assert result.dropped["low_entropy"] == passing


def test_relaxing_measures_only_the_rows_that_it_lets_through(copied: Path) -> None:
    folder, output = copied / "pool", copied / "run"
    for name, _, outcome in pool.inputs(SCORED):
        if outcome != "too_small":
            (folder / name).write_bytes(b"\0" * (folder / name).stat().st_size)
    # Only the small pictures can still be read. Decoding any other row again would show.
    columns = ["id", "sha256", "phash", "aesthetic", "person_count"]
    before = ledger(output).select(columns)
    data = pool.config(folder, output, **BASE)
    data["policy"] |= {"too_small": {"min": 20}}
    with pytest.raises(Exception, match="source changed"):  # export reads kept rows again, and says so
        run(data)
    after = ledger(output)
    assert Counter(after.column("reason").to_pylist())["too_small"] == 0
    small = [row for row in after.to_pylist() if row["short_side"] == 30]
    assert len(small) == SCORED // 10
    assert all(None not in (row["phash"], row["aesthetic"], row["person_count"]) for row in small)
    old = {row["id"]: row for row in before.to_pylist() if row["phash"] is not None}
    new = {row["id"]: row for row in after.select(columns).to_pylist()}
    assert old
    assert all(new[key] == row for key, row in old.items())


def test_a_changed_model_invalidates_its_own_columns_alone(copied: Path) -> None:
    part = copied / "run" / "work" / "scores" / "part-00000000.parquet"
    before = pq.read_table(part)
    scorers = {**BASE["scorers"], "person": {"kind": "cascade", "max_side": 112}}
    result = run(pool.config(copied / "pool", copied / "run", **{**BASE, "scorers": scorers}))
    after = pq.read_table(part)
    assert result.annotated > 0
    same = [name for name in before.column_names if not name.startswith(("person", "face"))]
    assert after.select(same).equals(before.select(same))
    old, new = (table.schema.metadata[b"populace"] for table in (before, after))
    assert old != new


def test_other_inputs_are_refused_and_new_sets_the_old_run_aside(copied: Path) -> None:
    second, output = copied / "second", copied / "run"
    pool.write_folder(second, 30)
    before = pool.results(output)
    with pytest.raises(RunConflictError, match=r"source\.path"):
        run(pool.config(second, output))
    assert pool.results(output) == before
    result = run(pool.config(second, output), new=True)
    assert result.inputs == 30
    assert pool.results(copied / "run.old-1") == before


def test_a_source_that_changed_is_refused(copied: Path) -> None:
    (copied / "pool/00/more.jpg").write_bytes(pool.encode(pool.picture(999)))
    with pytest.raises(RunConflictError, match=r"begun: 00/more\.jpg is new\. A run"):
        run(pool.config(copied / "pool", copied / "run", **BASE))


def test_a_rule_without_its_scorer_stops_before_the_run(tmp_path: Path) -> None:
    pool.write_folder(tmp_path / "pool", 10)
    with pytest.raises(ConfigError, match="text_overlay"):
        run(pool.config(tmp_path / "pool", tmp_path / "run", policy={"text_overlay": {"max": 0.1}}))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("section", "value"), [("export", {"sidecar": ["widht"]}), ("select", {"quality": ["widht"]})])
def test_a_column_that_there_is_not_stops_before_the_run(tmp_path: Path, section: str, value: dict[str, Any]) -> None:
    pool.write_folder(tmp_path / "pool", 10)
    with pytest.raises(ConfigError, match="did you mean width"):
        run(pool.config(tmp_path / "pool", tmp_path / "run", **{section: value}))
    assert not (tmp_path / "run").exists()


def test_an_empty_corpus_and_an_empty_funnel_are_results_too(tmp_path: Path) -> None:
    folder = tmp_path / "pool"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(b"")
    result = run(pool.config(folder, tmp_path / "run"))
    assert (result.inputs, result.kept, result.dropped, result.shards) == (1, 0, {"empty": 1}, 0)
    assert verify_shards(tmp_path / "run/shards") == []


@pytest.mark.parametrize("kind", ["webdataset", "parquet"])
def test_other_sources_give_the_same_corpus(
    kind: str, source: tuple[Path, Counter[str]], finished: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "pool"
    if kind == "webdataset":
        pool.write_tars(folder, COUNT)
    else:
        folder.mkdir()
        rows = pool.inputs(COUNT)
        table = pa.table({"image": [data for _, data, _ in rows], "caption": [name for name, _, _ in rows]})
        pq.write_table(table, folder / "pool.parquet", row_group_size=37)
    # One chunk for all.
    result = run(pool.config(folder, tmp_path / "run", kind, chunk_rows=1000))
    expected = funnel(Storage(finished))
    assert {"inputs": result.inputs, "kept": result.kept, "dropped": result.dropped} == expected
    kept = pa.compute.equal(ledger(finished).column("verdict"), "kept")
    ours = ledger(tmp_path / "run")
    assert sorted(ours.filter(pa.compute.equal(ours.column("verdict"), "kept")).column("sha256").to_pylist()) == sorted(
        ledger(finished).filter(kept).column("sha256").to_pylist()
    )
    if kind == "parquet":
        assert ours.column("caption").to_pylist() == [name for name, _, _ in rows]
