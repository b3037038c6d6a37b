"""A whole run on an object store: source and run directory on S3 (moto's server, over HTTP)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipeline.config import parse_config
from pipeline.curate import CurateResult, curate
from pipeline.progress import RunProgress
from tests.fixtures import pool

COUNT = 40


def run(data: dict[str, Any]) -> CurateResult:
    return curate(parse_config(data), RunProgress(Console(quiet=True), quiet=True))


@pytest.mark.usefixtures("ray_cluster", "s3")
def test_a_run_on_s3_gives_what_a_local_run_gives(tmp_path: Path) -> None:
    import s3fs

    secret = os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    files = s3fs.S3FileSystem()
    files.mkdir("whole-run")
    pool.write_folder(tmp_path / "pool", COUNT)
    files.put(str(tmp_path / "pool"), "whole-run/pool", recursive=True)
    run(pool.config(tmp_path / "pool", tmp_path / "run"))
    remote = pool.config(tmp_path / "pool", tmp_path / "run")
    remote["source"]["path"], remote["output"] = "s3://whole-run/pool", "s3://whole-run/run"
    run(remote)

    def remote_files(folder: str) -> dict[str, bytes]:
        prefix = f"whole-run/run/{folder}/"
        return {name.removeprefix(prefix): files.cat(name) for name in files.find(prefix)}

    local = pool.results(tmp_path / "run")
    ledger, shards = remote_files("ledger"), remote_files("shards")
    assert {name: data for name, data in ledger.items() if name.endswith(".parquet")} == {
        name: data for name, data in local["ledger"].items() if name.endswith(".parquet")
    }
    assert set(shards) == set(local["shards"])
    assert {name: data for name, data in shards.items() if name.endswith((".tar", ".parquet"))} == {
        name: data for name, data in local["shards"].items() if name.endswith((".tar", ".parquet"))
    }
    assert not files.exists("whole-run/run/shards.incomplete")
    # Run again: it finds that all is done.
    scores = "/".join(["whole-run", "run", "work", "scores"])
    before = {name: files.info(name)["LastModified"] for name in files.find(scores)}
    assert before
    assert run(remote).annotated == 0
    files.invalidate_cache()
    assert {name: files.info(name)["LastModified"] for name in files.find(scores)} == before
    assert all(secret not in files.cat(name) for name in files.find("whole-run/run"))
