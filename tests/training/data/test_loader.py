"""The same batches for every number of workers and ranks, from every step on; every sample once per epoch."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import psutil
import pytest
import torch

from tests.conftest import ROOT
from tests.fixtures.exports import export, merge, picture
from training.data.batch import Batch
from training.data.config import CorpusConfig, DataConfig
from training.data.corpus import open_corpus
from training.data.errors import DataError
from training.data.loader import PretrainLoader
from training.data.sampler import BatchPlan
from training.data.views import ViewsConfig
from training.objectives.masks import MaskConfig

VIEWS = ViewsConfig(global_size=(32, 32), local_size=(16, 16), colour={"blur_kernel": 3})
BATCH = 8


def loader(
    data: DataConfig, micro: int = 4, world: int = 1, rank: int = 0, start: int = 0, stop: int | None = None
) -> PretrainLoader:
    corpus = open_corpus(data)
    return PretrainLoader(
        corpus,
        corpus.order(5),
        data=data,
        views=VIEWS,
        mask=MaskConfig(),
        grid=(4, 4),
        plan=BatchPlan(BATCH, micro, world),
        rank=rank,
        start_step=start,
        stop_step=stop,
    )


def config(path: Path, workers: int = 0, **options: object) -> DataConfig:
    return DataConfig(corpora=[CorpusConfig(path=str(path))], workers=workers, shuffle_shards=2, **options)


def samples(batches: list[Batch]) -> dict[int, tuple]:
    """place -> everything of its sample."""
    found = {}
    for batch in batches:
        for at, place in enumerate(batch.position.tolist()):
            assert place not in found
            tensors = [batch.global_views, batch.local_views, batch.boxes, batch.flipped, batch.keep, batch.replaced]
            found[place] = (batch.ids[at], int(batch.index[at]), *(value[at].numpy().tobytes() for value in tensors))
    return found


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 samples in 4 shards, two of them unreadable."""
    folder = tmp_path_factory.mktemp("corpus") / "shards"
    export(folder, [6, 5, 0, 9], contents={3: picture(3)[:300], 12: b"not an image"})
    return folder


@pytest.fixture(scope="module")
def expected(corpus: Path) -> dict[int, tuple]:
    """Samples of the steps 0 to 4, loaded in this process by one rank."""
    return samples(list(loader(config(corpus), stop=5)))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(("workers", "start"), [(1, 0), (3, 1)])
def test_any_number_of_workers(corpus: Path, expected: dict[int, tuple], workers: int, start: int) -> None:
    before = set(multiprocessing.active_children())
    with loader(config(corpus, workers), start=start, stop=5) as loading:
        batches = list(loading)
    assert [batch.position[0] for batch in batches] == list(range(BATCH * start, 5 * BATCH, 4))
    assert samples(batches) == {place: expected[place] for place in range(BATCH * start, 5 * BATCH)}
    assert set(multiprocessing.active_children()) == before


def test_what_is_passed_over_is_counted(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    loading = loader(config(corpus), stop=5)
    replaced = sum(int(batch.replaced.sum()) for batch in loading)
    # Two epochs of a corpus with two unreadable pictures, which may be drawn as substitutes as well.
    assert replaced == sum(loading.reasons.values()) == len(loading.skipped) >= 4
    assert set(loading.reasons) == {"truncated", "not_an_image"}
    assert {one.index for one in loading.skipped} == {3, 12}
    assert f"passed over sample {loading.skipped[0].id} of " in caplog.text


@pytest.mark.parametrize(("world", "micro"), [(1, 8), (1, 1), (2, 4), (2, 2), (4, 2), (8, 1)])
def test_any_number_of_ranks(corpus: Path, expected: dict[int, tuple], world: int, micro: int) -> None:
    by_rank = [list(loader(config(corpus), micro, world, rank, stop=5)) for rank in range(world)]
    together = [batch for step in zip(*by_rank, strict=True) for batch in step]
    # Concatenated, the micro-batches of all ranks are the places in order.
    assert [place for batch in together for place in batch.position.tolist()] == list(range(40))
    assert samples(together) == expected


@pytest.mark.parametrize("start", [1, 3])
def test_resuming_at_any_step(corpus: Path, expected: dict[int, tuple], start: int) -> None:
    found = samples(list(loader(config(corpus), start=start, stop=5)))
    assert found == {place: expected[place] for place in range(BATCH * start, 5 * BATCH)}


def test_every_sample_once_per_epoch(tmp_path: Path) -> None:
    ids = export(tmp_path / "a", [5, 3, 8])
    seen = [name for batch in loader(config(tmp_path / "a"), stop=6) for name in batch.ids]
    assert Counter(seen[:16]) == Counter(seen[16:32]) == Counter(seen[32:]) == Counter(ids)


def test_a_batch_larger_than_the_corpus_goes_on_in_the_next_epoch(tmp_path: Path) -> None:
    ids = export(tmp_path / "a", [2, 1])
    batches = list(loader(config(tmp_path / "a"), micro=8, stop=3))
    seen = [name for batch in batches for name in batch.ids]
    assert len(seen) == 24
    assert Counter(seen) == dict.fromkeys(ids, 8)
    # A picture that comes again is cut anew.
    first = [at for at, name in enumerate(seen) if name == ids[0]][:2]
    views = torch.cat([batch.global_views for batch in batches])
    assert not torch.equal(views[first[0]], views[first[1]])


def test_two_manifests_with_weights(tmp_path: Path) -> None:
    names = {}
    for number, (folder, count) in enumerate((("a", 4), ("b", 30))):
        names |= dict.fromkeys(export(tmp_path / folder, [count], first=100 * number), folder)
    entries = [CorpusConfig(path=str(tmp_path / "a"), weight=3), CorpusConfig(path=str(tmp_path / "b"), weight=1)]
    data = DataConfig(corpora=entries, workers=0)
    for batch in loader(data, stop=5, micro=8):
        assert Counter(names[one] for one in batch.ids) == {"a": 6, "b": 2}


def test_a_merged_manifest(tmp_path: Path) -> None:
    ids = export(tmp_path / "a", [4]) + export(tmp_path / "b", [3, 1], first=4)
    merge(tmp_path / "b" / "merged.json", [tmp_path / "a", tmp_path / "b"])
    seen = [name for batch in loader(config(tmp_path / "b" / "merged.json"), stop=1) for name in batch.ids]
    assert sorted(seen) == sorted(ids)


def test_errors_of_a_worker_name_shard_and_sample(tmp_path: Path) -> None:
    export(tmp_path / "a", [8], contents=dict.fromkeys(range(8), b"nothing"))
    with (
        loader(config(tmp_path / "a", workers=1)) as loading,
        pytest.raises(DataError, match=r"(?s)worker process 0.*none of 16 samples for place 0 .*000000\.tar"),
    ):
        next(iter(loading))


def test_iterating_again_starts_again_and_leaves_no_worker(corpus: Path, expected: dict[int, tuple]) -> None:
    before = set(multiprocessing.active_children())
    loading = loader(config(corpus, workers=1))
    state = torch.get_rng_state()
    for _ in range(2):
        assert samples(list(islice(loading, 1))) == {place: expected[place] for place in range(4)}
    loading.close()
    loading.close()
    assert torch.equal(torch.get_rng_state(), state)
    assert set(multiprocessing.active_children()) == before


def test_ranks_and_steps_that_do_not_exist(corpus: Path) -> None:
    with pytest.raises(ValueError, match="2 ranks"):
        loader(config(corpus), 4, world=2, rank=2)
    with pytest.raises(ValueError, match="steps from 0"):
        loader(config(corpus), start=-1)


def test_workers_end_with_a_trainer_that_is_killed(tmp_path: Path) -> None:
    """kill -9 leaves no time to end them; the server that forked them stays alive for a while."""
    export(tmp_path / "shards", [8])
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from training.data.config import CorpusConfig, DataConfig\n"
        "from training.data.corpus import open_corpus\n"
        "from training.data.loader import PretrainLoader\n"
        "from training.data.sampler import BatchPlan\n"
        "from training.data.views import ViewsConfig\n"
        "from training.objectives.masks import MaskConfig\n"
        "if __name__ == '__main__':\n"
        "    data = DataConfig(corpora=[CorpusConfig(path=sys.argv[1])], workers=1)\n"
        "    views = ViewsConfig(global_size=(32, 32), local_size=(16, 16), colour={'blur_kernel': 3})\n"
        "    corpus = open_corpus(data)\n"
        "    loader = PretrainLoader(corpus, corpus.order(5), data=data, views=views, mask=MaskConfig(),\n"
        "                            grid=(4, 4), plan=BatchPlan(8, 4, 1))\n"
        "    next(iter(loader))\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(120)\n"
    )
    file = tmp_path / "trainer.py"
    file.write_text(program)
    trainer = subprocess.Popen(
        [sys.executable, str(file), str(tmp_path / "shards")],
        stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert trainer.stdout is not None
    assert trainer.stdout.readline() == "ready\n"
    helpers = psutil.Process(trainer.pid).children(recursive=True)
    assert len(helpers) >= 2  # the server, and the worker
    trainer.kill()
    trainer.wait()
    _, alive = psutil.wait_procs(helpers, timeout=20)
    assert alive == []
