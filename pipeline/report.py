"""What a person sees of a finished run: the funnel table and where things are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from curation.reasons import DESCRIPTIONS, Reason
from curation.sources.redact import redact_url


def funnel_table(funnel: Mapping[str, Any]) -> Table:
    """Inputs, kept and dropped per reason, adding up."""
    inputs = funnel["inputs"]
    table = Table(title="Funnel", title_justify="left", show_footer=False)
    table.add_column("reason", no_wrap=True)
    table.add_column("rows", justify="right")
    table.add_column("share", justify="right")
    table.add_column("meaning")

    def share(count: int) -> str:
        return f"{count / inputs:.1%}" if inputs else "-"

    table.add_row("inputs", f"{inputs:,}", share(inputs), "", style="bold", end_section=True)
    for code, count in funnel["dropped"].items():
        meaning = DESCRIPTIONS[Reason(code)] if code in set(Reason) else ""
        table.add_row(code, f"{count:,}", share(count), meaning)
    if funnel["dropped"]:
        table.rows[-1].end_section = True
    table.add_row("kept", f"{funnel['kept']:,}", share(funnel["kept"]), "", style="bold")
    return table


WIDTH = 110
"""Columns of tables that do not go to a terminal."""


def results_console() -> Console:
    """stdout, for results: as wide as the terminal, or `WIDTH` in a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def print_outcome(console: Console, output: str, funnel: Mapping[str, Any], shards: int) -> None:
    """The end of a run: the funnel, where the outputs are, what to do next."""
    output = redact_url(output)
    console.print(funnel_table(funnel))
    lines = [
        f"ledger    {output}/ledger/   one row per input, with every score and the reason it was dropped",
        f"shards    {output}/shards/   {shards} tar{'s' if shards != 1 else ''}, index/, manifest.json and a card",
        f"lineage   {output}/lineage.json",
        f"next      populace funnel {output} --json; change a policy.* limit and run again: nothing is scored twice",
    ]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
