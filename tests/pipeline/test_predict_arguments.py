"""Arguments are read as users write them, and running out of memory is advice, not a traceback."""

from __future__ import annotations

import argparse

import pytest
import torch
from rich.console import Console

from pipeline.predict_arguments import run_guarded, size, whole


def test_sizes_are_height_and_width() -> None:
    assert size("1024x768") == (1024, 768)
    for text in ("1024", "x768", "a x b", "1024,768"):
        with pytest.raises(argparse.ArgumentTypeError, match="for example 1024x768"):
            size(text)
    assert whole("3") == 3
    for text in ("0", "-1", "2.5"):
        with pytest.raises(argparse.ArgumentTypeError, match="1 or more"):
            whole(text)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_out_of_memory_says_what_to_lower(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def action(console: Console) -> int:
        raise error

    assert run_guarded(action) == 2
    shown = capsys.readouterr().err
    assert "lower --batch-size" in shown
    assert shown.count("\n") == 1


def test_other_errors_of_the_network_are_not_hidden() -> None:
    def action(console: Console) -> int:
        raise RuntimeError("shape mismatch")

    with pytest.raises(RuntimeError, match="shape mismatch"):
        run_guarded(action)
