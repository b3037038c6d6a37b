"""The guard of a run: decides at every step whether its loss can be trusted.

Two things are looked for: a loss or gradient norm that is not finite, and (if asked for) a spike, a loss far above the
median of recent ones. The median does not follow the spikes it is there to find, as a mean would.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from curation.config import Config

Action = Literal["ok", "skip", "stop"]


class GuardConfig(Config):
    """What happens to a step whose loss cannot be trusted. All numbers are our choice; the paper has no guard."""

    on_nonfinite: Literal["stop", "skip"] = Field(
        "stop", description="a loss or gradient norm is not finite: stop the run, or skip the step's update"
    )
    on_spike: Literal["ignore", "stop", "skip"] = Field(
        "ignore", description="the loss is far above recent ones: nothing, stop the run, or skip the step's update"
    )
    spike_factor: float = Field(3.0, gt=1, description="a spike is above this many times the median of recent losses")
    window: int = Field(100, ge=1, description="recent finite losses that the median is of")
    warmup: int = Field(1000, ge=0, description="steps at the start of the run in which nothing is a spike")
    max_consecutive_skips: int = Field(
        10, ge=0, description="steps skipped in a row before the run stops after all: then it is not one bad batch"
    )


@dataclass(frozen=True)
class Verdict:
    """What to do with a step."""

    action: Action
    """ "ok" = update the weights, "skip" = leave student and teacher as they are, "stop" = end the run."""
    kind: Literal["none", "nonfinite", "spike"] = "none"
    reason: str = ""
    """In words, empty for "ok"."""


class GuardStopError(RuntimeError):
    """The guard ended the run. The message says why, which file holds the batch, and how to go on."""


class Guard:
    """Judges steps in order.

    Decides from what it is given and what it saw before, nothing else. Give every rank the same numbers (the loss as
    reduced over ranks and micro-batches): then all decide alike without a message. `state_dict` belongs into the
    checkpoint, so that a resumed run decides like one that was never interrupted.
    """

    def __init__(self, config: GuardConfig) -> None:
        self.config = config
        self._losses: deque[float] = deque(maxlen=config.window)
        self._consecutive = 0
        self.skipped = 0
        """Steps skipped since the start of the run."""

    def check(self, step: int, loss: float, grad_norm: float | None = None) -> Verdict:
        """Judge a step before its update.

        Args:
            step: 0-based number of the step.
            loss: the weighted total of the whole global batch.
            grad_norm: global norm of its gradients before clipping; None = not known yet.

        Returns:
            The verdict. Only losses of "ok" steps enter the median.
        """
        verdict = self._judge(step, float(loss), None if grad_norm is None else float(grad_norm))
        if verdict.action == "skip":
            self._consecutive += 1
            if self._consecutive > self.config.max_consecutive_skips:
                return Verdict(
                    "stop",
                    verdict.kind,
                    f"{verdict.reason}; and {self.config.max_consecutive_skips} steps before it were skipped in a row "
                    "(max_consecutive_skips)",
                )
            self.skipped += 1
        elif verdict.action == "ok":
            self._consecutive = 0
            self._losses.append(float(loss))
        return verdict

    def _judge(self, step: int, loss: float, grad_norm: float | None) -> Verdict:
        if not math.isfinite(loss):
            return Verdict(self.config.on_nonfinite, "nonfinite", f"the loss of step {step} is {loss}")
        if grad_norm is not None and not math.isfinite(grad_norm):
            reason = f"the gradient norm of step {step} is {grad_norm} (its loss is {loss:.6g})"
            return Verdict(self.config.on_nonfinite, "nonfinite", reason)
        # Half a window of losses at least: fewer have no median worth the name.
        enough = step >= self.config.warmup and 2 * len(self._losses) >= self.config.window
        if self.config.on_spike != "ignore" and enough:
            median = statistics.median(self._losses)
            if median > 0 and loss > self.config.spike_factor * median:
                reason = (
                    f"the loss of step {step} is {loss:.6g}, {loss / median:.3g} times the median {median:.6g} of the "
                    f"last {len(self._losses)} (spike_factor is {self.config.spike_factor:g})"
                )
                return Verdict(self.config.on_spike, "spike", reason)
        return Verdict("ok")

    def state_dict(self) -> dict[str, Any]:
        """JSON-able; numbers come back exactly."""
        return {"losses": list(self._losses), "consecutive": self._consecutive, "skipped": self.skipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`. With a smaller window than it was saved with, the latest losses stay.

        Raises:
            ValueError: it is not the state of a guard.
        """
        try:
            losses = [float(loss) for loss in state["losses"]]
            consecutive, skipped = int(state["consecutive"]), int(state["skipped"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is not the state of a guard ({error!r}): give what state_dict() returned") from None
        self._losses = deque(losses, maxlen=self.config.window)
        self._consecutive, self.skipped = consecutive, skipped
