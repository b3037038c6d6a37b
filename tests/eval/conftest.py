"""Models of these tests run on one thread."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def _on_one_thread(one_thread: None) -> None:
    """Before fixtures that train for a whole file."""
