"""Pictures that are passed over: how many, why, and which were the first."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass, field

from curation.sources.names import escape_name

log = logging.getLogger(__name__)

BOX_SIZE = "box_size"
"""The boxes of a picture were made on another size."""
BAD_BOXES = "bad_boxes"
"""What is known of a picture's people cannot be read."""
BAD_MASK = "bad_mask"
"""The mask of a picture cannot be used."""
LABELS = (BOX_SIZE, BAD_BOXES, BAD_MASK)
"""Reasons that lie in what was given beside a picture."""

_LISTED = 1000  # bad pictures that are kept by name


@dataclass(frozen=True)
class Bad:
    """A picture that was passed over: its name, a reason of `curation.reasons` or of `LABELS`, and what happened."""

    name: str
    reason: str
    detail: str


@dataclass
class BadPictures:
    """Count of pictures passed over by reason, and the first of them by name."""

    counts: Counter[str] = field(default_factory=Counter)
    first: list[Bad] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, name: str, reason: str, detail: str) -> None:
        """Count, keep and log one; from any thread (pictures are read ahead on one of their own)."""
        with self._lock:
            self.counts[reason] += 1
            if len(self.first) < _LISTED:
                self.first.append(Bad(name, reason, detail))
        log.warning("%s: %s: %s", escape_name(name), reason, escape_name(detail))

    @property
    def total(self) -> int:
        """How many were passed over."""
        return self.counts.total()
