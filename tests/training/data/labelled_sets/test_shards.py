import json
import pickle

import pytest

from training.data.errors import DataError
from training.data.labelled_sets.config import PartFoldersConfig, ShardsConfig
from training.data.labelled_sets.folders import FolderPictures
from training.data.labelled_sets.pack import pack
from training.data.labelled_sets.shards import ShardPictures


@pytest.fixture
def packed(people, write_parts, tmp_path):
    pack(FolderPictures(PartFoldersConfig(kind="parts", root=str(write_parts(people)))), tmp_path / "out", 2)
    return tmp_path / "out"


def read(folder):
    return ShardPictures(ShardsConfig(kind="shards", folder=str(folder)))


def test_a_picklable_source_that_can_be_moved(packed, same, tmp_path):
    source = read(packed)
    first = source[0]
    copy = pickle.loads(pickle.dumps(source))
    same(copy[0], first)
    moved = packed.rename(tmp_path / "moved")
    assert read(moved).fingerprint == source.fingerprint
    with pytest.raises(IndexError):
        source[len(source)]


def test_a_tar_that_ends_early_is_named(packed):
    tar = packed / "shard-000001.tar"
    tar.write_bytes(tar.read_bytes()[:3000])
    with pytest.raises(DataError, match=r"shard-000001\.tar: ends within .*Pack the source again"):
        read(packed)[3]
    tar.unlink()
    with pytest.raises(DataError, match=r"shard-000001\.tar: cannot be read: No such file"):
        read(packed)[3]
    assert read(packed)[0].parts is not None


def test_changed_bytes_of_an_image_are_found(packed):
    tar = packed / "shard-000000.tar"
    data = bytearray(tar.read_bytes())
    data[600] ^= 1
    tar.write_bytes(data)
    assert read(packed).damaged_image(0)
    assert not read(packed).damaged_image(1)


def test_folders_that_are_no_packed_labels(packed, tmp_path):
    with pytest.raises(DataError, match=r"no manifest\.json"):
        read(tmp_path)
    (packed / "index" / "shard-000000.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"index/shard-000000\.parquet: is no index"):
        read(packed)
    manifest = json.loads((packed / "manifest.json").read_text())
    del manifest["content"]
    (packed / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="lists images without labels"):
        read(packed)
