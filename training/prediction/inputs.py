"""Pictures to predict: a folder, files, a video or exported shards, as one stream of (name, pixels).

What cannot be read or decoded is reported and passed over; it never ends the stream.

| source | pictures and names |
|---|---|
| folder | files with an extension of images or videos, in subfolders and linked folders too, sorted; name: relative \
path without extension |
| folder with manifest.json | exported shards (`curation.manifest`), in their order; name: the key |
| run directory of `populace curate` | its shards |
| .txt file | a path on each line, relative to the file; UTF-8, or UTF-16 (see `listing.py`) |
| another file, or a list of paths | these; name: path below their common folder, without extension |
| .mp4, .avi, ... among any of these files | every `step`-th frame; name: that of the file/000012, the frame's number \
from 0 |

Where two files have one name but for the extension, both keep it, and so does a video beside a folder of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from curation.codecs.base import DecodeConfig, Problem
from curation.decode import decode, read_header
from curation.manifest import MANIFEST_NAME, read_index
from curation.reasons import Reason
from training.prediction.bad import BadPictures
from training.prediction.boxes import Image
from training.prediction.config import InputConfig
from training.prediction.files import is_safe
from training.prediction.ledger_boxes import shards_of
from training.prediction.listing import ListedFile, folder_files, given_files, list_file
from training.prediction.tars import Tars
from training.prediction.videos import frame_count, frames

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
        self.manifest: Path | None = None
        self._files: list[ListedFile] = []
        if not isinstance(source, str | Path):
            self._files = given_files(Path(item) for item in source)
            return
        path = shards_of(source)
        if not path.exists():
            raise FileNotFoundError(f"input {path} does not exist: give a folder, an image, a video or a list of paths")
        if path.is_dir() and (path / MANIFEST_NAME).is_file():
            self.manifest = path
            _index(path)
        elif path.is_dir():
            self._files = folder_files(path)
        elif path.suffix.lower() == ".txt":
            self._files = list_file(path)
        else:
            self._files = given_files([path])

    def __len__(self) -> int:
        """Pictures in the source, before `limit` and `step`; of videos the numbers that their headers give, or 0."""
        return self._count(1)

    def _count(self, step: int) -> int:
        if self.manifest is not None:
            return len(_index(self.manifest))
        return sum(-(-frame_count(file.path) // step) if file.is_video else 1 for file in self._files)

    @property
    def planned(self) -> int:
        """Pictures that iterating goes through; of a video as far as its header says."""
        count = self._count(self.config.step)
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
        if self.manifest is not None:
            yield from self._samples(self.manifest)
        for file in self._files:
            if file.is_video:
                yield from self._frames(file)
            else:
                yield _Ref(file.name, file.relative, partial(self._file, file.path))

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
            for row in _index(folder).to_pylist():
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

    def _frames(self, file: ListedFile) -> Iterator[_Ref]:
        for number, load in frames(file.path, self.config.step, self.config.max_side):
            if number is None:
                yield _Ref(file.name, file.relative, load)
            else:
                name = f"{file.name}/{number:06d}"
                yield _Ref(name, name, load)


def _index(folder: Path) -> pa.Table:
    """`read_index`, with an error that says what to do."""
    try:
        return read_index(folder)
    except (OSError, ValueError, LookupError, TypeError, pa.ArrowException) as error:
        raise ValueError(
            f"input {folder}: its {MANIFEST_NAME} or an index cannot be read ({error}): export the shards again"
        ) from None


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
