"""The bytes of an image are those that were exported, wherever they lie; wrong bytes have a reason."""

from __future__ import annotations

import pickle
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from curation.reasons import Reason
from tests.fixtures.exports import export, picture, upload
from training.data.config import CorpusConfig, DataConfig
from training.data.corpus import Corpus, open_corpus
from training.data.errors import DataError
from training.data.reader import ImageReader, ReadAhead


def opened(path: Path | str, **options: object) -> Corpus:
    return open_corpus(DataConfig(corpora=[CorpusConfig(path=str(path))], **options))


def test_local_images_with_few_open_files(tmp_path: Path) -> None:
    export(tmp_path / "a", [3] * 5)
    reader = ImageReader(opened(tmp_path / "a"), open_files=2, verify=True)
    for row in (14, 0, 7, 3, 14, 1, 0):
        assert reader.read(row).data == picture(row)
    assert pickle.loads(pickle.dumps(reader)).read(2).data == picture(2)
    reader.keep(frozenset([0]))
    assert reader.read(5).data == picture(5)
    reader.close()
    assert reader.read(5).data == picture(5)


@pytest.mark.parametrize("cached", [True, False])
def test_remote_images(tmp_path: Path, cached: bool) -> None:
    export(tmp_path / "a", [4, 4])
    upload(tmp_path / "a", "memory://reader-test/a")
    options = {"cache": str(tmp_path / "cache")} if cached else {}
    reader = ImageReader(opened("memory://reader-test/a", **options), verify=True)
    rows = [7, 0, 3, 4, 4]
    assert [payload.data for payload in reader.read_many(rows)] == [picture(row) for row in rows]
    # Two tars, two indices.
    assert len(list((tmp_path / "cache").glob("*"))) == 4 if cached else not (tmp_path / "cache").exists()


def test_here_and_afar_in_one_batch(tmp_path: Path) -> None:
    export(tmp_path / "a", [2])
    export(tmp_path / "b", [2], first=2)
    upload(tmp_path / "b", "memory://reader-test/b")
    entries = [CorpusConfig(path=str(tmp_path / "a")), CorpusConfig(path="memory://reader-test/b")]
    reader = ImageReader(open_corpus(DataConfig(corpora=entries)))
    assert [payload.data for payload in reader.read_many([3, 0, 2, 1])] == [picture(row) for row in (3, 0, 2, 1)]


def test_a_changed_image_is_found_on_request(tmp_path: Path) -> None:
    export(tmp_path / "a", [2])
    corpus = opened(tmp_path / "a")
    tar = tmp_path / "a" / "shard-000000.tar"
    data = bytearray(tar.read_bytes())
    data[int(corpus.index(0).offsets[1]) + 5] ^= 1
    tar.write_bytes(data)
    assert ImageReader(corpus).read(1).data != picture(1)
    payload = ImageReader(corpus, verify=True).read(1)
    assert (payload.data, payload.reason) == (None, Reason.CORRUPT)
    assert "SHA-256" in str(payload.detail)
    assert ImageReader(corpus, verify=True).read(0).data == picture(0)


def test_a_tar_that_shrinks_or_goes_while_training(tmp_path: Path) -> None:
    export(tmp_path / "a", [2, 1])
    corpus = opened(tmp_path / "a")
    with open(tmp_path / "a" / "shard-000000.tar", "r+b") as file:
        file.truncate(int(corpus.index(0).offsets[1]) + 10)
    payload = ImageReader(corpus).read(1)
    assert (payload.data, payload.reason) == (None, Reason.TRUNCATED_CONTAINER)
    (tmp_path / "a" / "shard-000001.tar").unlink()
    with pytest.raises(DataError, match=r"shard-000001\.tar cannot be read: FileNotFoundError"):
        ImageReader(corpus).read(2)


@pytest.mark.parametrize("cached", [True, False])
def test_a_remote_tar_that_is_gone_is_an_error_and_not_another_sample(tmp_path: Path, cached: bool) -> None:
    import fsspec

    export(tmp_path / "a", [2])
    upload(tmp_path / "a", "memory://reader-test/gone")
    corpus = opened("memory://reader-test/gone", **({"cache": str(tmp_path / "cache")} if cached else {}))
    fsspec.filesystem("memory").rm("/reader-test/gone/shard-000000.tar")
    with pytest.raises(DataError, match=r"memory://reader-test/gone/shard-000000\.tar cannot be"):
        ImageReader(corpus).read(0)


def test_shards_are_fetched_ahead_in_order_and_no_more_than_asked(tmp_path: Path) -> None:
    export(tmp_path / "a", [2] * 6)
    upload(tmp_path / "a", "memory://reader-test/ahead")
    corpus = opened("memory://reader-test/ahead", cache=str(tmp_path / "cache"), shuffle_shards=2)
    assert corpus.cache is not None
    ahead = ReadAhead(corpus, corpus.cache, most=2)

    def there() -> list[int]:
        names = {path.name for path in (tmp_path / "cache").iterdir()}
        return [shard for shard, tar in enumerate(corpus.tars) if tar.sha256 in names]

    def wait_for(shards: list[int]) -> None:
        end = time.monotonic() + 10
        while there() != shards and time.monotonic() < end:
            time.sleep(0.005)
        assert there() == shards

    ahead.want([4, 2, 0, 1])
    wait_for([2, 4])
    ahead.want([4, 2, 0, 1])
    wait_for([0, 1, 2, 4])
    ahead.close()


def test_a_server_without_ranges_is_named(tmp_path: Path) -> None:
    """It answers with the whole tar, which is no fault of the image."""
    export(tmp_path / "shards", [3])
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/shards"
        reader = ImageReader(open_corpus(DataConfig(corpora=[CorpusConfig(path=url)])))
        with pytest.raises(DataError, match=r"does not answer requests for a range.*data\.cache"):
            reader.read(0)
        server.shutdown()
