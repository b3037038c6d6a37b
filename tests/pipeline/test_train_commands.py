"""`populace run`: from a pool to a trained model in one command, which continues wherever it was left."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import main
from pipeline.lineage import LINEAGE
from tests.fixtures import pool
from tests.fixtures.pretraining import losses, settings
from tests.fixtures.processes import start_command

pytestmark = pytest.mark.usefixtures("one_thread")

Captured = pytest.CaptureFixture[str]
STEPS = 6


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pool") / "pool"
    pool.write_folder(folder, 60)
    return folder


def write_recipe(source: Path, output: Path, **changes: Any) -> str:
    data = pool.config(source, output, pretrain=settings(None, steps=STEPS, **changes))
    path = output.parent / f"{output.name}.yaml"
    path.write_text(yaml.safe_dump(data))
    return str(path)


def curated_part(output: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((output / LINEAGE).read_bytes())
    record.pop("pretrain", None)
    return record


def test_curates_trains_continues_and_keeps_one_record(
    source: Path, tmp_path: Path, ray_cluster: str, capsys: Captured
) -> None:
    output = tmp_path / "run"
    recipe = write_recipe(source, output)
    # Only curated: nothing in what it writes knows of the section that trains.
    assert main(["curate", recipe, "--quiet"]) == 0
    before = pool.results(output)
    assert "pretrain" not in json.loads((output / LINEAGE).read_bytes())
    part = curated_part(output)
    capsys.readouterr()
    assert main(["run", recipe, "--quiet", "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["curate"]["kept"] > 0
    assert (outcome["pretrain"]["ended"], outcome["pretrain"]["trained"]) == ("finished", STEPS)
    assert curated_part(output) == part
    whole = json.loads((output / LINEAGE).read_bytes())
    assert whole["pretrain"]["corpus"]["manifest_sha256"] == [whole["manifest_sha256"]]
    assert whole["pretrain"]["corpus"]["samples"] == outcome["curate"]["kept"]
    assert pool.results(output)["shards"] == before["shards"]

    # Again: nothing is left to do, and the record has the same bytes.
    record = (output / LINEAGE).read_bytes()
    assert main(["run", recipe, "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pretrain"]["trained"] == 0
    assert (output / LINEAGE).read_bytes() == record
    # Curation alone keeps what was trained on record.
    assert main(["curate", recipe, "--quiet"]) == 0
    assert (output / LINEAGE).read_bytes() == record

    # Other shards: the trained model is not of them.
    changed = [recipe, "select.near_duplicates=null", "--quiet"]
    assert main(["curate", *changed]) == 0
    assert "pretrain" not in json.loads((output / LINEAGE).read_bytes())
    capsys.readouterr()
    assert main(["run", *changed]) == 2
    assert "corpus: the run has " in capsys.readouterr().err
    # And they are again.
    assert main(["curate", recipe, "--quiet"]) == 0
    assert (output / LINEAGE).read_bytes() == record


def test_a_run_without_a_source_only_trains_and_one_without_pretrain_only_curates(
    source: Path, tmp_path: Path, ray_cluster: str, capsys: Captured
) -> None:
    curated = tmp_path / "curated"
    assert main(["run", write_recipe(source, curated), "pretrain=null", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"curate"}
    assert not (curated / "pretrain").exists()
    trained = tmp_path / "trained"
    corpora = json.dumps([{"path": str(curated / "shards")}])
    overrides = ["source=null", f"pretrain.data.corpora={corpora}", "--json", "--quiet"]
    assert main(["run", write_recipe(source, trained), *overrides]) == 0
    assert json.loads(capsys.readouterr().out)["pretrain"]["ended"] == "finished"
    assert json.loads((trained / LINEAGE).read_bytes())["pretrain"]["corpus"]["own_shards"] is False
    # A pool may be curated into that folder later.
    assert main(["curate", write_recipe(source, trained), "--quiet"]) == 0
    assert json.loads((trained / LINEAGE).read_bytes())["pretrain"]["corpus"]["own_shards"] is False


def test_killed_while_it_trains_it_ends_as_if_it_never_was(source: Path, tmp_path: Path, ray_cluster: str) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    changes = {"checkpoint": {"every": 2}}
    # All in processes of one kind: threads, and so the order of sums, are then the same.
    reference = start_command(
        ["run", write_recipe(source, whole, **changes), "--quiet"], tmp_path / "whole.log", ray_cluster
    )
    reference.join()
    assert reference.exitcode == 0
    recipe = write_recipe(source, killed, **changes)
    process = start_command(["run", recipe, "--quiet"], tmp_path / "killed.log", ray_cluster)
    deadline = time.monotonic() + 120
    while not (killed / "pretrain/checkpoints/step-000000002/checkpoint.json").exists():
        assert process.exitcode is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.kill()
    process.join()
    again = start_command(["run", recipe, "--quiet"], tmp_path / "again.log", ray_cluster)
    again.join()
    assert again.exitcode == 0
    ours, expected = losses(killed / "pretrain"), losses(whole / "pretrain")
    assert [line["step"] for line in ours] == list(range(STEPS))
    for line, other in zip(ours, expected, strict=True):
        assert line["loss/total"] == pytest.approx(other["loss/total"], rel=1e-5)
    records = [json.loads((run / LINEAGE).read_bytes()) for run in (killed, whole)]
    for record in records:
        del record["pretrain"]["checkpoint"]["sha256"]
    assert records[0] == records[1]
