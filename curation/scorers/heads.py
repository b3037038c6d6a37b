"""Small heads (chains of linear layers) on an embedding, read from a state dict and run in NumPy.

All arithmetic is float64, one row at a time, and rounded to float32 at the end: a row's score does not depend on its
neighbours or on the number of threads.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from curation.scorers.base import Weights
from curation.scorers.vectors import read_embedding
from curation.scorers.weights import TENSOR_SUFFIXES, find_file, hashed, load_tensors

if TYPE_CHECKING:
    from curation.scorers.embedding import AnyEmbeddingConfig

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Head:
    """A chain of linear layers.

    Attributes:
        layers: (weight [out, in], bias [out]) in order; each layer's `in` is the one before's `out`.
        mean, std: [in] subtracted from and divided into the input, or None.
        activation: between layers; none after the last.
    """

    layers: tuple[tuple[Array, Array], ...]
    mean: Array | None = None
    std: Array | None = None
    activation: Literal["none", "relu"] = "none"

    @property
    def width(self) -> int:
        """Values that the input must have."""
        return int(self.layers[0][0].shape[1])

    def __call__(self, vector: Array) -> Array:
        """[in] -> [out] of the last layer."""
        if self.mean is not None and self.std is not None:
            vector = (vector - self.mean) / self.std
        for index, (weight, bias) in enumerate(self.layers):
            if index and self.activation == "relu":
                vector = np.maximum(vector, 0)
            vector = weight @ vector + bias
        return vector

    def scalar(self, embedding: Any) -> float | None:
        """The single output for one entry of an `embedding` column; None for None.

        Raises:
            ValueError: the embedding has another width, or the result is not a finite number.
        """
        vector = read_embedding(embedding, self.width)
        if vector is None:
            return None
        value = float(self(vector)[0])
        if not np.isfinite(value):
            raise ValueError(f"the head gave {value}")
        return value


def head_file(path: str, what: str, how: str) -> Path:
    """The configured file of a head.

    Raises:
        MissingWeightsError: it is not there.
        ValueError: it has another suffix than .safetensors, .pth, .pt or .bin.
    """
    return find_file(path, what, how, TENSOR_SUFFIXES)


def head_weights(path: str, what: str, how: str) -> list[Weights]:
    """Name and SHA-256 of a head's file; raises as `head_file`."""
    return [hashed(head_file(path, what, how))]


def load_head(path: Path, activation: Literal["none", "relu"] = "none") -> Head:
    """Read a head with one output. Layers are ordered by the numbers in their names (`layers.0.weight`, ...).

    Vectors named `mean` and `variance` (or `std`) normalise the input. A chain without activation is multiplied out
    into one layer.

    Raises:
        ValueError: the tensors are not a chain of linear layers that ends in one value.
    """
    tensors = {name: value.double().numpy() for name, value in load_tensors(path).items()}
    weights = sorted((name for name, value in tensors.items() if value.ndim == 2 and min(value.shape) >= 1), key=_order)
    weights = [name for name in weights if name.endswith("weight")]
    layers = []
    for name in weights:
        bias = tensors.get(name.removesuffix("weight") + "bias", np.zeros(tensors[name].shape[0]))
        layers.append((tensors[name], bias))
    shapes = [weight.shape for weight, _ in layers]
    chained = all(before[0] == after[1] for before, after in itertools.pairwise(shapes))
    if not shapes or not chained or shapes[-1][0] != 1 or any(len(bias) != len(weight) for weight, bias in layers):
        found = ", ".join(f"{name} {list(value.shape)}" for name, value in tensors.items()) or "no tensors"
        raise ValueError(f"{path} is not a chain of linear layers that ends in one value; it holds: {found}")
    mean, std = _normalisation(tensors)
    if activation == "none":
        layers = [_multiplied_out(layers)]
    return Head(tuple(layers), mean, std, activation)


def _multiplied_out(layers: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    weight, bias = layers[0]
    for next_weight, next_bias in layers[1:]:
        weight, bias = next_weight @ weight, next_weight @ bias + next_bias
    return weight, bias


def _normalisation(tensors: dict[str, Array]) -> tuple[Array | None, Array | None]:
    by_last = {name.rsplit(".", 1)[-1]: value.reshape(-1) for name, value in tensors.items()}
    if "mean" not in by_last:
        return None, None
    std = by_last["std"] if "std" in by_last else np.sqrt(by_last["variance"])
    return by_last["mean"], np.maximum(std, 1e-7)


def _order(name: str) -> list[Any]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]


def require_width(path: Path, head: Head, embedding: AnyEmbeddingConfig) -> None:
    """Compare a head with the embedding that a configuration will give it.

    Raises:
        ValueError: the widths differ; says both.
    """
    width = embedding.width()
    if width != head.width:
        raise ValueError(
            f"{path} takes embeddings of {head.width} values, and scorers.embedding (kind {embedding.kind}) makes "
            f"{width}: choose the embedding model that the head was trained on"
        )
