from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from curation.records import record_id
from curation.sources.folder import FolderConfig, FolderSource
from curation.sources.webdataset import WebDatasetConfig, WebDatasetSource
from pipeline.demo.families import distances
from pipeline.demo.plan import KINDS, RADIUS, counts
from pipeline.demo.pool import PoolTruth, build_pool, main
from pipeline.demo.truth import KEPT, TRUTH_SCHEMA

INPUTS = 120


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> PoolTruth:
    return build_pool(tmp_path_factory.mktemp("pool") / "out", seed=3, inputs=INPUTS, processes=1)


def digests(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_the_same_seed_gives_the_same_bytes_whatever_the_number_of_processes(pool: PoolTruth, tmp_path: Path) -> None:
    again = build_pool(tmp_path, seed=3, inputs=INPUTS, processes=2)
    assert digests(again.root) == digests(pool.root)
    assert again.folder.equals(pool.folder)
    assert again.tars.equals(pool.tars)


def test_the_truth_names_every_input_that_the_sources_list_and_no_other(pool: PoolTruth) -> None:
    folder = FolderSource(FolderConfig(path=str(pool.root / "folder")))
    tars = WebDatasetSource(WebDatasetConfig(path=str(pool.root / "tars")))
    for source, truth in ((folder, pool.folder), (tars, pool.tars)):
        listed = sorted((item.uri, item.member, item.id) for unit in source.units() for item in source.list_unit(unit))
        named = sorted(zip(*(truth.column(name).to_pylist() for name in ("uri", "member", "id")), strict=True))
        assert listed == named
    assert len(pool.folder) + len(pool.tars) == INPUTS


def test_ids_are_those_of_the_locators_and_unique(pool: PoolTruth) -> None:
    rows = pool.folder.to_pylist() + pool.tars.to_pylist()
    assert all(row["id"] == record_id(row["uri"], row["member"]) for row in rows)
    assert len({row["id"] for row in rows}) == len(rows)


def test_the_tables_on_disk_are_those_returned(pool: PoolTruth) -> None:
    assert pool.folder.schema.equals(TRUTH_SCHEMA)
    assert pq.read_table(pool.root / "folder.truth.parquet").equals(pool.folder)
    assert pq.read_table(pool.root / "tars.truth.parquet").equals(pool.tars)


def test_both_parts_hold_kept_pictures_and_all_kinds_are_somewhere(pool: PoolTruth) -> None:
    kinds = pool.folder.column("kind").to_pylist() + pool.tars.column("kind").to_pylist()
    for kind, count in counts(INPUTS).items():
        assert kinds.count(kind) == count
    assert KEPT in pool.folder.column("expected").to_pylist()
    assert KEPT in pool.tars.column("expected").to_pylist()
    names = pool.tars.column("member").to_pylist()
    assert "twice.jpg" in names
    assert "twice.jpg#2" in names


def test_families_are_in_one_part_and_differ_from_each_other_by_more_than_the_radius(pool: PoolTruth) -> None:
    assert not set(pool.folder.column("group").to_pylist()) & set(pool.tars.column("group").to_pylist())
    rows = [row for row in pool.folder.to_pylist() + pool.tars.to_pylist() if row["phash"] is not None]
    near = distances([row["phash"] for row in rows]) <= RADIUS
    for i, j in zip(*near.nonzero(), strict=True):
        if rows[i]["group"] != rows[j]["group"]:
            assert "near_duplicate" in rows[i]["acceptable"]


def test_pictures_are_what_the_truth_says(pool: PoolTruth) -> None:
    contents: dict[str, set[bytes]] = {}
    blocked = set(pool.blocked.read_text().split())
    for row in pool.folder.to_pylist():
        data = (pool.root / "folder" / row["uri"]).read_bytes()
        contents.setdefault(row["group"], set()).add(data)
        assert (hashlib.sha256(data).hexdigest() in blocked) is (row["kind"] == "blocked")
        if row["kind"] == "empty":
            assert data == b""
        if KINDS[row["kind"]].hashed or row["kind"] in ("small_picture", "elongated", "dark"):
            with Image.open(io.BytesIO(data)) as image:
                image.load()
                short, long = sorted(image.size)
            assert (short < 256) is (row["kind"] == "small_picture")
            assert (long > 3 * short) is (row["kind"] == "elongated")
    for row in pool.folder.to_pylist():
        if row["kind"] == "exact_copy":
            family = pool.folder.column("group").to_pylist().count(row["group"])
            assert len(contents[row["group"]]) < family


def test_the_cut_tar_is_cut(pool: PoolTruth) -> None:
    path = pool.root / "tars" / "cut-short.tar"
    names = []
    with tarfile.open(path) as tar:
        while len(names) < 100 and (info := tar.next()) is not None:
            names.append(info.name)
            if info.offset_data + info.size > path.stat().st_size:
                break
    assert names[-1] == "last.jpg"
    whole = {name for name in names[:-1] if not name.endswith((".json", ".txt"))}
    rows = [row for row in pool.tars.to_pylist() if row["uri"] == "cut-short.tar"]
    assert {row["member"] for row in rows} == whole | {""}
    assert [row["expected"] for row in rows if not row["member"]] == ["truncated_container"]


def test_a_folder_that_is_no_demo_pool_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.jpg").write_bytes(b"precious")
    assert main([str(tmp_path), "--inputs", str(INPUTS)]) == 2
    assert "holds no demo pool" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.jpg"]


def test_too_few_inputs_are_an_error_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "new"), "--inputs", "10"]) == 2
    assert "at least 100" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
