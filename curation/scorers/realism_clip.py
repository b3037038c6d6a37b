"""Realism by zero-shot prompts: the embedding against the same open_clip model's text features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from curation.records import Batch
from curation.scorers.base import MissingWeightsError, Scorer, ScorerConfig, Weights
from curation.scorers.openclip_model import OpenClipModel, architecture, load, locate, model_identity
from curation.scorers.vectors import read_embedding
from curation.scorers.weights import require_same

if TYPE_CHECKING:
    from curation.scorers.embedding import AnyEmbeddingConfig

PHOTO_PROMPTS = (
    "a photo of a person",
    "a photo of people",
    "a portrait photograph",
    "a snapshot taken with a camera",
    "a photograph of a scene",
)
GRAPHIC_PROMPTS = (
    "a drawing",
    "a painting",
    "a cartoon",
    "an anime illustration",
    "a 3D render",
    "a video game screenshot",
    "a screenshot of a website",
    "a collage of pictures",
    "a meme with text",
    "a logo",
    "a chart or diagram",
    "a scanned page of text",
    "a photo of a mannequin",
    "a photo of a statue",
)


class ClipPromptsConfig(ScorerConfig, OpenClipModel):
    """Settings of the zero-shot realism scorer; `model` and `pretrained` must be those of the embedding."""

    kind: Literal["clip_prompts"] = "clip_prompts"
    photo: tuple[str, ...] = Field(PHOTO_PROMPTS, min_length=1, description="prompts that mean a photograph")
    graphic: tuple[str, ...] = Field(
        GRAPHIC_PROMPTS, min_length=1, description="prompts that mean something else; one class each"
    )

    def identity(self) -> dict[str, Any]:
        return model_identity(super().identity())


class ClipPromptsRealism(Scorer):
    """Softmax over two groups of prompts, with the model's own logit scale.

    A group's logit is the logarithm of the mean of exp(scale x cosine) over its prompts, so that a longer list of
    prompts does not win by its length; `realism` is the softmax of the photo group. `realism_graphic` is the graphic
    prompt of the largest cosine. The text tower runs once, in `setup`, in fp32 on the CPU. Changing prompts changes
    this scorer's columns only, and needs no pixels.

    Needs `embedding` of the same open_clip model.
    """

    name = "realism"
    columns: ClassVar[Mapping[str, pa.DataType]] = {"realism": pa.float32(), "realism_graphic": pa.string()}
    needs = ("embedding",)
    needs_pixels = False
    version = 1

    def __init__(self, config: ClipPromptsConfig) -> None:
        super().__init__(config)
        self._checked: list[Weights] | None = None

    def check(self) -> list[Weights]:
        self._checked = locate(self.config).hashes()
        self._tokenizer()
        return self._checked

    def check_embedding(self, embedding: AnyEmbeddingConfig) -> None:
        """Raises ValueError when the embedding is of another model or other weights."""
        ours = (self.config.model, self.config.pretrained)
        theirs = (embedding.model, embedding.pretrained) if embedding.kind == "open_clip" else (embedding.kind, "")
        if ours != theirs:
            raise ValueError(
                f"scorers.realism (clip_prompts) has model {ours[0]}, pretrained {ours[1]}, and scorers.embedding has "
                f"{' '.join(theirs).strip()}: text and image features must come from the same model"
            )

    def setup(self) -> None:
        checkpoint = locate(self.config)
        require_same(self._checked, checkpoint.hashes(), self.name)
        self._text, self._scale = self._text_features(load(checkpoint, self.config))

    def score(self, batch: Batch) -> dict[str, Sequence[Any]]:
        photos = len(self.config.photo)
        realism: list[float | None] = []
        graphic: list[str | None] = []
        for entry in batch.columns["embedding"]:
            vector = read_embedding(entry, self._text.shape[1])
            if vector is None:
                realism.append(None)
                graphic.append(None)
                continue
            cosines = self._text @ vector
            logits = self._scale * cosines
            gap = _log_mean_exp(logits[photos:]) - _log_mean_exp(logits[:photos])
            realism.append(float(1 / (1 + np.exp(np.clip(gap, -700, 700)))))
            graphic.append(self.config.graphic[int(cosines[photos:].argmax())])
        return {"realism": realism, "realism_graphic": graphic}

    def _text_features(self, model: Any) -> tuple[npt.NDArray[np.float64], float]:
        import torch

        tokens = self._tokenizer()([*self.config.photo, *self.config.graphic])
        with torch.inference_mode():
            # One prompt at a time: a prompt's features must not depend on how many others there are.
            features = torch.cat([model.encode_text(row[None]) for row in tokens]).double()
            scale = float(model.logit_scale.double().exp())
        return torch.nn.functional.normalize(features, dim=1).numpy(), scale

    def _tokenizer(self) -> Any:
        architecture(self.config)
        import open_clip

        try:
            return open_clip.get_tokenizer(self.config.model)
        except Exception as error:
            raise MissingWeightsError(
                f"the tokenizer of {self.config.model} could not be loaded "
                f"({type(error).__name__}: {str(error)[:200]}). "
                "Models with a Hugging Face tokenizer need it in the cache; CLIP's own ships inside open_clip_torch."
            ) from error


def _log_mean_exp(values: npt.NDArray[np.float64]) -> float:
    top = values.max()
    return float(top + np.log(np.exp(values - top).mean()))
