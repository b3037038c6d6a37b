"""Synthetic people, or pictures of one's own, as sequences of pictures."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from tests.fixtures import labelled
from training.data.errors import DataError
from training.data.people import PeopleConfig
from training.finetuning.pictures import DataConfig, LabelledConfig, SyntheticConfig, open_pictures, unsplit

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


def test_a_picture_has_its_id_and_its_files_without_the_renderer_being_asked_twice() -> None:
    train, held_out = open_pictures(CONFIG)
    for pictures in (train, held_out):
        assert pictures.id(1) == pictures[1].id
        record = pictures.record(1)
        assert (record.id, record.info["classes"], record.info["keypoint_set"]) == (pictures.id(1), 29, "sapiens308")
    with pytest.raises(IndexError):
        train.id(3)


def test_the_kind_chooses_and_people_are_meant_where_there_is_none() -> None:
    data = TypeAdapter(DataConfig)
    for value in ({}, {"train": 3}, {"kind": "people", "held_out": 2}):
        assert isinstance(data.validate_python(value), SyntheticConfig)
    source = {"kind": "parts", "root": "r"}
    made = data.validate_python({"kind": "labelled", "train": source})
    assert isinstance(made, LabelledConfig)
    for config in (made, CONFIG):
        assert data.validate_python(data.dump_python(config, mode="json")) == config
    with pytest.raises(ValidationError, match="give `kind: labelled` beside it"):
        data.validate_python({"train": source})
    with pytest.raises(ValidationError, match="labeled"):
        data.validate_python({"kind": "labeled", "train": source})


def test_folders_may_be_moved_within_a_run() -> None:
    first, second = (LabelledConfig.model_validate(labelled.own({"kind": "parts", "root": root})) for root in "ab")
    assert first.identity() == second.identity()
    other = first.model_copy(update={"train": first.train.model_copy(update={"classes": 5})})
    assert other.identity() != first.identity()


def test_all_pictures_of_a_side_are_there_before_the_split(tmp_path: Path) -> None:
    root = labelled.write_parts(labelled.rendered(), tmp_path / "parts")
    data = LabelledConfig.model_validate(labelled.own({"kind": "parts", "root": str(root)}, seed=1))
    assert len(unsplit(data)) == 4 == sum(len(side) for side in open_pictures(data))
    with pytest.raises(DataError, match="Pack without --held-out"):
        unsplit(data, held_out=True)
    assert [len(unsplit(CONFIG, side)) for side in (False, True)] == [3, 2]
