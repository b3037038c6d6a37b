"""One thing that is wrong with labelled data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from training.data.errors import DataError


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a file.

    Attributes:
        file: path, as the configuration's paths lead to it.
        what: is wrong.
        fix: what to do.
        fatal: the data cannot be used as it is; otherwise it can, but is unlikely to be meant so.
    """

    file: str
    what: str
    fix: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.file}: {self.what}. {self.fix}."


class LabelError(DataError):
    """A label file cannot be used."""

    def __init__(self, file: str, what: str, fix: str) -> None:
        self.problem = Problem(file, what, fix)
        super().__init__(str(self.problem))

    def __reduce__(self) -> tuple[type[LabelError], tuple[str, str, str]]:
        """Loader workers send errors to the training process."""
        return LabelError, (self.problem.file, self.problem.what, self.problem.fix)


def refuse(problems: Sequence[Problem], limit: int = 5) -> None:
    """Raise a DataError that lists the first fatal problems, where there are any."""
    fatal = [problem for problem in problems if problem.fatal]
    if fatal:
        more = f"\nand {len(fatal) - limit} more: `populace check-data` lists all" if len(fatal) > limit else ""
        raise DataError("\n".join(map(str, fatal[:limit])) + more)
