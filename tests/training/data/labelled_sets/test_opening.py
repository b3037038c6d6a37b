import pickle
import re

import numpy as np
import pytest

from training.data.errors import DataError
from training.data.labelled_sets.config import LabelledConfig
from training.data.labelled_sets.opening import is_held_out, open_labelled
from training.data.labelled_sets.pack import pack


def section(train, **more):
    return LabelledConfig.model_validate({"kind": "labelled", "train": train, **more})


def ids(source):
    return [source.id(index) for index in range(len(source))]


def test_one_source_is_split_without_overlap(people, write_parts, same):
    train = {"kind": "parts", "root": str(write_parts(people))}
    config = section(train, held_out_share=0.5, seed=1)
    first, second = open_labelled(config)
    assert set(ids(first)) | set(ids(second)) == {picture.id for picture in people}
    assert len(first) + len(second) == len(people)
    assert first.fingerprint != second.fingerprint
    assert first[0].id == first.id(0) == first.record(0).id
    same(pickle.loads(pickle.dumps(second))[0], second[0])
    with pytest.raises(IndexError):
        second[len(second)]


def test_two_sources(people, write_parts, write_coco):
    file, images = write_coco(people[:2])
    coco = {"kind": "coco", "annotations": str(file), "images": str(images), "source_set": "sapiens308"}
    train, held_out = open_labelled(section({"kind": "parts", "root": str(write_parts(people))}, held_out=coco))
    assert len(train) == len(people)
    assert ids(held_out) == ["1", "2"]


def test_shards_are_a_source(people, write_parts, tmp_path, same):
    folders = {"kind": "parts", "root": str(write_parts(people))}
    train, _ = open_labelled(section(folders, held_out=folders))
    pack(train, tmp_path / "out", 3)
    shards = {"kind": "shards", "folder": str(tmp_path / "out")}
    again, _ = open_labelled(section(shards, held_out=shards))
    same(again[2], train[2])
    config = {"held_out_share": 0.5, "seed": 1}
    assert ids(open_labelled(section(shards, **config))[1]) == ids(open_labelled(section(folders, **config))[1])


def test_the_share_holds_and_depends_on_the_id_alone():
    config = section({"kind": "parts", "root": "x"}, held_out_share=0.2)
    other = section({"kind": "parts", "root": "x"}, held_out_share=0.2, seed=5)
    chosen = np.array([is_held_out(f"picture-{index}", config) for index in range(4000)])
    assert abs(chosen.mean() - 0.2) < 4 * np.sqrt(0.16 / 4000)
    again = np.array([is_held_out(f"picture-{index}", other) for index in range(4000)])
    assert abs((chosen & again).mean() - 0.04) < 4 * np.sqrt(0.04 * 0.96 / 4000)


def test_groups_stay_together():
    config = section({"kind": "parts", "root": "x"}, held_out_share=0.5, group=r"^(video\d+)/")
    sides = {video: {is_held_out(f"video{video}/{frame}", config) for frame in range(20)} for video in range(20)}
    assert all(len(side) == 1 for side in sides.values())
    assert {False, True} == set.union(*sides.values())


def test_a_side_without_pictures_is_an_error(people, write_parts):
    train = {"kind": "parts", "root": str(write_parts(people))}
    with pytest.raises(DataError, match=re.escape("of 4 pictures, 0 are held out at held_out_share 1e-09")):
        open_labelled(section(train, held_out_share=1e-9))
