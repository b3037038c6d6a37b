"""Embedding by the image tower of an open_clip model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from curation.records import Batch, Pixels
from curation.scorers.base import Scorer, ScorerConfig, Weights, is_out_of_memory
from curation.scorers.cpu import OnePictureAtATime
from curation.scorers.openclip_model import OpenClipModel, architecture, load, locate, model_identity, preprocess
from curation.scorers.vectors import EMBEDDING_COLUMNS, embedding_columns
from curation.scorers.weights import require_same


class OpenClipEmbeddingConfig(ScorerConfig, OpenClipModel):
    """Settings of the production embedding.

    `precision` is part of the scores' identity, so it is stated, not guessed from the device.
    """

    kind: Literal["open_clip"] = "open_clip"
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: cuda where there is a GPU, else cpu")
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32", description="arithmetic of the image tower; bf16 or fp16 on a GPU, fp32 on a CPU"
    )

    def width(self) -> int:
        """Values per embedding, from the architecture's configuration."""
        return int(architecture(self)["embed_dim"])

    def identity(self) -> dict[str, Any]:
        return model_identity(super().identity())


class OpenClipEmbedding(Scorer):
    """Image features of an open_clip model, with the model's own resizing, mean and standard deviation.

    Pictures go to the device as uint8; resizing (anti-aliased, rounded to uint8 as the reference transform does) and
    normalising happen there. The text tower is dropped after loading.

    Guarantee: on a CPU every picture is encoded alone and on one thread, so its embedding has the same bits whatever
    its batch. On a
    GPU every call is padded to `batch_size`, so that the same kernels run whatever the number of rows; after an
    out-of-memory the padded size is halved, and from then on the last bits may differ.

    Columns: `embedding` list of float16, L2-normalised; `embedding_norm` float32.
    """

    name = "embedding"
    columns = EMBEDDING_COLUMNS
    version = 1

    def __init__(self, config: OpenClipEmbeddingConfig) -> None:
        super().__init__(config)
        self._checked: list[Weights] | None = None
        self._tower: Any = None

    def check(self) -> list[Weights]:
        self._checked = locate(self.config).hashes()
        return self._checked

    def setup(self) -> None:
        import open_clip
        import torch

        self._device = torch_device(self.config.device)
        checkpoint = locate(self.config)
        require_same(self._checked, checkpoint.hashes(), self.name)
        model = load(checkpoint, self.config, self.config.precision)
        self._preprocess: dict[str, Any] = open_clip.get_model_preprocess_cfg(model)
        self._dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[self.config.precision]
        self._tower = model.visual.to(self._device)
        self._mean, self._std = (
            torch.tensor(self._preprocess[name], device=self._device).reshape(1, 3, 1, 1) for name in ("mean", "std")
        )
        self._padded = self.config.batch_size
        self._one_by_one = OnePictureAtATime(self.config.resources.num_cpus)

    def score(self, batch: Batch) -> dict[str, Sequence[Any]]:
        if self._device == "cpu":
            rows = self._one_by_one(lambda pixels: self._encode([pixels], 1)[0], batch.pixels)
            return embedding_columns(np.stack(rows))
        return embedding_columns(self._encode_padded(batch.pixels))

    def _encode_padded(self, pictures: list[Pixels]) -> npt.NDArray[np.float32]:
        try:
            return self._encode(pictures, self._padded)
        except Exception as error:
            if is_out_of_memory(error):  # the runner halves its batch on this error, and the padding must follow
                self._padded = max(1, self._padded // 2)
            raise

    def _encode(self, pictures: list[Pixels], size: int) -> npt.NDArray[np.float32]:
        """Features [pictures, width], computed as a batch of `size`."""
        import torch

        with torch.inference_mode():
            images = torch.stack([preprocess(pixels, self._preprocess, self._device) for pixels in pictures])
            if len(images) < size:
                empty = images.new_zeros((size - len(images), *images.shape[1:]))
                images = torch.cat([images, empty])
            normalised = (images.float().div_(255) - self._mean) / self._std
            features = self._tower(normalised.to(self._dtype))
            pooled = features[0] if isinstance(features, tuple) else features  # CoCa returns (pooled, tokens)
            result: npt.NDArray[np.float32] = pooled[: len(pictures)].float().cpu().numpy()
        return result


def torch_device(device: str) -> str:
    """`auto`, `cpu` or `cuda` -> `cpu` or `cuda`.

    Raises:
        ValueError: cuda is asked for and there is none.
    """
    import torch

    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise ValueError("device: cuda was asked for and PyTorch sees no GPU here; use auto or cpu, or set num_gpus")
    return "cuda" if device != "cpu" and available else "cpu"
