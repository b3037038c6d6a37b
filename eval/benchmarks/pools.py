"""Pools for the benchmarks, made of the photographs that installed packages ship.

A pool is made once and used again while its folder's record says that it is the one asked for.
"""

from __future__ import annotations

import io
import json
import multiprocessing as mp
import os
import shutil
import tarfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import simplejpeg
from PIL import Image

from eval.benchmarks.common import note
from pipeline.demo.pictures import available, load

RECORD = "pool.json"
MEGAPIXELS = (2, 4, 8, 8, 12)
"""Sizes of photographs in equal shares; the median is a common camera's or telephone's."""
NOISE = 4.0
"""Standard deviation of the noise that is added to enlarged pictures, 0..255. With it 12 megapixels have 2.9 MB, as
from a camera; without it, entropy decoding would be unnaturally cheap."""
TILE = 4096


def photographs(folder: Path, count: int, workers: int = 1, seed: int = 0) -> Path:
    """`count` different JPEGs (quality 90, 4:2:0) of `MEGAPIXELS`, 30 % of them with people: crops of the packaged
    photographs, enlarged, with noise."""

    def make(target: Path) -> None:
        with mp.get_context("spawn").Pool(workers) as pool:
            pool.map(partial(_photograph, target, seed), range(count), chunksize=4)

    return _pool(folder, {"kind": "photographs", "count": count, "seed": seed, "noise": NOISE}, make)


def repeated(folder: Path, source: Path, times: int) -> Path:
    """The files of a pool `times` over, as hard links: a longer run at no disk space."""

    def make(target: Path) -> None:
        files = sorted(source.glob("*.jpg"))
        for turn in range(times):
            for file in files:
                os.link(file, target / f"{turn:03d}-{file.name}")

    record = json.loads((source / RECORD).read_text())
    return _pool(folder, {"kind": "repeated", "times": times, "source": record}, make)


def tiny_folder(folder: Path, count: int, side: int = 64, seed: int = 0) -> Path:
    """`count` different small JPEGs as files."""

    def make(target: Path) -> None:
        for index in range(count):
            (target / f"{index:07d}.jpg").write_bytes(tiny_jpeg(index, side, seed))

    return _pool(folder, {"kind": "tiny_folder", "count": count, "side": side, "seed": seed}, make)


def tiny_tars(folder: Path, count: int, side: int = 64, per_tar: int = 5000, seed: int = 0) -> Path:
    """`count` different small JPEGs in WebDataset tars."""

    def make(target: Path) -> None:
        for first in range(0, count, per_tar):
            with tarfile.open(target / f"pool-{first // per_tar:05d}.tar", "w") as tar:
                for index in range(first, min(first + per_tar, count)):
                    data = tiny_jpeg(index, side, seed)
                    entry = tarfile.TarInfo(f"{index:07d}.jpg")
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))

    return _pool(folder, {"kind": "tiny_tars", "count": count, "side": side, "per_tar": per_tar, "seed": seed}, make)


def tiny_jpeg(index: int, side: int, seed: int = 0) -> bytes:
    """A crop of a packaged photograph at `side` x `side` pixels, JPEG quality 90; another one for every index."""
    rng = np.random.default_rng((seed, index))
    base = _base(available()[index % len(available())].name)
    height, width = base.shape[:2]
    extent = int(rng.integers(min(side, height, width), min(height, width) + 1))
    top, left = int(rng.integers(height - extent + 1)), int(rng.integers(width - extent + 1))
    crop = cv2.resize(base[top : top + extent, left : left + extent], (side, side), interpolation=cv2.INTER_AREA)
    return bytes(simplejpeg.encode_jpeg(np.ascontiguousarray(crop), quality=90, colorspace="RGB"))


def _photograph(folder: Path, seed: int, index: int) -> None:
    rng = np.random.default_rng((seed, index))
    image = load(available()[index % len(available())].name)
    width, height = image.size
    share = rng.uniform(0.85, 1.0)
    box_width, box_height = width * share, height * share
    left, top = rng.uniform(0, width - box_width), rng.uniform(0, height - box_height)
    pixels = 1e6 * MEGAPIXELS[int(rng.integers(len(MEGAPIXELS)))]
    scale = (pixels / (box_width * box_height)) ** 0.5
    size = round(box_width * scale), round(box_height * scale)
    box = (left, top, left + box_width, top + box_height)
    large = np.array(image.resize(size, Image.Resampling.BICUBIC, box=box))
    field = _noise()
    rows, columns = -(-size[1] // TILE), -(-size[0] // TILE)
    shifted = np.roll(field, tuple(rng.integers(TILE, size=2)), (0, 1))
    grain = np.tile(shifted, (rows, columns))[: size[1], : size[0]]
    cv2.add(large, np.repeat(grain[..., None], 3, axis=2), dst=large, dtype=cv2.CV_8U)
    data = simplejpeg.encode_jpeg(large, quality=90, colorspace="RGB", colorsubsampling="420")
    (folder / f"{index:06d}.jpg").write_bytes(data)


@cache
def _noise() -> Any:
    return np.random.default_rng(0).normal(0, NOISE, (TILE, TILE)).round().astype(np.int16)


@cache
def _base(name: str) -> Any:
    return np.array(load(name))


def _pool(folder: Path, record: dict[str, Any], make: Callable[[Path], None]) -> Path:
    marker = folder / RECORD
    if marker.is_file() and json.loads(marker.read_text()) == record:
        return folder
    note(f"making the pool {folder.name}: {record}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    make(folder)
    marker.write_text(json.dumps(record))
    return folder
