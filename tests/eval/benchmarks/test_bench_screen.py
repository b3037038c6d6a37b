"""The bare screen loop does what the pipeline's screen does, only less of it."""

from __future__ import annotations

import numpy as np

from curation.dedup.hamming import hamming_distance
from curation.scorers.header import HeaderScorer
from curation.scorers.screen import ScreenScorer
from eval.benchmarks.bench_screen import BareScreen, small_hash
from eval.benchmarks.pools import photographs, tiny_jpeg


def test_the_bare_hash_is_that_of_the_same_small_picture(tmp_path) -> None:
    loop = BareScreen()
    loop.setup()
    files = sorted(photographs(tmp_path / "pool", 3).glob("*.jpg"))
    for data in [*(file.read_bytes() for file in files), tiny_jpeg(4, 200)]:
        header = HeaderScorer().measure(data)[1]
        columns, _ = ScreenScorer().measure(data, header)
        bare = np.array([small_hash(data)], np.uint64)
        assert hamming_distance(bare, np.array([columns["phash"]], np.uint64))[0] <= 10
    assert loop([str(file) for file in files]) == {"alive": 3}
