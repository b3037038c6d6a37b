"""A whole run on an object store: source and run directory on S3 (moto's server, over HTTP)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fixtures import pool

COUNT = 40


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    variables = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    yield {**{key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}, **variables}
    server.stop()


def curate(recipe: Path, data: dict[str, Any], environment: dict[str, str]) -> None:
    recipe.write_text(yaml.safe_dump(data))
    command = [sys.executable, "-m", "pipeline.cli", "curate", str(recipe), "--quiet", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr


def test_a_run_on_s3_gives_what_a_local_run_gives(environment: dict[str, str], tmp_path: Path) -> None:
    import boto3
    import s3fs

    pool.write_folder(tmp_path / "pool", COUNT)
    files = s3fs.S3FileSystem(
        key="test",
        secret="secret-of-the-test",
        client_kwargs={"endpoint_url": environment["AWS_ENDPOINT_URL"], "region_name": "us-east-1"},
    )
    boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id="test",
        aws_secret_access_key="secret-of-the-test",
        region_name="us-east-1",
    ).create_bucket(Bucket="bucket")
    files.put(str(tmp_path / "pool"), "bucket/pool", recursive=True)
    curate(tmp_path / "local.yaml", pool.config(tmp_path / "pool", tmp_path / "run"), environment)
    remote = pool.config(tmp_path / "pool", tmp_path / "run")
    remote["source"]["path"], remote["output"] = "s3://bucket/pool", "s3://bucket/run"
    curate(tmp_path / "remote.yaml", remote, environment)

    def remote_files(folder: str) -> dict[str, bytes]:
        prefix = f"bucket/run/{folder}/"
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
    assert not files.exists("bucket/run/shards.incomplete")
    # Run again: it finds that all is done.
    before = {name: files.info(name)["LastModified"] for name in files.find("bucket/run/work/scores")}
    curate(tmp_path / "remote.yaml", remote, environment)
    files.invalidate_cache()
    assert {name: files.info(name)["LastModified"] for name in files.find("bucket/run/work/scores")} == before
    assert all(b"secret-of-the-test" not in files.cat(name) for name in files.find("bucket/run"))
