"""Synthetic people as a sequence of pictures."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from training.data.people import PeopleConfig
from training.finetuning.pictures import SyntheticConfig, open_pictures

CONFIG = SyntheticConfig(train=3, held_out=2, people=PeopleConfig(size=(32, 24), people=(1, 1)))


def test_held_out_pictures_are_others() -> None:
    train, held_out = open_pictures(CONFIG)
    assert (len(train), len(held_out)) == (3, 2)
    ids = [picture.id for pictures in (train, held_out) for picture in (pictures[i] for i in range(len(pictures)))]
    assert len(set(ids)) == 5
    # A longer training set does not reach into them.
    longer = open_pictures(CONFIG.model_copy(update={"train": 10}))[1]
    assert np.array_equal(longer[0].image, held_out[0].image)


def test_a_copy_in_another_process_has_the_same_pictures() -> None:
    train, _ = open_pictures(CONFIG)
    copy = pickle.loads(pickle.dumps(train))
    assert np.array_equal(copy[1].image, train[1].image)
    assert np.array_equal(train[1].image, train[1].image)


def test_the_fingerprint_is_that_of_what_is_shown() -> None:
    train, held_out = open_pictures(CONFIG)
    people = CONFIG.people.model_copy(update={"seed": 1})
    others = [open_pictures(CONFIG.model_copy(update=change))[0] for change in ({"train": 4}, {"people": people})]
    assert len({train.fingerprint, held_out.fingerprint, *(other.fingerprint for other in others)}) == 4
    assert open_pictures(CONFIG)[0].fingerprint == train.fingerprint


def test_there_is_nothing_beyond_the_last() -> None:
    train, _ = open_pictures(CONFIG)
    for index in (3, -1):
        with pytest.raises(IndexError, match=f"picture {index} of 3"):
            train[index]
