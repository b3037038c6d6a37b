"""Finding weight files, hashing them once, and reading tensors without ever running a pickle's code."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from curation.scorers.base import MissingWeightsError, Weights, hash_file

if TYPE_CHECKING:
    import torch

TENSOR_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")


class UnsafeWeightsError(RuntimeError):
    """A weight file holds more than tensors, so that reading it could run its author's code."""


def find_file(path: str | Path, what: str, how: str, suffixes: Sequence[str] = ()) -> Path:
    """The file at a configured path (`~` is expanded).

    Args:
        path: where it should be.
        what: what the file is, for the message ("the aesthetic head").
        how: how to get it, for the message.
        suffixes: file name endings that are taken; empty takes all.

    Raises:
        MissingWeightsError: there is no such file.
        ValueError: the file's name ends in something else.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        found = "a folder is there" if file.is_dir() else "nothing is there"
        raise MissingWeightsError(f"{what} was looked for at {file.absolute()}: {found}. {how}")
    if suffixes and file.suffix.lower() not in suffixes:
        raise ValueError(
            f"{what} at {file} must be one of {', '.join(suffixes)}, not {file.suffix or 'without suffix'}"
        )
    return file


def package_file(package: str, relative: str, what: str, how: str) -> Path:
    """A data file inside an installed package, found without importing the package.

    Raises:
        MissingWeightsError: the package is not installed, or holds no such file.
    """
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    if not folders:
        raise MissingWeightsError(f"{what} is inside the package {package!r}, which is not installed. {how}")
    for folder in folders:
        file = Path(folder) / relative
        if file.is_file():
            return file
    looked = ", ".join(str(Path(folder) / relative) for folder in folders)
    raise MissingWeightsError(f"{what} was looked for at {looked}: nothing is there. {how}")


def hashed(path: str | Path) -> Weights:
    """`hash_file`, remembered for as long as the file's size and time stay the same: scorers share weights."""
    file = Path(path).resolve()
    stat = os.stat(file)
    found = _hash(str(file), stat.st_size, stat.st_mtime_ns)
    return Weights(Path(path).name, found.sha256, found.bytes)


@lru_cache(maxsize=256)
def _hash(path: str, size: int, mtime_ns: int) -> Weights:
    return hash_file(path)


def require_same(expected: Sequence[Weights] | None, found: Sequence[Weights], scorer: str) -> None:
    """Compare what a worker found with what the driver's `check()` recorded.

    Raises:
        MissingWeightsError: the worker's file has other content; its scores would not be what the lineage says.
    """
    if expected is None:
        return
    for before, now in zip(expected, found, strict=True):
        if before.sha256 != now.sha256:
            raise MissingWeightsError(
                f"scorer {scorer}: {now.name} on this worker has SHA-256 {now.sha256[:16]}..., and on the driver "
                f"{before.sha256[:16]}...: put the same file on every node"
            )


def load_tensors(path: str | Path) -> dict[str, torch.Tensor]:
    """Name -> CPU tensor, from safetensors or from a PyTorch file read with `weights_only=True`.

    A `state_dict` entry is unwrapped and a `module.` prefix removed.

    Raises:
        UnsafeWeightsError: the file is a pickle of more than tensors and plain containers.
        ValueError: the file is not in either format, or holds no dictionary of tensors.
    """
    import pickle

    import torch

    file = Path(path)
    if file.suffix.lower() == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(file)
        except SafetensorError as error:
            raise ValueError(f"{file} is not a readable safetensors file: {error}") from error
    try:
        loaded = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UnsafeWeightsError(
            f"{file} holds more than tensors (or is damaged), so it is not loaded: reading it could run code. "
            f"Convert it to safetensors where you trust it. ({str(error).splitlines()[0][:200]})"
        ) from error
    except (RuntimeError, EOFError, KeyError, ValueError) as error:
        raise ValueError(f"{file} is not a readable PyTorch weight file: {error}") from error
    if isinstance(loaded, dict) and isinstance(loaded.get("state_dict"), dict):
        loaded = loaded["state_dict"]
    if (
        not isinstance(loaded, dict)
        or not loaded
        or not all(isinstance(item, torch.Tensor) for item in loaded.values())
    ):
        raise ValueError(f"{file} must hold a dictionary of tensors (a state dict), not {type(loaded).__name__}")
    return {name.removeprefix("module."): tensor for name, tensor in loaded.items()}
