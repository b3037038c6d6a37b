"""A batch is a function of its places; what cannot be read is replaced the same way on every run."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from curation.decode import DecodeConfig, decode, read_header
from tests.fixtures.exports import export, picture, upload
from training.data.batch import Batch
from training.data.config import CorpusConfig, DataConfig
from training.data.corpus import open_corpus
from training.data.errors import DataError
from training.data.keys import Purpose, generator
from training.data.samples import SampleMaker, covers
from training.data.views import ViewsConfig, draw_views, make_views
from training.objectives.masks import MaskConfig, sample_keep

VIEWS = ViewsConfig(global_size=(32, 32), local_size=(16, 16), colour={"blur_kernel": 3})
GRID = (4, 4)


def config(*paths: Path | str, **options: object) -> DataConfig:
    return DataConfig(corpora=[CorpusConfig(path=str(path)) for path in paths], **options)


def maker(data: DataConfig, seed: int = 3, views: ViewsConfig = VIEWS) -> SampleMaker:
    corpus = open_corpus(data)
    return SampleMaker(corpus, corpus.order(seed), data, views, MaskConfig(), GRID)


def digest(batch: Batch) -> str:
    """Of everything in a batch."""
    values = [repr(batch.ids).encode()]
    for name, value in sorted(batch.__dict__.items()):
        if isinstance(value, torch.Tensor):
            values.append(name.encode() + str(value.dtype).encode() + value.numpy().tobytes())
    return hashlib.sha256(b"".join(values)).hexdigest()


def test_a_batch_against_its_parts(tmp_path: Path) -> None:
    ids = export(tmp_path / "a", [5, 4])
    data = config(tmp_path / "a")
    batch, skipped = maker(data).make([20, 3, 8])
    assert skipped == []
    assert batch.position.tolist() == [20, 3, 8]
    order = open_corpus(data).order(3)
    for place, position in enumerate((20, 3, 8)):
        row = int(order.row([position])[0][0])
        assert (batch.index[place], batch.ids[place], batch.replaced[place]) == (row, ids[row], 0)
        encoded = picture(row)
        header = read_header(encoded, DecodeConfig())
        decoded = decode(encoded, header, DecodeConfig(), None)  # type: ignore[arg-type]
        views = make_views(decoded.pixels, generator(3, Purpose.VIEWS, position), VIEWS)  # type: ignore[union-attr]
        assert torch.equal(batch.global_views[place], views.global_views)
        assert torch.equal(batch.local_views[place], views.local_views)
        masks = generator(3, Purpose.MASK, position)
        keep = [sample_keep(masks, GRID, MaskConfig()) for _ in range(2)]
        np.testing.assert_array_equal(batch.keep[place], np.stack(keep))


def test_batches_do_not_depend_on_what_was_made_before(tmp_path: Path) -> None:
    export(tmp_path / "a", [5, 4])
    data = config(tmp_path / "a")
    used = maker(data)
    used.make([7, 1])
    used.close()
    alone = digest(maker(data).make([4, 30])[0])
    assert digest(used.make([4, 30])[0]) == alone
    assert digest(pickle.loads(pickle.dumps(used)).make([4, 30])[0]) == alone
    assert digest(maker(data, seed=4).make([4, 30])[0]) != alone


def test_unreadable_samples_are_replaced_alike_and_counted(tmp_path: Path) -> None:
    broken = {2: b"", 5: picture(5)[:400], 6: b"<html>", 9: picture(9)[:-300]}
    ids = export(tmp_path / "a", [6, 6], contents=broken)
    data = config(tmp_path / "a", shuffle_shards=1)
    first, skipped = maker(data).make(range(12))
    again, skipped_again = maker(data).make(range(12))
    assert digest(first) == digest(again)
    assert skipped == skipped_again
    order = open_corpus(data).order(3)
    planned = order.row(np.arange(12))[0]
    reasons = {one.index: str(one.reason) for one in skipped}
    assert reasons == {2: "empty", 5: "truncated", 6: "not_an_image", 9: "truncated"}
    assert all(one.id == ids[one.index] and one.shard.endswith(f"{one.index // 6:06d}.tar") for one in skipped)
    for place in range(12):
        row = int(planned[place])
        attempts = 0
        while row in broken:
            attempts += 1
            row = order.substitute(place, attempts)
        assert (first.index[place], first.replaced[place]) == (row, attempts)
        assert row // 6 == planned[place] // 6  # of the same window, here of one shard
    assert first.replaced.sum() == len(skipped) >= 4


def test_a_place_without_any_readable_sample_is_an_error(tmp_path: Path) -> None:
    export(tmp_path / "a", [3], contents=dict.fromkeys(range(3), b"nothing"))
    with pytest.raises(DataError, match=r"none of 16 samples for place 0 .* \(row \d of .*shard-000000\.tar\): not_an"):
        maker(config(tmp_path / "a")).make([0])


def test_what_breaks_while_making_views_names_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = export(tmp_path / "a", [1])

    def broken(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("training.data.samples.apply_views", broken)
    with pytest.raises(DataError, match=rf"sample {ids[0]} \(row 0 of .*000000\.tar\) at place 4 .*ZeroDivisionError"):
        maker(config(tmp_path / "a")).make([4])


def test_checksums_on_request(tmp_path: Path) -> None:
    export(tmp_path / "a", [4])
    data = config(tmp_path / "a", verify=True)
    corpus = open_corpus(data)
    tar = tmp_path / "a" / "shard-000000.tar"
    content = bytearray(tar.read_bytes())
    place = int(corpus.index(0).offsets[1]) + 30
    content[place] ^= 1  # in a table of the JPEG: it still decodes
    tar.write_bytes(content)
    _, skipped = maker(data).make(range(4))
    assert {(one.index, str(one.reason)) for one in skipped} == {(1, "corrupt")}
    assert maker(config(tmp_path / "a")).make(range(4))[1] == []


def test_all_ways_of_reading_give_the_same_batch(tmp_path: Path) -> None:
    export(tmp_path / "a", [4, 4, 4])
    upload(tmp_path / "a", "memory://samples-test/a")
    url = "memory://samples-test/a"
    ways = [
        config(tmp_path / "a", shuffle_shards=1),
        config(url, shuffle_shards=1),
        config(url, shuffle_shards=1, cache=str(tmp_path / "cache"), cache_bytes=50_000),
        config(url, shuffle_shards=1, cache=str(tmp_path / "cache"), cache_bytes=50_000, read_ahead=0, verify=True),
    ]
    found = []
    for data in ways:
        made = maker(data)
        found.append([digest(made.make(range(start, start + 3))[0]) for start in range(0, 30, 3)])
        made.close()
    assert found.count(found[0]) == len(ways)


@pytest.mark.parametrize("size", [(300, 240), (60, 48), (900, 700)])
def test_covering_scale_never_enlarges_more_than_the_full_picture(tmp_path: Path, size: tuple[int, int]) -> None:
    export(tmp_path / "a", [6], size=size)
    full, _ = maker(config(tmp_path / "a")).make(range(6))
    scaled, _ = maker(config(tmp_path / "a", decode_scale="covering")).make(range(6))
    assert full.index.equal(scaled.index)
    assert full.keep.equal(scaled.keep)
    assert full.flipped.equal(scaled.flipped)
    smallest = scaled.boxes[:, :, 2:] - torch.tensor([[32, 32]] * 2 + [[16, 16]] * 4)
    if size == (60, 48):
        # Nothing to gain: the very same batch.
        assert torch.equal(full.global_views, scaled.global_views)
        return
    assert smallest.min() >= 0
    ratio = full.boxes[:, :, 2:].float() / scaled.boxes[:, :, 2:]
    assert ratio.min() > 1.8
    # The same parts of the pictures, seen through less detail.
    difference = (full.global_views.float() - scaled.global_views).abs().mean()
    assert difference < 3


def test_covers_is_about_every_view() -> None:
    views = ViewsConfig(
        global_count=1, local_count=1, global_size=(32, 24), local_size=(16, 8), colour={"blur_kernel": 3}
    )
    parameters = draw_views(np.random.default_rng(0), (100, 100), views)
    for box, expected in (
        ([[0, 0, 24, 32], [0, 0, 8, 16]], True),
        ([[0, 0, 23, 32], [0, 0, 8, 16]], False),
        ([[0, 0, 24, 31], [0, 0, 8, 16]], False),
        ([[0, 0, 24, 32], [0, 0, 8, 15]], False),
    ):
        parameters.boxes[:] = box
        assert covers(parameters, views) is expected


def test_a_picture_too_large_for_memory_is_decoded_smaller(tmp_path: Path) -> None:
    export(tmp_path / "a", [1], size=(1200, 1000))
    limits = {"max_memory": 1 << 20, "work_side": 64}
    batch, skipped = maker(config(tmp_path / "a", decode=limits)).make([0])
    assert skipped == []
    assert int(batch.boxes[..., 3].max()) <= 600
