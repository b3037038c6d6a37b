"""What the check of the demo prints."""

from __future__ import annotations

import math
from collections import Counter

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline.demo.check import Mistake, Report
from pipeline.demo.floors import EXACT, FLOORS, failures

SHOWN_MISTAKES = 12


def render(report: Report) -> RenderableType:
    """Precision and recall per label, the duplicates, the commonest mistakes, and whether the demo passes."""
    table = Table(title="Checked against the known truth", title_justify="left", caption_justify="left")
    table.add_column("label", no_wrap=True)
    for name in ("expected", "found", "correct", "precision", "recall", "must be"):
        table.add_column(name, justify="right")
    for score in report.scores:
        table.add_row(
            score.label,
            str(score.expected),
            str(score.found),
            str(score.correct),
            _share(score.precision),
            _share(score.recall),
            _demand(score.label),
        )
    links = report.links
    lines = [
        f"{report.inputs} inputs, {report.rows} rows: {report.kept} kept + {report.dropped} dropped; "
        f"{len(report.missing)} lost, {len(report.extra)} extra",
        f"{links.exact} exact and {links.near} near duplicates; {links.not_kept} name a row that was not kept, "
        f"{links.other_family} a row of another family; {links.kept_pairs} pairs of kept rows are near",
    ]
    parts: list[RenderableType] = [table, Text("\n".join(lines))]
    if report.mistakes:
        parts.append(_mistakes(report.mistakes))
    wrong = failures(report)
    if wrong:
        parts.append(Text("The check failed:\n" + "\n".join(f"  {line}" for line in wrong), style="bold red"))
    else:
        parts.append(Text("The check passed.", style="bold green"))
    return Group(*parts)


def _mistakes(mistakes: tuple[Mistake, ...]) -> Table:
    table = Table(title=f"{len(mistakes)} mistakes, by what was made", title_justify="left")
    table.add_column("inputs", justify="right")
    for name in ("made as", "expected", "found", "for example"):
        table.add_column(name, overflow="fold")
    counts = Counter((item.kind, item.expected, item.found) for item in mistakes)
    for (kind, expected, found), count in counts.most_common(SHOWN_MISTAKES):
        example = next(item for item in mistakes if (item.kind, item.expected, item.found) == (kind, expected, found))
        place = f"{example.uri}:{example.member}" if example.member else example.uri
        table.add_row(str(count), kind, expected, found, f"{place} ({example.note})")
    return table


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _demand(label: str) -> str:
    if label in EXACT:
        return "1 / 1"
    if label in FLOORS:
        precision, recall = FLOORS[label]
        return f"{precision:.2f} / {recall:.2f}"
    return ""
