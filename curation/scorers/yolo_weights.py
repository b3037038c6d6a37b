"""Which YOLO weight files may be opened, and where they are.

A `.pt` file of ultralytics is a pickle: opening a stranger's file can run the stranger's code. So a `.pt` is taken only

- by a name that ultralytics publishes, from our own cache folder, into which only ultralytics' downloader writes
  (a file of that name in the working directory or at a path is no proof of anything, and is not looked at); or
- from a path, with its SHA-256 pinned in the configuration.

ONNX files hold no code and need no pin; a pin is checked when there is one.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import tempfile
from pathlib import Path

from curation.scorers.base import MissingWeightsError, Weights, hash_file
from curation.scorers.weights import find_file

_EXPORT = "export it once where you trust it (`yolo export model=FILE.pt format=onnx dynamic=True`) and give the .onnx"


def cache_folder() -> Path:
    """Where published weights and ultralytics' own settings are kept: `$XDG_CACHE_HOME/populace/ultralytics`."""
    root = os.environ.get("XDG_CACHE_HOME")
    try:
        base = Path(root) if root else Path.home() / ".cache"
    except RuntimeError:  # no home directory
        base = Path(tempfile.gettempdir())
    return base / "populace" / "ultralytics"


def resolve(weights: str, sha256: str | None) -> tuple[Path, Weights]:
    """Find and hash the file, downloading a published one; nothing is unpickled.

    Args:
        weights: a published name ("yolo11x-pose.pt"), or a path of a `.pt` or `.onnx`.
        sha256: the pin, 64 hex digits, or None.

    Returns:
        The file, and its name, hash and size.

    Raises:
        MissingWeightsError: the file is not there and cannot be had.
        ValueError: the file is not allowed: no pin, another hash, another format.
    """
    suffix = Path(weights).suffix.lower()
    if suffix not in (".pt", ".onnx"):
        raise ValueError(f"scorers.person.weights={weights!r}: give a .pt or an .onnx of a YOLO pose model")
    what = f"scorers.person.weights={weights!r}"
    if suffix == ".pt" and sha256 is None and Path(weights).name != weights:
        found = hash_file(find_file(weights, what, _how(weights)))
        raise ValueError(
            f"{what}: a .pt file is a pickle, and opening one can run code, so a file at a path is opened only if its "
            f"SHA-256 is pinned. If you trust this file, set scorers.person.sha256={found.sha256}; or {_EXPORT}; or "
            f"give a name that ultralytics publishes (such as yolo11x-pose.pt)"
        )
    if suffix == ".pt" and Path(weights).name == weights and (sha256 is None or not Path(weights).is_file()):
        file = _published(weights, sha256)
    else:
        file = find_file(weights, what, _how(weights))
    found = hash_file(file)
    if sha256 is not None and found.sha256 != sha256.lower():
        raise ValueError(
            f"{what}: {file} has SHA-256 {found.sha256}, and scorers.person.sha256 pins {sha256.lower()}: put the "
            "right file there, or, if you trust this one, change the pin"
        )
    return file, found


def published_pose_names() -> list[str]:
    """Pose checkpoints that ultralytics publishes, by the installed package's own list."""
    from ultralytics.utils.downloads import GITHUB_ASSETS_NAMES

    return sorted(name for name in GITHUB_ASSETS_NAMES if name.endswith(".pt") and "-pose" in name)


def _how(weights: str) -> str:
    return (
        "Copy the file there on every node, or give the name of a pose model that ultralytics publishes "
        f"(such as yolo11x-pose.pt) without a folder, which is downloaded to {cache_folder()}"
    )


def _published(name: str, sha256: str | None) -> Path:
    if importlib.util.find_spec("ultralytics") is None:
        raise MissingWeightsError(
            f"scorers.person.weights={name!r} needs ultralytics, which is not installed: "
            "`pip install 'populace[production]'`, or give an .onnx, which needs no ultralytics"
        )
    prepare_ultralytics()
    names = published_pose_names()
    if name not in names:
        raise MissingWeightsError(
            f"scorers.person.weights={name!r} is not a pose model that ultralytics publishes, and is not taken from "
            "the working directory without a pin (scorers.person.sha256). Give the path of an .onnx, or one of: "
            f"{', '.join(names)}"
        )
    file = cache_folder() / name
    if file.is_file():
        return file
    from ultralytics.utils import is_online
    from ultralytics.utils.downloads import attempt_download_asset

    problem = "this machine is offline"
    if is_online():
        try:
            attempt_download_asset(file, retry=1, progress=False)
        except Exception as error:  # noqa: BLE001 - whatever the downloader raises, the file is not there
            problem = f"the download failed: {error}"
        else:
            problem = "the download left no file"
    if not file.is_file():
        raise MissingWeightsError(
            f"scorers.person.weights={name!r} was looked for at {file}, and {problem}. Run once with a network, or "
            "copy the file there from https://github.com/ultralytics/assets/releases, or give a path of an .onnx"
        )
    return file


def prepare_ultralytics() -> None:
    """Import ultralytics as a library: no usage reports, no installing of packages at run time, no unrestricted
    pickles, and its settings file in our cache folder instead of the user's.

    Works before and after ultralytics was first imported in this process; settings that a person put into the
    environment win.
    """
    os.environ.setdefault("YOLO_CONFIG_DIR", str(cache_folder()))
    os.environ.setdefault("YOLO_AUTOINSTALL", "false")
    os.environ.setdefault("ULTRALYTICS_SAFE_LOAD", "1")
    os.environ.setdefault("YOLO_VERBOSE", "false")
    import ultralytics.nn.tasks as tasks
    import ultralytics.utils as utils
    from ultralytics.utils import checks

    # These were read from the environment at import. The dictionary is changed in memory, past the class's own
    # setter, which would rewrite the settings file.
    dict.__setitem__(utils.SETTINGS, "sync", False)
    checks.AUTOINSTALL = False
    if hasattr(tasks, "SAFE_LOAD"):  # since 8.4; older versions have the pin alone
        tasks.SAFE_LOAD = True
    for module in ("ultralytics.utils.events", "ultralytics.hub.utils"):  # where newer and older versions have it
        with contextlib.suppress(ImportError):
            importlib.import_module(module).events.enabled = False
