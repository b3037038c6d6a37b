"""Compares a run's ledger with the truth of the demo pool.

Labels are "kept" and the reason codes. Within a duplicate family labels are interchangeable, because which member
survives is the pipeline's choice: a family is right when it has the right number of each. An input may have more than
one right label (`Truth.acceptable`); it then counts for the one that was found. A copy of a picture that was dropped
for another reason is not expected to be called a duplicate: it shares the picture's verdict.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from curation.reasons import Reason
from pipeline.demo.links import DUPLICATES, DuplicateLinks, duplicate_links
from pipeline.demo.plan import RADIUS
from pipeline.demo.truth import KEPT

LEDGER_COLUMNS = ("id", "verdict", "reason", "duplicate_of", "distance", "phash")
"""What `check` reads of the ledger; `phash_degenerate` too if it is there."""


@dataclass(frozen=True, slots=True)
class Score:
    """How one label was found.

    Attributes:
        label: "kept" or a reason code.
        expected: inputs for which it is right; where several labels are right, the one that was found counts.
        found: inputs that the ledger gives it.
        correct: inputs in both.
        accepted: those of `correct` whose first choice in the truth is another label.
    """

    label: str
    expected: int
    found: int
    correct: int
    accepted: int

    @property
    def precision(self) -> float:
        """correct / found; NaN when nothing was found."""
        return self.correct / self.found if self.found else float("nan")

    @property
    def recall(self) -> float:
        """correct / expected; NaN when nothing was expected."""
        return self.correct / self.expected if self.expected else float("nan")


@dataclass(frozen=True, slots=True)
class Mistake:
    """An input with a wrong label, or one of a family with a wrong number of labels."""

    id: str
    uri: str
    member: str
    kind: str
    expected: str
    found: str
    note: str


@dataclass(frozen=True, slots=True)
class Report:
    """What `check` found.

    Attributes:
        inputs: rows in the truth.
        rows: rows in the ledger.
        kept, dropped: rows of the ledger by verdict.
        missing: ids in the truth and not in the ledger.
        extra: ids in the ledger and not in the truth.
        repeated: ids that the ledger has more than once.
        inconsistent: ids whose verdict and reason contradict each other, or are no known words.
        scores: one per label that is expected or found, "kept" first, then in the order of `Reason`.
        links: the duplicates.
        mistakes: inputs with wrong labels, in the order of the truth.
    """

    inputs: int
    rows: int
    kept: int
    dropped: int
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    repeated: tuple[str, ...]
    inconsistent: tuple[str, ...]
    scores: tuple[Score, ...]
    links: DuplicateLinks
    mistakes: tuple[Mistake, ...]

    @property
    def adds_up(self) -> bool:
        """Every input has exactly one row, and kept + dropped is all of them."""
        lost = self.missing or self.extra or self.repeated or self.inconsistent
        return not lost and self.rows == self.inputs == self.kept + self.dropped

    def score(self, label: str) -> Score:
        """The score of a label; all zero when it is neither expected nor found."""
        return next((score for score in self.scores if score.label == label), Score(label, 0, 0, 0, 0))


def check(ledger_table: pa.Table, truth: pa.Table, radius: int = RADIUS) -> Report:
    """Compare a ledger with the truth.

    Args:
        ledger_table: `LEDGER_COLUMNS`, one row per input, of one or more runs.
        truth: `pipeline.demo.truth.TRUTH_SCHEMA` of the same sources.
        radius: of the run's near duplicates, bits.

    Raises:
        ValueError: the ledger lacks a column.
    """
    absent = [name for name in LEDGER_COLUMNS if name not in ledger_table.column_names]
    if absent:
        raise ValueError(f"the ledger has no column {', '.join(absent)}; it needs {', '.join(LEDGER_COLUMNS)}")
    names = [*LEDGER_COLUMNS, *(name for name in ("phash_degenerate",) if name in ledger_table.column_names)]
    ledger = ledger_table.select(names).to_pylist()
    inputs = truth.to_pylist()
    occurrences = Counter(row["id"] for row in ledger)
    found = {row["id"]: _label(row) for row in ledger}
    scores, mistakes = _scores(inputs, found)
    known = {row["id"] for row in inputs}
    families = {row["id"]: row["group"] for row in inputs}
    verdicts = Counter(row["verdict"] for row in ledger)
    return Report(
        inputs=len(inputs),
        rows=len(ledger),
        kept=verdicts["kept"],
        dropped=verdicts["dropped"],
        missing=tuple(row["id"] for row in inputs if row["id"] not in occurrences),
        extra=tuple(sorted(occurrences.keys() - known)),
        repeated=tuple(sorted(name for name, times in occurrences.items() if times > 1)),
        inconsistent=tuple(row["id"] for row in ledger if not _is_consistent(row)),
        scores=scores,
        links=duplicate_links(ledger, families, radius),
        mistakes=mistakes,
    )


def combine(reports: Sequence[Report]) -> Report:
    """One report over runs of different sources; nothing is compared across them."""
    labels = [KEPT, *Reason]
    labels += sorted({score.label for report in reports for score in report.scores} - set(labels))
    scores = []
    for label in labels:
        parts = [report.score(label) for report in reports]
        sums = [sum(getattr(part, name) for part in parts) for name in ("expected", "found", "correct", "accepted")]
        if any(sums):
            scores.append(Score(str(label), *sums))
    links = DuplicateLinks(
        *(sum(getattr(report.links, field.name) for report in reports) for field in fields(DuplicateLinks))
    )

    def together(name: str) -> tuple[Any, ...]:
        return tuple(item for report in reports for item in getattr(report, name))

    return Report(
        inputs=sum(report.inputs for report in reports),
        rows=sum(report.rows for report in reports),
        kept=sum(report.kept for report in reports),
        dropped=sum(report.dropped for report in reports),
        missing=together("missing"),
        extra=together("extra"),
        repeated=together("repeated"),
        inconsistent=together("inconsistent"),
        scores=tuple(scores),
        links=links,
        mistakes=together("mistakes"),
    )


def _label(row: Mapping[str, Any]) -> str:
    return KEPT if row["verdict"] == "kept" else str(row["reason"])


def _is_consistent(row: Mapping[str, Any]) -> bool:
    if row["verdict"] == "kept":
        return row["reason"] is None
    return row["verdict"] == "dropped" and row["reason"] in set(Reason)


def _scores(
    inputs: Sequence[Mapping[str, Any]], found: Mapping[str, str]
) -> tuple[tuple[Score, ...], tuple[Mistake, ...]]:
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in inputs:
        groups[row["group"]].append(row)
    expected: Counter[str] = Counter()
    correct: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    wrong: set[str] = set()
    for family in groups.values():
        left = Counter(found[row["id"]] for row in family if row["id"] in found)
        survives = any(label == KEPT or label in DUPLICATES for label in left)
        unmatched = []
        for row in family:
            if left[row["expected"]]:
                left[row["expected"]] -= 1
                expected[row["expected"]] += 1
                correct[row["expected"]] += 1
            else:
                unmatched.append(row)
        for row in unmatched:
            other = next((label for label in row["acceptable"] if left[label]), None)
            if row["expected"] == Reason.EXACT_DUPLICATE and not survives and row["id"] in found:
                continue  # equal bytes have equal verdicts: the original's was the mistake
            expected[other or row["expected"]] += 1
            if other is not None:
                left[other] -= 1
                correct[other] += 1
                accepted[other] += 1
        wrong.update(_blamed(family, found, +left))
    labels = [KEPT, *Reason]
    totals = Counter(found[row["id"]] for row in inputs if row["id"] in found)
    labels += sorted(totals.keys() - set(labels))
    scores = tuple(
        Score(str(label), expected[label], totals[label], correct[label], accepted[label])
        for label in labels
        if expected[label] or totals[label]
    )
    mistakes = tuple(
        Mistake(
            row["id"],
            row["uri"],
            row["member"],
            row["kind"],
            row["expected"],
            found.get(row["id"], "(no row)"),
            f"{row['note']}; {row['transform']}",
        )
        for row in inputs
        if row["id"] in wrong or row["id"] not in found
    )
    return scores, mistakes


def _blamed(family: Iterable[Mapping[str, Any]], found: Mapping[str, str], surplus: Counter[str]) -> list[str]:
    """The members that a family's surplus labels are laid on: those for which the label is not right, first."""
    blamed = []
    for strict in (True, False):
        for row in family:
            label = found.get(row["id"])
            right = label == row["expected"] or label in row["acceptable"]
            if label is not None and surplus[label] and row["id"] not in blamed and not (strict and right):
                surplus[label] -= 1
                blamed.append(row["id"])
    return blamed
