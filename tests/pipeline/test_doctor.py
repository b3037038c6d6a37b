"""The doctor: says what is there, what is wrong and how to mend it; looks only."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from pipeline import doctor
from pipeline.doctor import Finding, diagnose, print_findings
from tests.fixtures.tars import picture

CHECKS = ["python", "packages", "embedded models", "training", "production models", "opencv",
          "embedded person detector", "torch", "disk", "shared memory", "memory", "home",
          "temporary files"]  # fmt: skip


def recipe(folder: Path, **scorers: str) -> str:
    lines = [f"output: {folder}/run", "source: {kind: folder, path: " + f"{folder}/pool" + "}", "scorers:"]
    lines += [f"  {name}: {value}" for name, value in scorers.items()]
    path = folder / "recipe.yaml"
    path.write_text("\n".join(lines) + ("" if scorers else " {}") + "\n")
    return str(path)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool" / "1.jpg").write_bytes(picture(1))
    return tmp_path


def test_this_installation_is_looked_at_in_order_and_is_fine() -> None:
    findings = diagnose()
    assert [finding.check for finding in findings] == CHECKS
    assert [finding for finding in findings if not finding.ok and finding.check != "disk"] == []
    assert f"ray {metadata.version('ray')}" in findings[1].found
    assert all(finding.found for finding in findings)


def test_folders_that_ray_cannot_use_are_problems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/dev/null/nowhere")
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("t" * 99)))
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    by_name = {finding.check: finding for finding in diagnose()}
    assert not by_name["home"].ok
    assert "set HOME to a folder that you can write" in by_name["home"].fix
    assert not by_name["temporary files"].ok
    assert "RAY_TMPDIR=/tmp" in by_name["temporary files"].fix


def test_a_configuration_is_looked_at_as_well(pool: Path) -> None:
    findings = diagnose(recipe(pool), ["scorers.embedding.kind=efficientnet_lite0"])
    assert [finding.check for finding in findings[len(CHECKS) :]] == ["configuration", "weights", "source"]
    weights, source = findings[-2:]
    assert (weights.ok, source.ok, source.found) == (True, True, "folder: 1 files")
    assert "MiB" in weights.found
    assert not (pool / "run").exists()


def test_what_a_configuration_lacks_is_a_problem_with_its_remedy(pool: Path) -> None:
    (pool / "pool" / "1.jpg").unlink()
    (pool / "pool").rmdir()
    config = recipe(pool, person="{kind: yolo, weights: absent.onnx}")
    by_name = {finding.check: finding for finding in diagnose(config)}
    assert not by_name["weights"].ok
    assert "absent.onnx" in by_name["weights"].found
    assert not by_name["source"].ok
    assert "does not exist" in by_name["source"].found


def test_a_wrong_configuration_is_one_finding(pool: Path) -> None:
    finding = diagnose(recipe(pool), ["polcy.x=1"])[-1]
    assert (finding.check, finding.ok) == ("configuration", False)
    assert "did you mean policy?" in finding.found


def test_a_package_that_is_absent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CORE", {"ray": "ray", "no_such_module": "no-such-package"})
    monkeypatch.setattr(doctor, "EMBEDDED", {"no_module_of_numpy": "numpy"})
    monkeypatch.setattr(doctor, "PRODUCTION", {"no_such_module": "no-such-package"})
    packages, embedded, _, production = diagnose()[1:5]
    assert not packages.ok
    assert packages.found.endswith("; missing: no-such-package")
    assert packages.fix == "pip install populace"
    assert not embedded.ok  # installed, and its module is not there
    assert production.ok  # a laptop does not need it
    assert production.fix == "for real runs: pip install 'populace[production]'"


def test_two_opencv_wheels_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "OPENCV_WHEELS", ("numpy", "pillow"))
    finding = next(item for item in diagnose() if item.check == "opencv")
    assert not finding.ok
    assert "uninstall both" in finding.fix


def test_little_room_is_a_problem_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_DISK_GB", 1e9)
    monkeypatch.setattr(doctor, "LEAST_SHARED_MEMORY_GB", 1e9)
    by_name = {finding.check: finding for finding in diagnose()}
    assert not by_name["disk"].ok
    assert by_name["shared memory"].ok  # slower, and works
    assert "--shm-size" in by_name["shared memory"].fix


def test_printed_as_text_with_brackets_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    findings = [
        Finding("one", True, "a [b] c"),
        Finding("two", False, "[/red] broken", "pip install 'populace[production]'"),
    ]
    print_findings(findings, as_json=False)
    text = capsys.readouterr().out
    for part in ("ok", "a [b] c", "PROBLEM", "[/red] broken", "pip install 'populace[production]'"):
        assert part in text
    print_findings(findings, as_json=True)
    assert json.loads(capsys.readouterr().out) == [
        {"check": "one", "ok": True, "found": "a [b] c", "fix": ""},
        {"check": "two", "ok": False, "found": "[/red] broken", "fix": "pip install 'populace[production]'"},
    ]
