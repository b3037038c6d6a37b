"""Positions of visible tokens are looked at where that costs nothing."""

from __future__ import annotations

import pytest
import torch

from training.models import create
from training.models.visible import check_positions


def test_good_positions_pass_in_any_order() -> None:
    check_positions(torch.tensor([[3, 0], [1, 2]]), 4)
    check_positions(torch.empty(0, 3, dtype=torch.int64), 4)


@pytest.mark.parametrize(
    ("keep", "message"),
    [([[0, 4]], "position 4; the grid has tokens 0 to 3"), ([[-1, 2]], "position -1"), ([[0, 1], [2, 2]], "twice")],
)
def test_bad_positions_are_named(keep: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_positions(torch.tensor(keep), 4)
    backbone = create("tiny", depth=2).eval()
    with pytest.raises(ValueError, match=message):
        backbone(torch.zeros(len(keep), 3, 32, 32), torch.tensor(keep))
