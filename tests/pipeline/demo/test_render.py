from __future__ import annotations

from rich.console import Console

from pipeline.demo.check import DuplicateLinks, Mistake, Report, Score
from pipeline.demo.render import render


def printed(report: Report) -> str:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(report))
    return console.export_text()


def test_the_numbers_and_the_verdict_are_printed() -> None:
    scores = (Score("kept", 80, 100, 78, 0), Score("blocked", 3, 0, 0, 0), Score("too_small", 8, 8, 8, 0))
    mistake = Mistake("id", "a/b.jpg", "", "interface", "not_photo", "kept", "made of x")
    links = DuplicateLinks(5, 7, 0, 0, 0, 0)
    text = printed(Report(111, 111, 100, 11, (), (), (), (), scores, links, (mistake, mistake)))
    lines = [line.replace("│", " ").replace("┃", " ").split() for line in text.splitlines()]
    assert ["kept", "80", "100", "78", "0.780", "0.975", "0.92", "/", "0.95"] in lines
    assert ["blocked", "3", "0", "0", "-", "0.000", "1", "/", "1"] in lines
    assert ["too_small", "8", "8", "8", "1.000", "1.000", "1", "/", "1"] in lines
    assert "100 kept + 11 dropped; 0 lost, 0 extra" in text
    assert "5 exact and 7 near duplicates" in text
    assert "a/b.jpg (made of x)" in text
    assert "The check failed" in text
    assert "kept: precision 0.780 is below 0.92" in text


def test_a_clean_report_passes() -> None:
    scores = (Score("kept", 2, 2, 2, 0),)
    text = printed(Report(2, 2, 2, 0, (), (), (), (), scores, DuplicateLinks(0, 0, 0, 0, 0, 0), ()))
    assert "The check passed." in text
    assert "mistakes" not in text
