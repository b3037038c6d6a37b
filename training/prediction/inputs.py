"""Pictures to predict: a folder, files, a video or exported shards, as one stream of (name, pixels).

What cannot be read or decoded is reported and passed over; it never ends the stream.

| source | pictures and names |
|---|---|
| folder | files with an image extension, in subfolders too, sorted; name: relative path without extension |
| folder with manifest.json | exported shards (`curation.manifest`), in their order; name: the key |
| run directory of `populace curate` | its shards |
| .txt file | a path on each line, relative to the file |
| .mp4, .avi, ... file | every `step`-th frame; name: stem/000012, the frame's number from 0 |
| another file, or a list of paths | these; name: path below their common folder, without extension |

Where two files have one name but for the extension, both keep it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import cv2
import numpy as np

from curation.codecs.base import DecodeConfig, Problem
from curation.decode import decode, read_header
from curation.manifest import MANIFEST_NAME, read_index
from curation.reasons import Reason
from curation.sources.names import IMAGE_EXTENSIONS
from training.prediction.bad import BadPictures
from training.prediction.boxes import Image
from training.prediction.config import InputConfig
from training.prediction.files import is_safe
from training.prediction.ledger_boxes import shards_of
from training.prediction.tars import Tars

VIDEO_EXTENSIONS = ("mp4", "m4v", "mov", "avi", "mkv", "webm", "mpg", "mpeg", "wmv", "mjpg", "mjpeg")
LONGEST_SIDE = 32_766  # of OpenCV's warps


@dataclass(frozen=True)
class _Ref:
    """A picture that has not been read: its name, the name with which box files call it, and how to read it."""

    name: str
    file_name: str
    load: Callable[[], Image | Problem]


@dataclass(frozen=True, eq=False)
class InputPicture:
    """A picture: `name` for its outputs, `file_name` as in box files (with extension), `image` uint8 [H, W, 3] RGB."""

    name: str
    file_name: str
    image: Image


class Inputs:
    """Pictures of a source; iterate over it as often as needed.

    Args:
        source: see the module.
        config: which of them, and how they are decoded.
        skip: names for which it is true are not read (and counted in `skipped`).

    Raises:
        FileNotFoundError: the source does not exist.
        ValueError: a folder without pictures, or a damaged manifest.
    """

    def __init__(
        self,
        source: str | Path | Sequence[str | Path],
        config: InputConfig | None = None,
        skip: Callable[[str], bool] | None = None,
    ) -> None:
        self.config, self._skip = config or InputConfig(), skip or (lambda name: False)
        self.bad, self.skipped = BadPictures(), 0
        self.video = self.manifest = None
        self._files: list[Path] = []
        self._root = Path()
        if not isinstance(source, str | Path):
            self._list([Path(item) for item in source])
            return
        path = shards_of(source)
        extension = path.suffix.lower().lstrip(".")
        if not path.exists():
            raise FileNotFoundError(f"input {path} does not exist: give a folder, an image, a video or a list of paths")
        if path.is_dir() and (path / MANIFEST_NAME).is_file():
            self.manifest = path
            read_index(path)
        elif path.is_dir():
            self._files = sorted(
                file
                for file in path.rglob("*")
                if file.suffix.lower().lstrip(".") in IMAGE_EXTENSIONS
                and file.is_file()
                and not any(part.startswith(".") for part in file.relative_to(path).parts)
            )
            self._root = path
            if not self._files:
                raise ValueError(
                    f"input {path} holds no pictures (extensions {', '.join(IMAGE_EXTENSIONS)}) and no {MANIFEST_NAME} "
                    "of exported shards"
                )
        elif extension in VIDEO_EXTENSIONS:
            self.video = path
        elif extension == "txt":
            lines = path.read_text(encoding="utf-8").splitlines()
            self._list([path.parent / line.strip() for line in lines if line.strip()])
        else:
            self._list([path])

    def _list(self, files: list[Path]) -> None:
        if not files:
            raise ValueError("the list of pictures is empty: give at least one path")
        # Twice the same path is one picture.
        self._files = list(dict.fromkeys(Path(os.path.abspath(file)) for file in files))
        self._root = Path(os.path.commonpath([file.parent for file in self._files]))

    def __len__(self) -> int:
        """Pictures in the source, before `limit` and `step`; of a video the number that its header gives, or 0."""
        if self.video is not None:
            capture = cv2.VideoCapture(str(self.video))
            count = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
            capture.release()
            return max(0, count)
        return len(read_index(self.manifest)) if self.manifest is not None else len(self._files)

    @property
    def planned(self) -> int:
        """Pictures that iterating goes through; of a video as far as its header says."""
        count = len(self) if self.video is None else -(-len(self) // self.config.step)
        return count if self.config.limit is None else min(count, self.config.limit)

    def __iter__(self) -> Iterator[InputPicture]:
        """Pictures in order; those that are skipped or bad count for `limit` too, so that a resumed run is the same."""
        self.bad, self.skipped = BadPictures(), 0
        for number, ref in enumerate(self._refs()):
            if number == self.config.limit:
                return
            if not is_safe(ref.name):  # a key of somebody's shards
                self.bad.add(ref.name, str(Reason.UNSAFE_MEMBER), "this name leads out of the folder of the outputs")
                continue
            if self._skip(ref.name):
                self.skipped += 1
                continue
            image = ref.load()
            if isinstance(image, Problem):
                self.bad.add(ref.name, str(image.reason), image.detail)
            elif max(image.shape[:2]) > LONGEST_SIDE:
                size = f"{image.shape[1]} x {image.shape[0]} pixels, more than {LONGEST_SIDE} a side"
                self.bad.add(ref.name, str(Reason.TOO_MANY_PIXELS), size)
            else:
                yield InputPicture(ref.name, ref.file_name, image)

    def _refs(self) -> Iterator[_Ref]:
        if self.video is not None:
            yield from self._frames(self.video)
        elif self.manifest is not None:
            yield from self._samples(self.manifest)
        else:
            relative = [file.relative_to(self._root).as_posix() for file in self._files]
            for file, path, name in zip(self._files, relative, _names(relative), strict=True):
                yield _Ref(name, path, partial(self._file, file))

    def _file(self, path: Path) -> Image | Problem:
        try:
            data = path.read_bytes()
        except OSError as error:
            reason = Reason.MISSING if isinstance(error, FileNotFoundError) else Reason.READ_ERROR
            return Problem(reason, str(error))
        return decoded(data, self.config.decode, self.config.max_side)

    def _samples(self, folder: Path) -> Iterator[_Ref]:
        tars = Tars(folder)
        try:
            for row in read_index(folder).to_pylist():
                yield _Ref(row["key"], f"{row['key']}.{row['extension']}", partial(self._sample, tars, row))
        finally:
            tars.close()

    def _sample(self, tars: Tars, row: dict[str, Any]) -> Image | Problem:
        size = int(row["image_size"])
        try:
            data = tars.read(row["shard"], int(row["image_offset"]), size)
        except OSError as error:
            return Problem(Reason.READ_ERROR, str(error))
        if len(data) < size:
            return Problem(Reason.TRUNCATED_CONTAINER, f"{len(data)} of {size} bytes are there")
        return decoded(data, self.config.decode, self.config.max_side)

    def _frames(self, path: Path) -> Iterator[_Ref]:
        capture = cv2.VideoCapture(str(path))
        try:
            if not capture.isOpened():
                problem = Problem(Reason.UNSUPPORTED_FORMAT, f"{path}: OpenCV cannot read this video")
                yield _Ref(path.stem, path.name, lambda: problem)
                return
            number = 0
            while capture.grab():
                if number % self.config.step == 0:
                    name = f"{path.stem}/{number:06d}"
                    yield _Ref(name, name, lambda: self._retrieve(capture))
                number += 1
            if not number:
                problem = Problem(Reason.TRUNCATED, f"{path}: no frame could be read")
                yield _Ref(path.stem, path.name, lambda: problem)
        finally:
            capture.release()

    def _retrieve(self, capture: cv2.VideoCapture) -> Image | Problem:
        found, frame = capture.retrieve()
        if not found or frame is None:
            return Problem(Reason.CORRUPT, "OpenCV cannot decode this frame")
        image = np.asarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB), np.uint8)
        side = self.config.max_side
        if side is not None and max(image.shape[:2]) > side:
            height, width = (max(1, round(length * side / max(image.shape[:2]))) for length in image.shape[:2])
            image = np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
        return image


def _names(files: list[str]) -> list[str]:
    """Without extensions, but for files that would share a name."""
    short = [str(PurePosixPath(file).with_suffix("")) for file in files]
    count = Counter(short)
    names = [file if count[name] > 1 else name for file, name in zip(files, short, strict=True)]
    return names if len(set(names)) == len(names) else files  # of a.jpg, a.png and a.jpg.png


def decoded(data: bytes, config: DecodeConfig, max_side: int | None = None) -> Image | Problem:
    """Encoded bytes by the decode policy of curation and training: uint8 [H, W, 3], or why not."""
    header = read_header(data, config)
    if isinstance(header, Problem):
        return header
    result = decode(data, header, config, max_side)
    return result if isinstance(result, Problem) else result.pixels


def read_image(path: str | Path) -> Image:
    """One picture by the decode policy, uint8 [H, W, 3], upright.

    Raises:
        ValueError: it cannot be decoded.
        OSError: it cannot be read.
    """
    image = decoded(Path(path).read_bytes(), DecodeConfig())
    if isinstance(image, Problem):
        raise ValueError(f"{path}: {image.reason}: {image.detail}")
    return image
