import json
import tarfile

import numpy as np
import pyarrow.parquet as pq
import pytest

from training.data.errors import DataError
from training.data.labelled_sets.coco import CocoKeypoints
from training.data.labelled_sets.config import CocoConfig, DenseFoldersConfig, PartFoldersConfig, ShardsConfig
from training.data.labelled_sets.folders import FolderPictures
from training.data.labelled_sets.pack import pack, picture_key
from training.data.labelled_sets.shards import ShardPictures


class Listed:
    """Pictures in memory, as any source that has no files."""

    fingerprint = "listed"

    def __init__(self, pictures):
        self.pictures = pictures

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return self.pictures[index]


def read(folder):
    return ShardPictures(ShardsConfig(kind="shards", folder=str(folder)))


def test_every_kind_of_source_comes_back_equal(people, write_dense, write_parts, write_coco, same, tmp_path):
    file, images = write_coco(people)
    sources = {
        "memory": Listed(people),
        "dense": FolderPictures(DenseFoldersConfig(kind="dense", root=str(write_dense(people)), mask_values="person")),
        "parts": FolderPictures(PartFoldersConfig(kind="parts", root=str(write_parts(people)))),
        "coco": CocoKeypoints(
            CocoConfig(kind="coco", annotations=str(file), images=str(images), source_set="sapiens308")
        ),
    }
    for name, source in sources.items():
        pack(source, tmp_path / f"packed-{name}", shard_samples=3)
        packed = read(tmp_path / f"packed-{name}")
        assert len(packed) == len(source)
        for index in range(len(source)):
            same(packed[index], source[index])
        assert not any(packed.damaged_image(index) for index in range(len(packed)))


def test_files_are_stored_as_they_are(people, write_dense, tmp_path):
    root = write_dense(people[:1])
    pack(FolderPictures(DenseFoldersConfig(kind="dense", root=str(root), mask_values="person")), tmp_path / "out")
    with tarfile.open(tmp_path / "out" / "shard-000000.tar") as tar:
        found = {name.partition(".")[2]: tar.extractfile(name).read() for name in tar.getnames()}
    key = people[0].id
    assert found["png"] == (root / "images" / f"{key}.png").read_bytes()
    assert found["normals.npy"] == (root / "normals" / f"{key}.npy").read_bytes()
    assert json.loads(found["json"])["id"] == key
    assert set(found) == {"png", "json", "person.png", "parts.png", "normals.npy", "depth.npy", "albedo.npy"}


def test_packing_is_deterministic_and_the_index_is_of_the_tar(people, tmp_path):
    said = []
    first = pack(Listed(people), tmp_path / "a", 3, progress=lambda *done: said.append(done))
    second = pack(Listed(people), tmp_path / "b", 3)
    assert first == second
    assert said == [(3, 4), (4, 4)]
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert len(files) == 5
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    row = pq.read_table(tmp_path / "a" / "index" / "shard-000001.parquet").to_pylist()[0]
    with tarfile.open(tmp_path / "a" / "shard-000001.tar") as tar:
        places = {member.name: (member.offset_data, member.size) for member in tar}
    assert places.pop(f"{row['key']}.png") == (row["image_offset"], row["image_size"])
    assert places.pop(f"{row['key']}.json") == (row["json_offset"], row["json_size"])
    labels = {f"{row['key']}.{one['name']}.{one['extension']}": (one["offset"], one["size"]) for one in row["labels"]}
    assert places == labels


def test_webdataset_reads_it(people, tmp_path):
    wds = pytest.importorskip("webdataset")
    pack(Listed(people[:2]), tmp_path / "out")
    samples = list(wds.WebDataset(str(tmp_path / "out" / "shard-000000.tar"), shardshuffle=False).decode())
    assert [sample["json"]["id"] for sample in samples] == [picture.id for picture in people[:2]]
    np.testing.assert_array_equal(samples[1]["depth.npy"], people[1].depth)


def test_a_folder_in_use_or_an_empty_source_is_refused(people, tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "x").write_text("mine")
    with pytest.raises(DataError, match="used is not an empty folder"):
        pack(Listed(people), tmp_path / "used")
    assert (tmp_path / "used" / "x").read_text() == "mine"
    with pytest.raises(DataError, match="no pictures"):
        pack(Listed([]), tmp_path / "new")
    with pytest.raises(ValueError, match="at least 1"):
        pack(Listed(people), tmp_path / "new", 0)


def test_an_interrupted_pack_leaves_no_folder_and_can_be_repeated(people, tmp_path):
    with pytest.raises(DataError, match="picture 1 has the id 'people-3-0' of an earlier one"):
        pack(Listed([people[0], people[0]]), tmp_path / "out", 1)
    assert not (tmp_path / "out").exists()
    pack(Listed(people), tmp_path / "out")
    assert len(read(tmp_path / "out")) == len(people)
    assert not (tmp_path / "out.unfinished").exists()


def test_nothing_is_packed_that_cannot_be_read(people, write_parts, png, tmp_path):
    root = write_parts(people)
    (root / "parts" / f"{people[2].id}.png").write_bytes(png(np.zeros((5, 5), np.uint8)))
    source = FolderPictures(PartFoldersConfig(kind="parts", root=str(root)))
    with pytest.raises(DataError, match=r"people-3-2\.png: is 5 x 5 pixels"):
        pack(source, tmp_path / "out")
    pack(source, tmp_path / "out", verify=False)
    with pytest.raises(DataError, match=r"people-3-2\.parts\.png: is 5 x 5 pixels"):
        read(tmp_path / "out")[2]


def test_keys_are_safe_and_short():
    assert picture_key("a-1") == "a-1"
    assert "." not in picture_key("a.1")
    assert picture_key("a/1") != picture_key("a.1")
    long = "x" * 200
    assert len(picture_key(long)) + len(".normals.npy") <= 100
    assert picture_key(long) != picture_key(long + "x")
