"""How fast a run is: images and tokens a second, model-FLOPs utilisation, time left, peak memory."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import torch

from training.watch import names


class Rates:
    """Rates over a sliding window of steps, of all devices together.

    Everything between the ends of two steps counts, also saving a checkpoint or drawing pictures: it is what the run
    gets through, not what a step could do. The first step, with its compilation and warm-up, is never counted.

    Images are training images (one with its V + L views is one image). Tokens are image tokens that pass an encoder,
    the visible ones of the student's global views, those of its local views, and those of the teacher's global views
    (`StepCost.tokens`); not [CLS], registers or what the decoder adds.

    Args:
        flops_per_image: model FLOPs of one training image, forward and backward (`StepCost.total_flops`).
        tokens_per_image: `StepCost.tokens`.
        peak_flops: of all devices of the run together, FLOP/s; None = not known, and no utilisation is given.
        total_steps: of the run, for the time left.
        window: steps that are looked back at.
        clock: seconds, ascending.
    """

    def __init__(
        self,
        *,
        flops_per_image: float,
        tokens_per_image: float,
        peak_flops: float | None,
        total_steps: int,
        window: int = 50,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if window < 1:
            raise ValueError(f"window is {window} steps; give 1 or more")
        if peak_flops is not None and not peak_flops > 0:
            raise ValueError(f"peak_flops is {peak_flops}; give FLOP/s of all devices together, above 0, or None")
        self._flops = flops_per_image
        self._tokens = tokens_per_image
        self._peak = peak_flops
        self._total = total_steps
        self._clock = clock
        # The end of each step: when, and images up to there.
        self._ends: deque[tuple[float, int]] = deque(maxlen=window + 1)
        self._images = 0
        self._done = 0

    def step(self, step: int, images: int) -> None:
        """Call at the end of every step.

        Args:
            step: 0-based number of the step that ended.
            images: training images in it, of all ranks.
        """
        self._images += images
        self._done = step + 1
        self._ends.append((self._clock(), self._images))

    def values(self) -> dict[str, float]:
        """Rates by name (see `names`); {} before the second step. Utilisation is left out where no peak is known."""
        if len(self._ends) < 2:
            return {}
        (start, before), (end, after) = self._ends[0], self._ends[-1]
        seconds = max(end - start, 1e-9)
        images = (after - before) / seconds
        step = seconds / (len(self._ends) - 1)
        values = {
            names.IMAGES_PER_S: images,
            names.TOKENS_PER_S: images * self._tokens,
            names.STEP_S: step,
            names.SECONDS_LEFT: max(0, self._total - self._done) * step,
        }
        if self._peak is not None:
            values[names.MFU] = images * self._flops / self._peak
        return values


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory that was in use since the process began (or `torch.cuda.reset_peak_memory_stats`).

    On a GPU what PyTorch's allocator gave out, without fragmentation and without the CUDA context (about 0.5 GB);
    elsewhere the resident memory of this process, without its loader workers.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    if status.exists():
        # The getrusage of Linux starts a process at its parent's peak.
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
