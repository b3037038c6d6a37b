"""Named tensors in files, read one at a time.

A checkpoint can be larger than what is left of the memory beside the model: shapes and dtypes come from the headers of
the files, and each tensor is read when it is asked for. A `torch.save` dictionary is read through the restricted
unpickler, which builds tensors and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

INDEX_SUFFIX = ".safetensors.index.json"
PICKLED = (".pth", ".pt", ".bin")

# The names of dtypes in a safetensors header.
DTYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


class WeightsError(ValueError):
    """Weights cannot be read, written or put into this module; nothing was changed."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file: shape and dtype are known, `read()` gives its values on the CPU."""

    shape: tuple[int, ...]
    dtype: torch.dtype | str
    """The dtype's header name where torch (or this project) has no use for it, e.g. "F8_E4M3"."""
    read: Callable[[], torch.Tensor]


@dataclass(frozen=True)
class StoredTensors:
    """What a checkpoint holds."""

    path: Path
    tensors: Mapping[str, StoredTensor]
    config: dict[str, Any] | None = None
    """config.json of the folder, if there is one."""
    pickled: bool = False


@contextmanager
def open_tensors(path: str | Path) -> Iterator[StoredTensors]:
    """Open a checkpoint: a safetensors file, an index of shards, a folder with one of these, or a `torch.save` file.

    Raises WeightsError for what is none of these or is damaged; tensors can be read until the block ends.
    """
    path = Path(path)
    with ExitStack() as stack:
        if path.suffix in PICKLED and path.is_file():
            yield StoredTensors(path, _read_pickled(path), pickled=True)
            return
        file = _find_file(path)
        config = _read_json(path / "config.json") if path.is_dir() and (path / "config.json").is_file() else None
        files = _shards(file) if file.name.endswith(INDEX_SUFFIX) else {file: None}
        tensors: dict[str, StoredTensor] = {}
        for shard, names in files.items():
            found = _read_header(shard, stack)
            if names is not None and (absent := sorted(set(names) - set(found))):
                raise WeightsError(f"{file} says that {shard.name} holds {first_names(absent)}, but it does not")
            tensors.update(found if names is None else {name: found[name] for name in names})
        yield StoredTensors(path, tensors, config)


def _find_file(path: Path) -> Path:
    if path.is_dir():
        for name in ("model.safetensors", f"model{INDEX_SUFFIX}"):
            if (path / name).is_file():
                return path / name
        files = sorted(path.glob("*.safetensors"))
        indexes = sorted(path.glob(f"*{INDEX_SUFFIX}"))
        if len(indexes) == 1 or len(files) == 1:
            return (indexes or files)[0]
        pickled = sorted(item.name for item in path.iterdir() if item.suffix in PICKLED)
        found = f"it has {first_names([item.name for item in files])}: name one of them" if files else "it has none"
        hint = (
            f"; {pickled[0]} is a pickle, which is read from its own path and for timm weights only" if pickled else ""
        )
        if (path / "run.json").is_file():
            hint += "; it is a run: `populace export-weights` writes the weights of one"
        raise WeightsError(f"{path} is a folder without model.safetensors or model{INDEX_SUFFIX}; {found}{hint}")
    if path.name.endswith((".safetensors", INDEX_SUFFIX)):
        if path.is_file():
            return path
        index = path.with_name(path.name.removesuffix(".safetensors") + INDEX_SUFFIX)
        if index.is_file():
            return index
        raise WeightsError(f"there is no file {path}")
    if not path.exists():
        raise WeightsError(f"there is no file or folder {path}")
    raise WeightsError(
        f"{path} is not a .safetensors file, an index of shards, a folder with one of these, or a .pth file"
    )


def _shards(index: Path) -> dict[Path, list[str] | None]:
    weight_map = _read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise WeightsError(f"{index} has no weight_map from tensor names to files")
    shards: dict[Path, list[str] | None] = {}
    for name, file in weight_map.items():
        # An index comes with a download: it must not point outside its own folder.
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise WeightsError(f"{index} gives {file!r} for {name}; a shard is a .safetensors file of the same folder")
        shard = index.with_name(file)
        if not shard.is_file():
            raise WeightsError(f"{index} names {file}, which is not in {index.parent}: the download is not complete")
        names = shards.setdefault(shard, [])
        assert names is not None
        names.append(name)
    return shards


def _read_header(file: Path, stack: ExitStack) -> dict[str, StoredTensor]:
    try:
        handle = stack.enter_context(safe_open(file, framework="pt"))
        names = list(handle.keys())
        slices = {name: handle.get_slice(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{file} is not a whole safetensors file: {error}") from error

    def reader(name: str) -> Callable[[], torch.Tensor]:
        return lambda: handle.get_tensor(name)

    found = {}
    for name, part in slices.items():
        dtype = part.get_dtype()
        found[name] = StoredTensor(tuple(part.get_shape()), DTYPES.get(dtype, dtype), reader(name))
    return found


def _read_pickled(path: Path) -> dict[str, StoredTensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what a damaged or hostile file raises is not one class
        raise WeightsError(
            f"{path} cannot be read as a plain dictionary of tensors ({type(error).__name__}); other pickled "
            "content is never loaded, since a pickle can run code: ask for the weights as safetensors"
        ) from error
    for wrapper in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict) or not content or not all(isinstance(v, torch.Tensor) for v in content.values()):
        raise WeightsError(f"{path} is not a dictionary from names to tensors")

    plain = all(v.layout is torch.strided and not (v.is_meta or v.is_quantized) for v in content.values())
    if not plain:
        raise WeightsError(f"{path} holds sparse, quantised or meta tensors: only dense ones with values can be loaded")

    def reader(value: torch.Tensor) -> Callable[[], torch.Tensor]:
        return lambda: value

    return {str(name): StoredTensor(tuple(v.shape), v.dtype, reader(v)) for name, v in content.items()}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise WeightsError(f"{path} holds no JSON object")
    return content


def first_names(names: Iterable[str], limit: int = 20) -> str:
    """The first names of a list and how many there are."""
    names = list(names)
    text = ", ".join(names[:limit])
    return text if len(names) <= limit else f"{text} and {len(names) - limit} more"
