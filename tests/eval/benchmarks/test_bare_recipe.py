"""The bare loop drops the same rows at the same stages as the pipeline does."""

from __future__ import annotations

import numpy as np
from PIL import Image

from eval.benchmarks.annotating import NO_POLICY, make_spec, screen_config
from eval.benchmarks.bare_recipe import BareRecipe
from eval.benchmarks.bench_scorers import profile
from eval.benchmarks.pools import tiny_jpeg
from pipeline.chunk import ChunkScorer


def test_bare_recipe_and_pipeline_agree(tmp_path) -> None:
    pool = tmp_path / "pool"
    pool.mkdir()
    for index in range(20):
        (pool / f"{index:02d}.jpg").write_bytes(tiny_jpeg(index, 96))
    for index in range(3):
        Image.new("RGB", (96, 96), (index, 0, 0)).save(pool / f"flat-{index}.jpg")
    (pool / "small.jpg").write_bytes(tiny_jpeg(0, 32))
    (pool / "broken.jpg").write_bytes(tiny_jpeg(0, 96)[:-300])
    config = screen_config(
        pool,
        tmp_path / "run",
        scorers={"safety": None, "aesthetic": {"kind": "photographic"}},
        policy={**NO_POLICY, "too_small": {"min": 64}, "low_entropy": {"min": 3}, "low_aesthetic": {"min": 0.8}},
    )
    spec = make_spec(config)
    state = spec.load(0)
    ChunkScorer(spec.stages, spec.stages.names, spec.policy, spec.reader, spec.decode).run(state)
    files = sorted(str(path) for path in pool.glob("*.jpg"))
    loop = BareRecipe(config, files[0])
    loop.setup()
    assert loop(files) == {"alive": int(state.alive.sum())}
    assert 0 < state.alive.sum() < 20
    scored = {name: int(np.sum(flags)) for name, flags in state.table.scored.items() if name != "read"}
    assert scored == {"header": 25, "screen": 24, "aesthetic": 20}
    assert loop.reached == scored


def test_profile_counts_rows_and_seconds_per_stage(tmp_path) -> None:
    (tmp_path / "pool").mkdir()
    files = []
    for index in range(5):
        path = tmp_path / "pool" / f"{index}.jpg"
        path.write_bytes(tiny_jpeg(index, 64))
        files.append(str(path))
    config = screen_config(
        tmp_path / "pool", tmp_path / "run", scorers={"safety": None, "aesthetic": {"kind": "photographic"}}
    )
    stages = profile(BareRecipe(config, files[0]), files, grab=2)
    assert {name: rows for name, (rows, _) in stages.items()} == {"header": 5, "screen": 5, "aesthetic": 5}
    assert all(seconds >= 0 for _, seconds in stages.values())
