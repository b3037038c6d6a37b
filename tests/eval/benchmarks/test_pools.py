"""Pools hold what they promise and are made once."""

from __future__ import annotations

import hashlib
import tarfile

from PIL import Image

from eval.benchmarks.pools import MEGAPIXELS, photographs, repeated, tiny_folder, tiny_tars


def test_photographs_are_different_jpegs_of_several_megapixels(tmp_path) -> None:
    pool = photographs(tmp_path / "pool", 3)
    files = sorted(pool.glob("*.jpg"))
    assert len(files) == 3
    assert len({hashlib.sha256(file.read_bytes()).digest() for file in files}) == 3
    for file in files:
        with Image.open(file) as image:
            assert image.format == "JPEG"
            assert round(image.width * image.height / 1e6) in MEGAPIXELS
            image.load()
    doubled = repeated(tmp_path / "twice", pool, 2)
    assert len(list(doubled.glob("*.jpg"))) == 6
    assert {file.stat().st_ino for file in doubled.glob("*.jpg")} == {file.stat().st_ino for file in files}


def test_tiny_pools_hold_different_pictures_and_are_kept(tmp_path) -> None:
    pool = tiny_tars(tmp_path / "tars", 25, side=48, per_tar=10)
    digests = set()
    for path in sorted(pool.glob("*.tar")):
        with tarfile.open(path) as tar:
            for entry in tar:
                member = tar.extractfile(entry)
                assert member is not None
                digests.add(hashlib.sha256(member.read()).digest())
    assert len(digests) == 25
    made = sorted(file.stat().st_mtime_ns for file in pool.iterdir())
    assert tiny_tars(tmp_path / "tars", 25, side=48, per_tar=10) == pool
    assert sorted(file.stat().st_mtime_ns for file in pool.iterdir()) == made
    again = tiny_tars(tmp_path / "tars", 5, side=48)
    assert [file.name for file in again.glob("*.tar")] == ["pool-00000.tar"]


def test_a_tiny_folder_has_pictures_of_the_side_asked_for(tmp_path) -> None:
    for file in tiny_folder(tmp_path / "folder", 3, side=40).glob("*.jpg"):
        with Image.open(file) as image:
            assert image.size == (40, 40)
