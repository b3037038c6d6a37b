"""Configuration -> pictures, to train on and held out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np

from curation.config import fingerprint
from training.data.errors import DataError
from training.data.labelled import Picture
from training.data.labelled_sets.coco import CocoKeypoints
from training.data.labelled_sets.config import CocoConfig, LabelledConfig, ShardsConfig, Source
from training.data.labelled_sets.folders import FolderPictures
from training.data.labelled_sets.record import PictureSource, Record
from training.data.labelled_sets.shards import ShardPictures


class Subset:
    """Some pictures of a source, in its order; `left_out` is the source's, see `CocoKeypoints`."""

    def __init__(self, source: PictureSource, indices: Sequence[int]) -> None:
        self._source, self._indices = source, np.asarray(indices, np.int64)
        self.left_out = str(getattr(source, "left_out", ""))
        self.fingerprint = fingerprint(
            "subset", source.fingerprint, hashlib.sha256(self._indices.astype("<i8").tobytes()).hexdigest()
        )

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Picture:
        return self._source[self._place(index)]

    def id(self, index: int) -> str:
        return self._source.id(self._place(index))

    def record(self, index: int) -> Record:
        return self._source.record(self._place(index))

    def _place(self, index: int) -> int:
        if not 0 <= index < len(self._indices):
            raise IndexError(f"picture {index} of {len(self._indices)}")
        return int(self._indices[index])


def open_source(config: Source) -> PictureSource:
    """All pictures of a source.

    Raises:
        DataError: files are missing, do not match or cannot be used; the message names them.
    """
    if isinstance(config, CocoConfig):
        return CocoKeypoints(config)
    return ShardPictures(config) if isinstance(config, ShardsConfig) else FolderPictures(config)


def open_labelled(config: LabelledConfig) -> tuple[PictureSource, PictureSource]:
    """The pictures to train on, and those that are held out.

    Of one source, a picture is held out by a hash of its id (or of its group's name) and the seed alone: adding or
    removing pictures moves no other one to the other side.

    Raises:
        DataError: as `open_source`; or one side has no picture.
    """
    source = open_source(config.train)
    if config.held_out is not None:
        return source, open_source(config.held_out)
    held = [is_held_out(source.id(index), config) for index in range(len(source))]
    sides = [[index for index, out in enumerate(held) if out is side] for side in (False, True)]
    if not all(sides):
        raise DataError(
            f"of {len(held)} pictures, {sum(held)} are held out at held_out_share {config.held_out_share}: both sides "
            "need pictures. Give another share or seed, a `group` that makes more groups, or `held_out` of its own"
        )
    return Subset(source, sides[0]), Subset(source, sides[1])


def is_held_out(name: str, config: LabelledConfig) -> bool:
    """Whether the picture of this id is measured on."""
    if config.group is not None:
        found = re.search(config.group, name)
        name = name if found is None or found[1] is None else found[1]
    key = config.seed.to_bytes(8, "little")
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8, key=key).digest()
    return int.from_bytes(digest, "little") < config.held_out_share * 2**64
