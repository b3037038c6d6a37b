"""Folders, lists, videos and shards are one stream of pictures; bad ones are counted and passed over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from curation.manifest import build_manifest, manifest_bytes, manifest_shard
from curation.shards import Sample, index_bytes, write_shard
from training.data.labelled_sets import pack
from training.data.people import PeopleConfig
from training.finetuning.pictures import SyntheticConfig, open_pictures
from training.prediction import InputConfig, Inputs, read_image

Photo = Callable[..., npt.NDArray[np.uint8]]


def test_a_folder_in_order_with_its_bad_pictures(folder: Path, photo: Photo) -> None:
    (folder / "notes.txt.md").write_text("no picture")
    (folder / ".hidden.png").write_bytes(b"x")
    inputs = Inputs(folder)
    found = list(inputs)
    assert [picture.name for picture in found] == ["a", "b", "sub/c"]
    assert [picture.file_name for picture in found] == ["a.png", "b.png", "sub/c.png"]
    for key, picture in enumerate(found):
        np.testing.assert_array_equal(picture.image, photo(key))
    assert inputs.bad.counts == {"truncated": 1, "not_an_image": 1}
    assert {bad.name for bad in inputs.bad.first} == {"cut", "text"}
    assert len(inputs) == 5


def test_one_name_twice_keeps_extensions(folder: Path, photo: Photo) -> None:
    cv2.imwrite(str(folder / "a.bmp"), photo(8)[..., ::-1])
    assert [picture.name for picture in Inputs(folder)] == ["a.bmp", "a.png", "b", "sub/c"]
    cv2.imwrite(str(folder / "a.png.jpg"), photo(8)[..., ::-1])
    names = [picture.name for picture in Inputs(folder)]
    assert len(set(names)) == 5


def test_lists_single_files_limit_and_skip(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("pictures/sub/c.png\n\npictures/a.png\npictures/gone.png\n")
    inputs = Inputs(tmp_path / "list.txt")
    assert [picture.name for picture in inputs] == ["sub/c", "a"]
    assert inputs.bad.counts == {"missing": 1}
    assert [picture.name for picture in Inputs(folder / "b.png")] == ["b"]
    assert [picture.name for picture in Inputs([folder / "b.png", folder / "a.png"])] == ["b", "a"]
    assert [picture.name for picture in Inputs(folder, InputConfig(limit=1))] == ["a"]
    inputs = Inputs(folder, skip=lambda name: name == "a")
    assert [picture.name for picture in inputs] == ["b", "sub/c"]
    assert inputs.skipped == 1
    (picture,) = Inputs(folder / "a.png", InputConfig(max_side=64))
    assert picture.image.shape == (64, 48, 3)


def test_a_video_by_steps(tmp_path: Path) -> None:
    path = tmp_path / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10, (64, 48))
    for number in range(7):
        writer.write(np.full((48, 64, 3), (0, 0, 30 * number), np.uint8))  # BGR: red grows
    writer.release()
    found = list(Inputs(path, InputConfig(step=3)))
    assert [picture.name for picture in found] == ["clip/000000", "clip/000003", "clip/000006"]
    for picture, number in zip(found, (0, 3, 6), strict=True):
        assert picture.image.shape == (48, 64, 3)
        np.testing.assert_allclose(picture.image.mean((0, 1)), (30 * number, 0, 0), atol=6)
    (tmp_path / "broken.avi").write_bytes(path.read_bytes()[:100])
    broken = Inputs(tmp_path / "broken.avi")
    assert list(broken) == []
    assert broken.bad.total == 1


def test_several_videos_beside_images(folder: Path, tmp_path: Path) -> None:
    for name, count in (("sub/clip.avi", 4), ("z.avi", 3)):
        writer = cv2.VideoWriter(str(folder / name), cv2.VideoWriter.fourcc(*"MJPG"), 10, (64, 48))
        for _ in range(count):
            writer.write(np.zeros((48, 64, 3), np.uint8))
        writer.release()
    (folder / "bad.mp4").write_bytes(b"x")
    inputs = Inputs(folder, InputConfig(step=2))
    names = ["a", "b", "sub/c", "sub/clip/000000", "sub/clip/000002", "z/000000", "z/000002"]
    assert [picture.name for picture in inputs] == names
    assert inputs.bad.counts == {"truncated": 1, "not_an_image": 1, "unsupported_format": 1}
    assert (len(inputs), inputs.planned) == (12, 9)
    given = Inputs([folder / "z.avi", folder / "a.png", folder / "sub/clip.avi"], InputConfig(limit=5))
    found = list(given)
    assert [picture.name for picture in found] == ["z/000000", "z/000001", "z/000002", "a", "sub/clip/000000"]
    assert found[0].file_name == "z/000000"
    assert (len(given), given.planned) == (8, 5)


def test_exported_shards_in_their_order(folder: Path, photo: Photo, tmp_path: Path) -> None:
    root = tmp_path / "shards"
    (root / "index").mkdir(parents=True)
    files = ["b.png", "cut.png", "a.png", "sub/c.png"]
    entries = []
    for number in range(2):
        name = f"shard-{number:06d}"
        samples = [
            Sample(f"id{row}", f"k{row}", "png", (folder / files[row]).read_bytes(), {})
            for row in (2 * number, 2 * number + 1)
        ]
        with open(root / f"{name}.tar", "wb") as file:
            result = write_shard(file, samples, name)
        index = index_bytes(result.index)
        (root / f"index/{name}.parquet").write_bytes(index)
        entries.append(manifest_shard(result, index))
    manifest = build_manifest(entries, config_hash="c", formats={}, source_fingerprint="s")
    (root / "manifest.json").write_bytes(manifest_bytes(manifest))
    index_of_one = root / "index/shard-000001.parquet"
    inputs = Inputs(root)
    found = list(inputs)
    assert [picture.file_name for picture in found] == ["k0.png", "k2.png", "k3.png"]
    for picture, key in zip(found, (1, 0, 2), strict=True):
        np.testing.assert_array_equal(picture.image, photo(key))
    assert inputs.bad.counts == {"truncated": 1}
    (root / "shard-000001.tar").unlink()
    assert [picture.name for picture in inputs] == ["k0"]
    assert inputs.bad.counts == {"truncated": 1, "read_error": 2}
    for damage in (lambda: index_of_one.write_bytes(b"PAR1"), index_of_one.unlink):
        damage()
        with pytest.raises(ValueError, match=r"shards: its manifest.json or an index cannot be read .*: export the sh"):
            Inputs(root)


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Inputs(tmp_path / "gone")
    with pytest.raises(ValueError, match="holds no pictures"):
        Inputs(tmp_path)
    with pytest.raises(ValueError, match="is empty"):
        Inputs([])
    with pytest.raises(FileNotFoundError):
        read_image(tmp_path / "gone.png")


def test_packed_labelled_pictures_are_read_as_well(tmp_path: Path) -> None:
    people, _ = open_pictures(SyntheticConfig(train=3, held_out=1, people=PeopleConfig(size=(64, 48))))
    pack(people, tmp_path / "shards", shard_samples=2)
    found = list(Inputs(tmp_path / "shards"))
    assert len(found) == 3
    for number, picture in enumerate(found):
        np.testing.assert_array_equal(picture.image, people[number].image)
