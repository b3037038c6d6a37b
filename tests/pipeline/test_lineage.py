"""The lineage record: complete, the same for the same run, and without secrets."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from curation.scorers.base import Weights
from pipeline.config import parse_config
from pipeline.lineage import LINEAGE, lineage, write_lineage
from pipeline.plan import Plan
from pipeline.storage import Storage
from tests.fixtures.counting import BrightnessScorer, MeanScorer, stage_set

ROOT = Path(__file__).resolve().parents[2]
LEDGER = {"rows": 3, "kept": 1, "dropped": {"corrupt": 2}, "sha256": "ab", "decision": "x", "parts": []}
COUNTS = np.array([3])


class Weighted(MeanScorer):
    def check(self) -> list[Weights]:
        return [Weights("model.onnx", "c" * 64, 123)]


def record(output: str = "run", source: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    source = source or {"kind": "folder", "path": "pool"}
    config = parse_config({"output": output, "source": source, **sections})
    plan = Plan(Storage("unused"), COUNTS, COUNTS, COUNTS, "listing", {"txt": 2})
    return lineage(config, plan, stage_set(Weighted(), BrightnessScorer()), LEDGER, "m" * 64)


def test_it_names_inputs_code_models_configuration_and_outputs() -> None:
    made = record()
    assert made["source"] == {
        "kind": "folder",
        "fingerprint": "listing",
        "inputs": 3,
        "ignored_files": {"txt": 2},
        "metadata_problems": 0,
    }
    assert made["ledger"] == {"rows": 3, "kept": 1, "dropped": {"corrupt": 2}, "sha256": "ab"}
    assert made["manifest_sha256"] == "m" * 64
    assert made["scorers"]["person"]["weights"] == [{"name": "model.onnx", "sha256": "c" * 64, "bytes": 123}]
    assert set(made["scorers"]) == {"header", "screen", "person", "aesthetic"}
    assert made["scorers"]["person"]["kind"] == "counting"
    assert made["configuration"]["policy"]["too_small"] == {"min": 384.0, "max": None}
    assert made["packages"]["ray"]
    assert re.fullmatch(r"[\w.]+\+[0-9a-f]{12}", made["code_version"])


def test_it_does_not_depend_on_where_the_run_is_done() -> None:
    assert record("here", ray={"num_cpus": 1}) == record("there")
    assert record(policy={"too_small": None}) != record()


def test_it_holds_no_secret() -> None:
    source = {
        "kind": "urls",
        "path": "https://me:SECRET1@host/l.csv?token=SECRET2",
        "storage_options": {"key": "SECRET3"},
    }
    text = json.dumps(record(source=source))
    assert "SECRET" not in text
    assert "https://host/l.csv" in text


def test_the_file_is_json_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    write_lineage(storage, record())
    first = storage.read_bytes(LINEAGE)
    write_lineage(storage, record())
    assert storage.read_bytes(LINEAGE) == first
    assert json.loads(first) == json.loads(json.dumps(record()))


def test_the_code_version_is_of_the_code(tmp_path: Path) -> None:
    for package in ("pipeline", "curation"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))

    def version() -> str:
        # The module of the copy; what it imports does not matter here.
        spec = importlib.util.spec_from_file_location("copied_lineage", tmp_path / "pipeline" / "lineage.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return str(module.code_version())

    unchanged = version()
    (tmp_path / "pipeline" / "notes.txt").write_text("no code")
    assert version() == unchanged
    with open(tmp_path / "curation" / "decode.py", "a") as file:
        file.write("# changed\n")
    assert version().split("+")[0] == unchanged.split("+")[0]
    assert version() != unchanged
