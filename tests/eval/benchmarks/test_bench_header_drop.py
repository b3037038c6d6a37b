"""The bare header loop keeps what is large enough."""

from __future__ import annotations

from eval.benchmarks.bench_header_drop import BareHeader
from eval.benchmarks.pools import tiny_jpeg


def test_small_pictures_are_dropped_by_their_header(tmp_path) -> None:
    loop = BareHeader()
    loop.setup()
    for name, side in (("small", 64), ("below", 383), ("large", 384)):
        (tmp_path / f"{name}.jpg").write_bytes(tiny_jpeg(0, side))
    assert loop([str(tmp_path / f"{name}.jpg") for name in ("small", "below", "large")]) == {"alive": 1}
