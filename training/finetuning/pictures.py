"""Where labelled pictures come from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator

from curation.config import Config, fingerprint
from training.data.errors import DataError
from training.data.labelled import Picture
from training.data.labelled_sets.config import LabelledConfig
from training.data.labelled_sets.opening import open_labelled, open_source
from training.data.labelled_sets.record import Pictures, PictureSource, Record, record_of
from training.data.people import PeopleConfig, render
from training.tasks.parts import RELEASED_NAMES

__all__ = ["DataConfig", "LabelledConfig", "PictureSource", "Pictures", "SyntheticConfig", "open_pictures", "unsplit"]

HELD_OUT = 2**40
"""First key of held-out people: no training set reaches so far."""


class SyntheticConfig(Config):
    """People that are rendered as they are asked for, with every label."""

    kind: Literal["people"] = "people"
    train: int = Field(10_000, ge=1, description="pictures to train on; each is rendered anew in every epoch, the same")
    held_out: int = Field(256, ge=1, description="pictures to measure on, unrelated to those")
    people: PeopleConfig = Field(PeopleConfig(), description="what they show")

    @field_validator("train", "held_out", mode="before")
    @classmethod
    def _is_a_count(cls, value: Any) -> Any:
        if isinstance(value, dict):
            raise ValueError("is a source of labelled pictures: give `kind: labelled` beside it")
        return value


_TAG = "kind="


def _tag(value: Any) -> str:
    """Of a value's `kind`; people where it has none.

    It looks like no key, so that places of errors can do without it (`pipeline.config`); an unknown kind is its own.
    """
    kind = value.get("kind", "people") if isinstance(value, dict) else getattr(value, "kind", "people")
    return f"{_TAG}{kind}" if kind in ("people", "labelled") else str(kind)


DataConfig = Annotated[
    Annotated[SyntheticConfig, Tag(f"{_TAG}people")] | Annotated[LabelledConfig, Tag(f"{_TAG}labelled")],
    Discriminator(_tag),
]
"""Where pictures come from; people where `kind` is left out."""


class SyntheticPeople:
    """`count` pictures of the renderer, from a key on."""

    def __init__(self, config: PeopleConfig, first: int, count: int) -> None:
        self._config, self._first, self._count = config, first, count
        self.fingerprint = fingerprint(config, first, count)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Picture:
        return render(self._key(index), self._config)

    def id(self, index: int) -> str:
        """Of the picture, without rendering it."""
        return f"people-{self._config.seed}-{self._key(index)}"

    def record(self, index: int) -> Record:
        """Its lossless files."""
        made = record_of(self[index])
        return Record(
            made.id, made.members, {**made.info, "classes": len(RELEASED_NAMES), "keypoint_set": "sapiens308"}
        )

    def _key(self, index: int) -> int:
        if not 0 <= index < self._count:
            raise IndexError(f"picture {index} of {self._count}")
        return self._first + index


def open_pictures(config: SyntheticConfig | LabelledConfig) -> tuple[PictureSource, PictureSource]:
    """The pictures to train on, and those that are held out.

    Raises:
        DataError: files are missing, do not match or cannot be used; the message names them.
    """
    if isinstance(config, LabelledConfig):
        return open_labelled(config)
    people = config.people
    return SyntheticPeople(people, 0, config.train), SyntheticPeople(people, HELD_OUT, config.held_out)


def unsplit(config: SyntheticConfig | LabelledConfig, held_out: bool = False) -> PictureSource:
    """All pictures of the source to train on, or of the one to measure on.

    Without a source to measure on, the first has all pictures, those that are held out as well: the choice goes by
    ids, so that a packed source is split as it was.

    Raises:
        DataError: as `open_pictures`; or there is no source to measure on.
    """
    if isinstance(config, SyntheticConfig):
        return open_pictures(config)[held_out]
    source = config.held_out if held_out else config.train
    if source is None:
        raise DataError(
            "held_out is null: pictures that are held out are a share of train, packed with it and held out again by "
            "their ids. Pack without --held-out"
        )
    return open_source(source)
