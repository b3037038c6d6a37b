"""Rows of a corpus lead to images, and a corpus that cannot be trained on is refused before anything starts."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.fixtures.exports import export, merge, picture, upload
from training.data.config import CorpusConfig, DataConfig
from training.data.corpus import Corpus, open_corpus
from training.data.errors import DataError


def config(*paths: Path | str, **options: object) -> DataConfig:
    return DataConfig(corpora=[CorpusConfig(path=str(path)) for path in paths], **options)


def image(corpus: Corpus, row: int) -> bytes:
    """Read without the reader."""
    (shard,), (inner,) = corpus.locate([row])
    index = corpus.index(shard)
    data = Path(corpus.tars[shard].location).read_bytes()
    return data[index.offsets[inner] : index.offsets[inner] + index.sizes[inner]]


def test_rows_are_those_of_the_shards_in_order(tmp_path: Path) -> None:
    ids = export(tmp_path / "a", [3, 0, 4]) + export(tmp_path / "b", [2], first=7)
    corpus = open_corpus(config(tmp_path / "a", tmp_path / "b" / "manifest.json"))
    assert len(corpus) == 9
    assert corpus.ids(range(9)) == ids
    assert corpus.ids([8, 0, 3]) == [ids[8], ids[0], ids[3]]
    for row in range(9):
        assert image(corpus, row) == picture(row)
    assert corpus.locate([0, 2, 3, 6, 7])[0].tolist() == [0, 0, 2, 2, 3]
    with pytest.raises(IndexError, match="0 to 8"):
        corpus.locate([9])


def test_a_merged_manifest_stands_for_its_corpora(tmp_path: Path) -> None:
    ids = export(tmp_path / "a", [3]) + export(tmp_path / "b", [2, 1], first=3)
    merge(tmp_path / "b" / "merged.json", [tmp_path / "a", tmp_path / "b"])
    corpus = open_corpus(config(tmp_path / "b" / "merged.json"))
    assert corpus.ids(range(6)) == ids
    assert corpus.fingerprint == open_corpus(config(tmp_path / "a", tmp_path / "b")).fingerprint
    with pytest.raises(DataError, match=r"listed by two entries .*merged\.json"):
        open_corpus(config(tmp_path / "a", tmp_path / "b" / "merged.json"))


def test_the_fingerprint_is_of_contents_and_not_of_places(tmp_path: Path) -> None:
    export(tmp_path / "a", [3])
    shutil.copytree(tmp_path / "a", tmp_path / "moved")
    export(tmp_path / "other", [3], first=1)
    a, moved, other = (open_corpus(config(tmp_path / name)).fingerprint for name in ("a", "moved", "other"))
    assert a == moved != other


def test_remote_corpora_are_read_through_their_manifest(tmp_path: Path) -> None:
    ids = export(tmp_path / "a", [2, 2])
    upload(tmp_path / "a", "memory://corpus-test/a")
    corpus = open_corpus(config("memory://corpus-test/a"))
    assert corpus.ids(range(4)) == ids
    assert corpus.tars[1].location == "memory://corpus-test/a/shard-000001.tar"


def test_only_manifests_are_held_and_pickled(tmp_path: Path) -> None:
    export(tmp_path / "a", [40] * 3)
    corpus = open_corpus(config(tmp_path / "a"))
    before = len(pickle.dumps(corpus))
    ids = corpus.ids(range(120))
    assert len(pickle.dumps(corpus)) == before < 4000
    assert pickle.loads(pickle.dumps(corpus)).ids(range(120)) == ids


def test_nothing_to_train_on(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.corpora is empty"):
        open_corpus(DataConfig())
    export(tmp_path / "empty", [0])
    with pytest.raises(DataError, match=r"empty holds no sample"):
        open_corpus(config(tmp_path / "empty"))
    with pytest.raises(DataError, match=r"missing/manifest\.json cannot be read .* Give the shards folder"):
        open_corpus(config(tmp_path / "missing"))
    (tmp_path / "empty" / "manifest.json").write_text("{}")
    with pytest.raises(DataError, match="not a manifest that can be used"):
        open_corpus(config(tmp_path / "empty"))


def test_missing_and_cut_files_are_named_at_the_start(tmp_path: Path) -> None:
    export(tmp_path / "a", [2, 2, 2])
    (tmp_path / "a" / "shard-000001.tar").unlink()
    with pytest.raises(DataError, match=r"a/shard-000001\.tar: .*No such file.*not complete"):
        open_corpus(config(tmp_path / "a"))
    with open(tmp_path / "a" / "shard-000000.tar", "r+b") as file:
        file.truncate(1000)
    with pytest.raises(DataError, match=r"shard-000000\.tar: 1000 bytes, its manifest says \d+ \(and 1 more files\)"):
        open_corpus(config(tmp_path / "a"))


def test_a_changed_index_is_refused(tmp_path: Path) -> None:
    export(tmp_path / "a", [2])
    path = tmp_path / "a" / "index" / "shard-000000.parquet"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"shard-000000\.parquet has the SHA-256 .* was changed"):
        open_corpus(config(tmp_path / "a")).ids([0])


def test_an_index_that_does_not_fit_its_tar_is_refused(tmp_path: Path) -> None:
    export(tmp_path / "a", [2])
    export(tmp_path / "b", [2], size=(480, 400), first=5)
    shutil.copy(tmp_path / "b/index/shard-000000.parquet", tmp_path / "a/index/shard-000000.parquet")
    path = tmp_path / "a" / "manifest.json"
    manifest = json.loads(path.read_text())
    data = (tmp_path / "a/index/shard-000000.parquet").read_bytes()
    manifest["shards"][0] |= {"index_sha256": hashlib.sha256(data).hexdigest(), "index_bytes": len(data)}
    path.write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="places images outside of its tar"):
        open_corpus(config(tmp_path / "a")).ids([0])
    manifest["shards"][0]["samples"] = 3
    path.write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="has 2 rows, its manifest says 3"):
        open_corpus(config(tmp_path / "a")).ids([0])


def test_credentials_stay_out_of_errors() -> None:
    secret = {"key": "open-sesame", "secret": "swordfish"}
    entry = CorpusConfig(path="memory://user:swordfish@nowhere/a?token=swordfish", storage_options=secret)
    with pytest.raises(DataError, match=r"nowhere/a\?token=REDACTED") as caught:
        open_corpus(DataConfig(corpora=[entry]))
    shown = f"{caught.value}{caught.value.__cause__}{entry!r}{DataConfig(corpora=[entry]).model_dump_json()}"
    assert "open-sesame" not in shown
    assert "swordfish" not in str(caught.value)


def test_weights_for_all_or_for_none() -> None:
    both = [CorpusConfig(path="a", weight=2), CorpusConfig(path="b", weight=1)]
    assert DataConfig(corpora=both).weights == [2, 1]
    assert DataConfig(corpora=[CorpusConfig(path="a")]).weights is None
    with pytest.raises(ValidationError, match="1 of 2 corpora have a weight"):
        DataConfig(corpora=[both[0], CorpusConfig(path="b")])


def test_identity_holds_what_changes_pictures_only() -> None:
    base = DataConfig(corpora=[CorpusConfig(path="a")])
    elsewhere = DataConfig(corpora=[CorpusConfig(path="b")], workers=9, cache="/c", verify=True, prefetch=7)
    assert base.identity() == elsewhere.identity()
    for other in ({"shuffle_shards": 3}, {"decode_scale": "covering"}, {"decode": {"icc": "convert"}}):
        assert base.identity() != DataConfig(corpora=base.corpora, **other).identity()
    json.dumps(base.identity())


def test_a_cache_smaller_than_two_windows_is_refused(tmp_path: Path) -> None:
    export(tmp_path / "a", [2, 2, 2, 2])
    upload(tmp_path / "a", "memory://small-cache/a")
    cache = {"cache": str(tmp_path / "cache"), "cache_bytes": 20_000, "shuffle_shards": 1}
    corpus = open_corpus(config("memory://small-cache/a", **cache))
    need = sum(file.bytes for pair in zip(corpus.tars, corpus.indices, strict=True) for file in pair)
    assert need / 2 < 20_000 < need
    with pytest.raises(DataError, match=r"cache_bytes is 20000, .* take up to \d+ bytes"):
        open_corpus(config("memory://small-cache/a", **cache | {"shuffle_shards": 2}))
    # Local corpora are read where they are.
    assert open_corpus(config(tmp_path / "a", **cache | {"cache_bytes": 1})).cache is None
