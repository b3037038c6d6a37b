"""The steady rate counts the rows between start-up and tail, and says so when there is no such stretch."""

from __future__ import annotations

import pytest

from eval.benchmarks.annotating import NO_POLICY, make_spec, screen_config, steady_annotate
from eval.benchmarks.pools import tiny_folder


def test_steady_annotate_counts_the_middle_chunks(tmp_path, ray_cluster) -> None:
    pool = tiny_folder(tmp_path / "pool", 62)
    rate = steady_annotate(screen_config(pool, tmp_path / "run", chunk_rows=4), workers=2)
    # 16 chunks, the last of 2 rows: two start the clock, the last two are the tail, 12 count.
    assert rate.rows in (46, 48)
    assert rate.counts == {"alive": 62}
    assert rate.seconds > 0


def test_too_few_chunks_are_refused(tmp_path) -> None:
    pool = tiny_folder(tmp_path / "pool", 8)
    with pytest.raises(ValueError, match="steady state"):
        steady_annotate(screen_config(pool, tmp_path / "run", chunk_rows=4), workers=2)


def test_the_policy_is_off_unless_given(tmp_path) -> None:
    pool = tiny_folder(tmp_path / "pool", 2)
    assert not make_spec(screen_config(pool, tmp_path / "a")).policy.columns
    policy = {**NO_POLICY, "too_small": {"min": 384}}
    assert make_spec(screen_config(pool, tmp_path / "b", policy=policy)).policy.columns == {"short_side"}
