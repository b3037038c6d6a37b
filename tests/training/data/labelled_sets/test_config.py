import pytest
from pydantic import TypeAdapter, ValidationError

from training.data.labelled_sets.config import DenseFoldersConfig, LabelledConfig, PartFoldersConfig, Source


def test_the_kind_chooses_the_source():
    source = TypeAdapter(Source)
    assert isinstance(source.validate_python({"kind": "parts", "root": "x"}), PartFoldersConfig)
    assert isinstance(source.validate_python({"kind": "dense", "root": "x"}), DenseFoldersConfig)
    with pytest.raises(ValidationError, match="kind"):
        source.validate_python({"kind": "folder", "root": "x"})
    with pytest.raises(ValidationError, match="annotations"):
        source.validate_python({"kind": "parts", "root": "x", "annotations": "y"})


def test_a_whole_section():
    config = LabelledConfig.model_validate(
        {"kind": "labelled", "train": {"kind": "shards", "folder": "a"}, "held_out_share": 0.1, "group": "^(.*)-"}
    )
    assert config.train.kind == "shards"
    assert LabelledConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(("group", "message"), [("abc", "has no group"), ("(", "no regular expression")])
def test_a_group_needs_a_group(group, message):
    with pytest.raises(ValidationError, match=message):
        LabelledConfig.model_validate({"kind": "labelled", "train": {"kind": "parts", "root": "a"}, "group": group})


def test_the_background_is_a_class():
    with pytest.raises(ValidationError, match="background is class 4, but ids go from 0 to 3"):
        PartFoldersConfig(kind="parts", root="a", classes=4, background=4)
