"""Where labelled pictures come from."""

from __future__ import annotations

from typing import Literal, Protocol

from pydantic import Field

from curation.config import Config, fingerprint
from training.data.labelled import Picture
from training.data.people import PeopleConfig, render


class Pictures(Protocol):
    """A fixed sequence of labelled pictures. Picklable: loader workers get a copy."""

    fingerprint: str

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Picture: ...


class SyntheticConfig(Config):
    """People that are rendered as they are asked for, with every label."""

    kind: Literal["people"] = "people"
    train: int = Field(10_000, ge=1, description="pictures to train on; each is rendered anew in every epoch, the same")
    held_out: int = Field(256, ge=1, description="pictures to measure on, unrelated to those")
    people: PeopleConfig = Field(PeopleConfig(), description="what they show")


class SyntheticPeople:
    """`count` pictures of the renderer, from a key on."""

    def __init__(self, config: PeopleConfig, first: int, count: int) -> None:
        self._config, self._first, self._count = config, first, count
        self.fingerprint = fingerprint(config, first, count)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Picture:
        if not 0 <= index < self._count:
            raise IndexError(f"picture {index} of {self._count}")
        return render(self._first + index, self._config)


def open_pictures(config: SyntheticConfig) -> tuple[SyntheticPeople, SyntheticPeople]:
    """The pictures to train on, and those that are held out; no key is in both."""
    people = config.people
    return SyntheticPeople(people, 0, config.train), SyntheticPeople(people, 2**40, config.held_out)
