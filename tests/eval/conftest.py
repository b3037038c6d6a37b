"""Models of these tests run on one thread, as those of training do."""

from __future__ import annotations

from tests.training.conftest import one_thread

__all__ = ["one_thread"]
