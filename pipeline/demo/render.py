"""What the check of the demo prints, and when it passes."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from curation.reasons import Reason
from pipeline.demo.check import Report, Score
from pipeline.demo.truth import KEPT

EXACT: frozenset[str] = frozenset(
    {
        Reason.EMPTY,
        Reason.BAD_CONTAINER,
        Reason.TRUNCATED_CONTAINER,
        Reason.UNSAFE_MEMBER,
        Reason.NOT_AN_IMAGE,
        Reason.UNSUPPORTED_FORMAT,
        Reason.TRUNCATED,
        Reason.CORRUPT,
        Reason.TOO_MANY_PIXELS,
        Reason.TOO_SMALL,
        Reason.ASPECT_RATIO,
        Reason.OPTED_OUT,
        Reason.LICENCE,
        Reason.BLOCKED,
    }
)
"""Labels that can be decided without a model: precision and recall must be 1."""

FLOORS: dict[str, tuple[float, float]] = {}
"""Label -> smallest precision and recall."""
