"""Figures say what was measured, and a bare loop hands out every item once."""

from __future__ import annotations

import json
import time

import pytest

from eval.benchmarks.bench_export import PlainCopy
from eval.benchmarks.common import CpuMeter, Figure, Rate, Report, alternate, compare, run_loop


def test_compare_takes_medians_of_rates_and_of_the_ratios_of_rounds() -> None:
    ours = [Rate(100, 1.0, 0.5), Rate(100, 2.0, 0.5), Rate(100, 4.0, 0.5)]
    limit = [Rate(100, 1.0, 0.25), Rate(100, 1.0, 0.5), Rate(100, 1.0, 0.5)]
    figure = compare("x", "rows/s", ours, limit, 0.6)
    assert (figure.ours, figure.limit, figure.ratio) == (50.0, 100.0, 0.5)
    assert figure.spread == (0.25, 1.0)
    assert figure.met is False
    assert figure.detail == {"cpu ms a row": 5.0, "limit's cpu ms a row": 5.0, "cpu ratio": 1.0}
    assert compare("x", "rows/s", ours, limit, 0.5).met is True
    assert compare("x", "rows/s", ours, limit).met is None


def test_alternate_changes_the_order_each_round() -> None:
    called: list[str] = []

    def side(name: str) -> Rate:
        called.append(name)
        return Rate(len(called), 1.0, 1.0)

    first, second = alternate(3, lambda: side("a"), lambda: side("b"))
    assert called == ["a", "b", "b", "a", "a", "b"]
    assert [rate.rows for rate in first] == [1, 4, 5]
    assert [rate.rows for rate in second] == [2, 3, 6]


def test_figures_print_as_text_and_as_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    figure = Figure("screen", 90.0, "images/s", 100.0, 0.9, "at least 0.85", True, (0.8, 1.0), {"rows": 7})
    Report(as_json=False)(figure)
    text = capsys.readouterr().out
    assert text == (
        "screen: ours 90 images/s, limit 100 images/s, ratio 0.90 (0.80..1.00); goal at least 0.85: met; rows 7\n"
    )
    Report(as_json=True)(figure)
    assert json.loads(capsys.readouterr().out)["ratio"] == 0.9


def test_a_bare_loop_handles_every_item_once(tmp_path) -> None:
    sources = []
    for index in range(7):
        path = tmp_path / f"{index}.bin"
        path.write_bytes(bytes([index]) * (index + 1))
        sources.append(str(path))
    items = [([source], f"{source}.copy") for source in sources]
    rate = run_loop(PlainCopy(), items, workers=2, grab=2)
    assert rate.rows == 7
    assert rate.counts == {"bytes": 28}
    assert rate.seconds > 0
    assert all((tmp_path / f"{i}.bin.copy").read_bytes() == (tmp_path / f"{i}.bin").read_bytes() for i in range(7))


def test_a_bare_loop_that_fails_is_an_error(tmp_path) -> None:
    with pytest.raises(RuntimeError, match="died"):
        run_loop(PlainCopy(), [([str(tmp_path / "absent")], str(tmp_path / "copy"))], workers=1)


def test_the_cpu_meter_sees_work() -> None:
    with CpuMeter(every=0.05) as meter:
        meter.sample()
        started, before = time.time(), time.process_time()
        while time.process_time() - before < 0.3:
            sum(range(1000))
        stopped = time.time()
        meter.sample()
    assert meter.between(started, stopped) > 0.1
