"""open_clip models: finding a checkpoint without building the model, loading it safely, and its preprocessing."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from curation.records import Pixels
from curation.scorers.base import MissingWeightsError, Weights
from curation.scorers.weights import TENSOR_SUFFIXES, find_file, hashed, load_tensors

_INSTALL = "Install it with: pip install open_clip_torch  (or populace[production])"
_LOCAL_DIR = "local-dir:"


class OpenClipModel(BaseModel):
    """The fields of a configuration that name an open_clip model."""

    model: str = Field(
        "ViT-L-14-quickgelu",
        description="open_clip architecture name, or local-dir:FOLDER with open_clip_config.json and weights",
    )
    pretrained: str = Field(
        "openai",
        description="open_clip pretrained tag, or the path of a .safetensors (preferred), .pt, .pth or .bin file; "
        "ignored for local-dir",
    )
    cache_dir: str | None = Field(None, description="Hugging Face cache to look in; default: the library's own")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What `locate` found: the weights, further files that define the model, preprocessing of the pretrained tag."""

    weights: Path
    others: tuple[Path, ...] = ()
    preprocess: dict[str, Any] = field(default_factory=dict)
    quick_gelu: bool = False

    def hashes(self) -> list[Weights]:
        """SHA-256 of every file."""
        return [hashed(file) for file in (self.weights, *self.others)]


def model_identity(settings: dict[str, Any]) -> dict[str, Any]:
    """A configuration's dump without what only says where files lie: their SHA-256 identifies them."""
    settings = {name: value for name, value in settings.items() if name != "cache_dir"}
    if settings["model"].startswith(_LOCAL_DIR):
        return {**settings, "model": "local-dir", "pretrained": "local-dir"}
    if _is_path(settings["pretrained"]):
        return {**settings, "pretrained": "file"}
    return settings


def architecture(config: OpenClipModel) -> dict[str, Any]:
    """The model's own configuration (embed_dim, vision_cfg, text_cfg), without building it.

    Raises:
        MissingWeightsError: open_clip is not installed, or the local folder is incomplete.
        ValueError: open_clip has no architecture of that name.
    """
    open_clip = _library()
    if config.model.startswith(_LOCAL_DIR):
        folder = Path(config.model.removeprefix(_LOCAL_DIR)).expanduser()
        find_file(folder / "open_clip_config.json", f"the configuration of {config.model}", _SAVE_FOLDER)
        return open_clip.get_model_config(f"{_LOCAL_DIR}{folder}")
    found = open_clip.get_model_config(config.model)
    if found is None:
        import difflib

        near = difflib.get_close_matches(config.model, open_clip.list_models(), n=3, cutoff=0.4)
        raise ValueError(f"open_clip has no architecture {config.model!r}; near names: {', '.join(near) or 'none'}")
    return found


_SAVE_FOLDER = (
    "A model folder holds open_clip_config.json and open_clip_model.safetensors, as open_clip saves them for the hub."
)


def locate(config: OpenClipModel) -> Checkpoint:
    """Find the checkpoint; a pretrained tag that is not in the cache is downloaded unless HF_HUB_OFFLINE is set.

    Raises:
        MissingWeightsError: says what was looked for, where, and how to get it.
        ValueError: unknown architecture or tag, or a file of another type.
    """
    architecture(config)
    if config.model.startswith(_LOCAL_DIR):
        folder = Path(config.model.removeprefix(_LOCAL_DIR)).expanduser()
        for name in ("open_clip_model.safetensors", "open_clip_pytorch_model.bin"):
            if (folder / name).is_file():
                return Checkpoint(folder / name, (folder / "open_clip_config.json",))
        raise MissingWeightsError(f"no open_clip_model.safetensors in {folder.absolute()}. {_SAVE_FOLDER}")
    if _is_path(config.pretrained):
        how = f"Save the weights of {config.model} there, or set `pretrained` to a tag of open_clip."
        return Checkpoint(find_file(config.pretrained, f"the weights of {config.model}", how, TENSOR_SUFFIXES))
    return _locate_tag(config)


def _locate_tag(config: OpenClipModel) -> Checkpoint:
    open_clip = _library()
    tag = open_clip.get_pretrained_cfg(config.model, config.pretrained)
    if not tag:
        tags = open_clip.list_pretrained_tags_by_model(config.model)
        raise ValueError(
            f"open_clip has no pretrained tag {config.pretrained!r} for {config.model}; "
            f"tags: {', '.join(tags) or 'none'}. "
            "For a file, give its path with a folder, as in ./model.safetensors"
        )
    if not tag.get("hf_hub"):
        raise MissingWeightsError(
            f"open_clip's tag {config.pretrained!r} of {config.model} has no Hugging Face repository. Download "
            f"{tag.get('url')}, convert it to safetensors and set `pretrained` to the file's path."
        )
    repository, wanted = os.path.split(tag["hf_hub"])
    names = _safe_first(wanted or "open_clip_pytorch_model.bin")
    file = _cached(config, repository, names) or _download(config, repository, names)
    return Checkpoint(file, preprocess=dict(tag), quick_gelu=bool(tag.get("quick_gelu")))


def _safe_first(name: str) -> list[str]:
    if name == "open_clip_pytorch_model.bin":
        return ["open_clip_model.safetensors", name]
    stem = name.removesuffix(".bin").removesuffix(".pt").removesuffix(".pth")
    return [name] if name.endswith(".safetensors") else [f"{stem}.safetensors", name]


def _cached(config: OpenClipModel, repository: str, names: list[str]) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    for name in names:
        found = try_to_load_from_cache(repository, name, cache_dir=config.cache_dir)
        if isinstance(found, str):
            return Path(found)
    return None


def _download(config: OpenClipModel, repository: str, names: list[str]) -> Path:
    import huggingface_hub
    from huggingface_hub import constants
    from huggingface_hub.errors import EntryNotFoundError

    cache = config.cache_dir or constants.HF_HUB_CACHE
    if constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        problem = "no download was tried, because HF_HUB_OFFLINE is set"
    else:
        problem = "the repository has none of these files"
        for name in names:
            try:
                # A quick question first: the downloader itself retries for half a minute without a network.
                huggingface_hub.get_hf_file_metadata(huggingface_hub.hf_hub_url(repository, name), timeout=10)
                return Path(huggingface_hub.hf_hub_download(repository, name, cache_dir=config.cache_dir))
            except EntryNotFoundError:
                continue
            except Exception as error:  # noqa: BLE001 - whatever went wrong, the person needs the whole message
                problem = f"the download failed ({type(error).__name__}: {str(error)[:200]})"
                break
    raise MissingWeightsError(
        f"open_clip model {config.model}, pretrained tag {config.pretrained}: {' or '.join(names)} of the Hugging Face "
        f"repository {repository} is not in the cache {cache}, and {problem}. On a machine with a network run "
        f"`hf download {repository} {names[0]}` and copy the cache here, or set `pretrained` to a file's path."
    )


def load(checkpoint: Checkpoint, config: OpenClipModel, precision: str = "fp32") -> Any:
    """Build the model on the CPU in evaluation mode, and load the checkpoint strictly.

    Raises:
        UnsafeWeightsError: the file holds more than tensors.
        ValueError: the file is damaged, or its tensors do not fit the architecture.
    """
    open_clip = _library()
    if checkpoint.weights.suffix != ".safetensors":
        load_tensors(checkpoint.weights)  # refuses a pickle of anything else, with a message of ours
    local = config.model.startswith(_LOCAL_DIR)
    name = f"{_LOCAL_DIR}{checkpoint.weights.parent}" if local else config.model
    try:
        model = open_clip.create_model(
            name,
            pretrained=None if local else str(checkpoint.weights),
            precision=precision,
            device="cpu",
            force_quick_gelu=checkpoint.quick_gelu,
            force_preprocess_cfg=checkpoint.preprocess or None,
            pretrained_text=False,
            weights_only=True,
        )
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"{checkpoint.weights} does not fit open_clip's {config.model}: {str(error)[:400]}") from error
    return model.eval().requires_grad_(False)


def preprocess(pixels: Pixels, settings: dict[str, Any], device: str) -> Any:
    """RGB uint8 [height, width, 3] -> uint8 tensor [3, size, size] on the device: open_clip's evaluation transform
    up to the normalisation, which is one operation on the batch.

    Args:
        settings: the model's preprocessing (`open_clip.get_model_preprocess_cfg`): size, interpolation, resize_mode.
    """
    import torch
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional as transforms

    size = settings["size"]
    target_height, target_width = (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
    # Pixels that come out of shared memory are read-only, which PyTorch has no notion of.
    image = torch.from_numpy(np.require(pixels, requirements=["C", "W"])).to(device).permute(2, 0, 1)
    height, width = image.shape[1:]
    scales = (target_height / height, target_width / width)
    mode = settings["resize_mode"]
    if mode == "squash":
        shape = [target_height, target_width]
    else:
        # The matched side is exact. open_clip cuts the other one to an integer for a square `shortest`, else rounds it.
        scale = max(scales) if mode == "shortest" else min(scales)
        cut = int if mode == "shortest" and target_height == target_width else round
        shape = [
            target_height if scale == scales[0] else max(1, cut(height * scale)),
            target_width if scale == scales[1] else max(1, cut(width * scale)),
        ]
    image = transforms.resize(image, shape, InterpolationMode(settings["interpolation"]), antialias=True)
    if mode == "longest":
        top, left = (target_height - shape[0]) // 2, (target_width - shape[1]) // 2
        padding = [left, top, target_width - shape[1] - left, target_height - shape[0] - top]
        return transforms.pad(image, padding, fill=settings["fill_color"])
    return transforms.center_crop(image, [target_height, target_width])


def _is_path(pretrained: str) -> bool:
    return os.sep in pretrained or pretrained.lower().endswith(TENSOR_SUFFIXES)


def _library() -> Any:
    try:
        import open_clip
    except ImportError as error:
        raise MissingWeightsError(f"the package open_clip_torch is not installed ({error}). {_INSTALL}") from error
    return open_clip
