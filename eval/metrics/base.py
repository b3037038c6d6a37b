"""What all metrics have in common: their interface and the checks of what they are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from curation.config import Config

Array = NDArray[Any]
State = dict[str, Any]
"""Arrays and texts only: `np.savez` takes it as it is, `json.dumps` after `tolist` of the arrays."""
ConfigT = TypeVar("ConfigT", bound=Config)


class Metric(Protocol):
    """Streaming and mergeable: `a.merge(b)` is, to the last bit, what one metric that saw all pictures would be.

    Each picture must be seen once over all ranks: a sampler that repeats pictures to fill the last batch biases sums.
    """

    config: Any

    def __init__(self, config: Any) -> None: ...

    def update(self, *args: Any, **named: Any) -> None:
        """Take in one picture."""

    def merge(self, other: Any) -> None:
        """Take in what another metric with an equal configuration has seen."""

    def state(self) -> State:
        """All that was seen; the class's `from_state` makes an equal metric of it."""

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Any:
        """The metric that `state` was called on; arrays may be lists, as JSON has them."""

    def compute(self) -> dict[str, float]:
        """The figures. NaN where there was nothing to measure; ValueError if that holds for all of them."""


def as_array(value: Any, name: str, shape: Sequence[int | None], dtype: DTypeLike | None = None) -> Array:
    """An array (a torch tensor of any device will do) of a given shape; None stands for any length.

    Raises:
        ValueError: another shape.
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    array = np.asarray(value, dtype=dtype)
    fits = array.ndim == len(shape) and all(w in (None, h) for w, h in zip(shape, array.shape, strict=True))
    if not fits:
        wanted = ", ".join("any" if length is None else str(length) for length in shape)
        raise ValueError(f"{name} is {list(array.shape)}, must be [{wanted}]")
    return array


def dense_pair(
    prediction: Any, truth: Any, mask: Any, prediction_name: str = "the prediction"
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Check a dense prediction, its truth and the mask of pixels that count.

    Args:
        prediction: float [H, W, 3].
        truth: float [H, W, 3].
        mask: bool [H, W], or None: every pixel.

    Returns:
        prediction and truth as they are, and the mask without pixels whose truth is not finite.

    Raises:
        ValueError: shapes differ (a prediction has to be brought back to the picture's own pixels first: letterbox
            bars cut off, then resized), or a pixel that counts has a prediction that is not finite.
    """
    truth = as_array(truth, "the truth", (None, None, 3))
    prediction = as_array(prediction, prediction_name, (None, None, 3))
    if prediction.shape != truth.shape:
        raise ValueError(
            f"{prediction_name} is {list(prediction.shape)}, the truth {list(truth.shape)}; undo the letterbox or "
            "stretch of the prediction first, so that both are in the picture's own pixels"
        )
    counted = _finite(truth)
    if mask is not None:
        counted &= as_array(mask, "the mask", truth.shape[:2], np.bool_)
    broken = int(np.count_nonzero(counted & ~_finite(prediction)))
    if broken:
        raise ValueError(f"{prediction_name} is NaN or infinite in {broken} of {int(counted.sum())} pixels that count")
    return prediction, truth, counted


def _finite(values: Array) -> NDArray[np.bool_]:
    # By channel: numpy is slow along short axes.
    finite: NDArray[np.bool_] = np.isfinite(values[..., 0])
    for channel in range(1, values.shape[2]):
        finite &= np.isfinite(values[..., channel])
    return finite


def chosen(values: Array, counted: NDArray[np.bool_]) -> Array:
    """The pixels that count, [n, C] of [H, W, C]."""
    return values.reshape(-1, values.shape[2]) if counted.all() else values[counted]


def same_config(ours: Config, theirs: Config) -> None:
    """Refuse to merge what was measured differently.

    Raises:
        ValueError: naming the fields that differ.
    """
    if ours != theirs:
        other = theirs.model_dump()
        fields = [name for name, value in ours.model_dump().items() if other.get(name) != value]
        raise ValueError(f"cannot merge metrics with different configurations: {', '.join(fields)} differ")


def load_config(kind: type[ConfigT], state: Mapping[str, Any]) -> ConfigT:
    """The configuration in a state.

    Raises:
        ValueError: the state is of another metric.
    """
    return kind.model_validate_json(str(state["config"]))
