"""A finished run that lost or damaged a file is made whole by the same command, or says which file it is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipeline.cli import FAILED, UNFINISHED, main
from pipeline.config import parse_config
from pipeline.curate import CurateResult, curate
from pipeline.progress import RunProgress
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


DAMAGES: dict[str, Damage] = {
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
    ("work/scores/part-00000002.parquet", scribble),
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
