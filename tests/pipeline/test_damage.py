"""A finished run that lost or damaged a file is made whole by the same command, or says which file it is."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from curation.manifest import verify_shards
from pipeline.cli import main
from pipeline.commands import FAILED, UNFINISHED, USAGE
from pipeline.config import parse_config
from pipeline.curate import CurateResult, curate
from pipeline.progress import RunProgress
from pipeline.storage import Storage
from tests.fixtures import pool

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT = 40


def run(data: dict[str, Any]) -> CurateResult:
    return curate(parse_config(data), RunProgress(Console(quiet=True), quiet=True))


Damage = tuple[str, Callable[[Path], None]]
"""(file of the run, what befalls it)."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage")
    pool.write_folder(folder / "pool", COUNT)
    run(pool.config(folder / "pool", folder / "run"))
    return folder


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def scribble(path: Path) -> None:
    path.write_bytes(b"\x17" * path.stat().st_size)


def overwrite(path: Path) -> None:
    """2,000 bytes in the middle of a file become others; its size stays."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle - 1000 : middle + 1000] = bytes(byte ^ 0x55 for byte in data[middle - 1000 : middle + 1000])
    path.write_bytes(data)


def flip(path: Path) -> None:
    """One bit of two bytes in the first pages changes."""
    data = bytearray(path.read_bytes())
    for position in (60, 90):
        data[position] ^= 4
    path.write_bytes(data)


def retell(path: Path) -> None:
    """A digit of the configuration's hash becomes another."""
    text = path.read_text()
    at = text.index('"config_hash": "') + len('"config_hash": "')
    path.write_text(text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :])


def add_stray(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES: dict[str, Damage] = {
    "tar overwritten": ("shards/shard-000001.tar", overwrite),
    "index flipped": ("shards/index/shard-000000.parquet", flip),
    "features flipped": ("shards/features/shard-000000.parquet", flip),
    "card flipped": ("shards/README.md", flip),
    "manifest tells another": ("shards/manifest.json", retell),
    "stray tar": ("shards/shard-000077.tar", add_stray),
    "ledger part flipped": ("ledger/part-00000.parquet", flip),
    "summary scribbled": ("selection/summary.json", scribble),
    "lineage scribbled": ("lineage.json", scribble),
    "unit flipped": ("work/plan/units/unit-00000000.parquet", flip),
    "ledger part lost": ("ledger/part-00000.parquet", Path.unlink),
    "ledger part cut": ("ledger/part-00000.parquet", cut),
    "ledger record cut": ("ledger/_complete.json", cut),
    "tar lost": ("shards/shard-000000.tar", Path.unlink),
    "tar cut": ("shards/shard-000000.tar", cut),
    "index lost": ("shards/index/shard-000000.parquet", Path.unlink),
    "manifest cut": ("shards/manifest.json", cut),
    "plan cut": ("work/plan/chunks.parquet", cut),
    "source record cut": ("work/plan/source.json", cut),
}


SCORES: list[Damage] = [
    ("work/scores/part-00000000.parquet", Path.unlink),
    ("work/scores/part-00000001.parquet", cut),
    ("work/scores/part-00000002.parquet", flip),
]


@pytest.mark.parametrize("damages", [*([damage] for damage in DAMAGES.values()), SCORES], ids=[*DAMAGES, "scores"])
def test_the_same_command_makes_it_whole(damages: list[Damage], finished: Path) -> None:
    output = finished / "run"
    before = pool.results(output)
    for file, damage in damages:
        damage(output / file)
    result = run(pool.config(finished / "pool", output))
    assert pool.results(output) == before
    # Each of the damaged parts is measured again, and only these are.
    assert result.annotated == (COUNT if damages is SCORES else 0)


def test_funnel_of_a_damaged_ledger_is_an_error_and_not_a_count(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "run"
    shutil.copytree(finished / "run", output)
    assert main(["funnel", str(output), "--json"]) == 0
    capsys.readouterr()
    scribble(output / "ledger/part-00000.parquet")
    assert main(["funnel", str(output), "--json"]) == FAILED
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "part-00000.parquet is damaged" in printed.err
    (output / "ledger/part-00000.parquet").unlink()
    assert main(["funnel", str(output), "--json"]) == UNFINISHED
    assert capsys.readouterr().out == ""


def test_a_source_that_was_never_listed_binds_nobody(finished: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    run_file = finished / "run/run.json"
    output.mkdir()
    (output / "run.json").write_bytes(run_file.read_bytes().replace(b"/pool", b"/typo"))
    result = run(pool.config(finished / "pool", output))
    assert result.inputs == COUNT


def messages(data: dict[str, Any], check: bool = False) -> list[str]:
    console = Console(file=io.StringIO(), width=400)
    curate(parse_config(data), RunProgress(console), check=check)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_rerun_says_what_it_checked_and_names_what_is_damaged(finished: Path) -> None:
    output = finished / "run"
    data = pool.config(finished / "pool", output)
    before = pool.results(output)
    (clean,) = [line for line in messages(data) if line.startswith("verify    ")]
    assert re.fullmatch(r"verify    every byte of \d+ files: all whole", clean)
    flip(output / "work/scores/part-00000001.parquet")
    overwrite(output / "shards/shard-000001.tar")
    lines = messages(data)
    damaged = [line.split(":")[0] for line in lines if line.startswith("damaged")]
    assert damaged == ["damaged   shards/shard-000001.tar", "damaged   work/scores/part-00000001.parquet"]
    assert pool.results(output) == before
    assert not (output / "work/damaged.json").exists()


def test_only_the_damaged_shard_is_written_anew(finished: Path) -> None:
    shards = finished / "run/shards"
    inodes = {path.name: path.stat().st_ino for path in shards.iterdir()}
    overwrite(shards / "shard-000001.tar")
    before = (shards / "shard-000000.tar").read_bytes()
    run(pool.config(finished / "pool", finished / "run"))
    changed = {path.name for path in shards.iterdir() if inodes.get(path.name) != path.stat().st_ino}
    assert changed == {"shard-000001.tar"}
    assert (shards / "shard-000000.tar").read_bytes() == before
    assert verify_shards(shards) == []


def test_a_sample_of_a_large_run_is_the_same_each_time_and_bounded(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.verify.SAMPLE_BYTES", 6_000)
    lines = [messages(pool.config(finished / "pool", finished / "run")) for _ in range(2)]
    said = [[line for line in found if line.startswith("verify    ")] for found in lines]
    assert said[0] == said[1]
    assert re.fullmatch(r"verify    a sample, \d+ of \d+ files: all whole", said[0][0])


def test_scores_damaged_in_a_column_that_no_limit_reads_do_not_reach_the_ledger(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the sample, which would find it: the ledger does, and the part is measured again."""
    output = finished / "run"
    before = pool.results(output)
    path = output / "work/scores/part-00000001.parquet"
    column = _column_of(path, "phash_mirrored")
    data = bytearray(path.read_bytes())
    data[column] ^= 4
    path.write_bytes(data)
    (output / "ledger/_complete.json").unlink()
    (output / "lineage.json").unlink()
    result = run(pool.config(finished / "pool", output))
    assert result.annotated == 16
    assert pool.results(output) == before


def _column_of(path: Path, name: str) -> int:
    """A position inside the data of a column."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    (column,) = [group.column(at) for at in range(group.num_columns) if group.column(at).path_in_schema == name]
    return int(column.data_page_offset) + int(column.total_compressed_size) // 2


def test_a_repair_that_is_killed_is_finished_by_the_same_command(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = finished / "run"
    before = pool.results(output)
    tars = sorted(output.glob("shards/*.tar"))[:2]
    for tar in tars:
        overwrite(tar)
    damaged = tars[1].read_bytes()

    class Killed(Exception):
        pass

    publish, done = Storage.publish_file, []

    def killed(storage: Storage, source: str, target: str) -> None:
        if len(done) == 2:
            raise Killed
        done.append(target)
        publish(storage, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "publish_file", killed)
        with pytest.raises(Killed):
            run(pool.config(finished / "pool", output))
    # What is not mended yet is still there, and known.
    assert tars[1].read_bytes() == damaged
    assert (output / "work/damaged.json").exists()
    run(pool.config(finished / "pool", output))
    assert pool.results(output) == before
    assert verify_shards(output / "shards") == []


def test_verify_names_the_damage_and_repairs_it(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = finished / "run"
    before = pool.results(output)
    assert main(["verify", str(output), "--quiet"]) == 0
    assert "all whole" in capsys.readouterr().out
    overwrite(output / "shards/shard-000001.tar")
    flip(output / "ledger/part-00000.parquet")
    assert main(["verify", str(output), "--json", "--quiet"]) == FAILED
    told = json.loads(capsys.readouterr().out)
    assert [item["file"] for item in told["damaged"]] == ["ledger/part-00000.parquet", "shards/shard-000001.tar"]
    assert not told["repaired"]
    assert pool.results(output) != before
    assert main(["verify", str(output), "--repair", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["repaired"]
    assert pool.results(output) == before
    assert main(["verify", str(finished / "pool")]) == USAGE


def test_an_opt_out_outlives_a_flipped_bit_in_any_name_of_its_scores(tmp_path: Path) -> None:
    """A column that the footer renames would be a column of nulls, and an image kept that must not be."""
    pool.write_folder(tmp_path / "pool", 6)
    (tmp_path / "pool/00/00001.json").write_text('{"noai": true}')
    data = pool.config(tmp_path / "pool", tmp_path / "run", scorers={"safety": {"kind": "lists"}})
    first = run(data)
    assert first.dropped["opted_out"] == 1
    (part,) = (tmp_path / "run" / "work" / "scores").glob("*.parquet")
    whole = part.read_bytes()
    places = [match.start() for match in re.finditer(b"opt_out", whole)]
    assert places
    data["policy"]["too_small"] = {"min": 17}
    measured = 0
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1
        part.write_bytes(damaged)
        again = run(data)
        assert again.dropped["opted_out"] == 1
        measured += again.annotated
        data["policy"]["too_small"]["min"] += 1  # decide anew each time
    assert measured >= 6  # not every place where the name stands counts
