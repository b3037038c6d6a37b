"""Embeddings as ledger columns: how they are stored, and how later scorers read them back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

EMBEDDING_COLUMNS: dict[str, pa.DataType] = {
    "embedding": pa.list_(pa.float16()),
    "embedding_norm": pa.float32(),
}
"""`embedding` is L2-normalised; `embedding * embedding_norm` gives back what the model returned, to float16."""


def embedding_columns(features: npt.NDArray[Any]) -> dict[str, Sequence[Any]]:
    """Features [n, width] of any float type -> the two columns. A row of zeros stays zeros, with norm 0.

    Raises:
        ValueError: a feature is infinite or not a number.
    """
    values = np.asarray(features, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("the model returned infinite or not-a-number features")
    norms = np.sqrt((values * values).sum(axis=1))
    unit = values / np.where(norms > 0, norms, 1.0)[:, None]
    return {"embedding": list(unit.astype(np.float16)), "embedding_norm": norms.astype(np.float32).tolist()}


def read_embedding(value: Any, width: int | None) -> npt.NDArray[np.float64] | None:
    """One entry of an `embedding` column (array, list or None) as float64 [width].

    Raises:
        ValueError: it has another width.
    """
    if value is None:
        return None
    vector = np.asarray(value, dtype=np.float64)
    if width is not None and vector.shape != (width,):
        raise ValueError(
            f"the embedding has {vector.size} values and this scorer's weights take {width}: "
            "they belong to another embedding model"
        )
    return vector
