"""Outputs are whole or not there, and stay in their folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.prediction.files import land, landing, output_path


@pytest.mark.parametrize("name", ["../a", "a/../../b", "/etc/x", ""])
def test_names_that_lead_out_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="leads out of"):
        output_path(tmp_path, name, ".npy")


def test_names_keep_dots_and_long_ones_stay_different(tmp_path: Path) -> None:
    assert output_path(tmp_path, "x/photo.v1", ".npy") == tmp_path / "x/photo.v1.npy"
    one, other = (output_path(tmp_path, "n" * 240 + end, ".npy") for end in "ab")
    assert one != other
    land(one, b"data")
    assert one.read_bytes() == b"data"


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "deep/file"
    land(path, b"old")

    def stopped() -> None:
        with landing(path) as temporary:
            temporary.write_bytes(b"half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stopped()
    assert path.read_bytes() == b"old"
    assert [item.name for item in path.parent.iterdir()] == ["file"]
