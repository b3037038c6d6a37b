"""Folders that Ray needs: what does not do is said with what to set, before Ray starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.ray_folders import home_problem, longest_temporary, temporary_problem
from pipeline.resources import RayAddressError, RayConfig, ray_cluster


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_TMPDIR", "TMPDIR", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


def test_a_home_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "new"))
    assert home_problem() is None, "it is made"
    monkeypatch.setenv("HOME", "/dev/null/nowhere")
    assert str(home_problem()) == (
        "HOME is /dev/null/nowhere, where Ray cannot write .ray/auth_token: set HOME to a folder that you can write, "
        "for example HOME=$PWD"
    )
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert home_problem() is None


def test_a_temporary_folder_of_a_long_path(monkeypatch: pytest.MonkeyPatch) -> None:
    assert temporary_problem() is None
    monkeypatch.setenv("TMPDIR", "/" + "t" * longest_temporary())
    problem = temporary_problem()
    assert problem is not None
    assert f"TMPDIR has {longest_temporary() + 1} bytes" in problem.what
    assert "RAY_TMPDIR=/tmp" in problem.fix
    monkeypatch.setenv("TMPDIR", "/dev/null/t")
    assert "where Ray cannot write" in str(temporary_problem())
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")
    assert temporary_problem() is None


def test_both_are_said_before_ray_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("HOME", "/dev/null/nowhere")
    monkeypatch.setenv("TMPDIR", "/" + "t" * 80)
    with (
        pytest.raises(
            RayAddressError, match=r"Ray cannot start here\. HOME is /dev/null.*TMPDIR has 81 bytes.*set RAY"
        ),
        ray_cluster(RayConfig(), None),
    ):
        raise AssertionError
