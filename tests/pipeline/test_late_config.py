"""A section whose class is imported late behaves as if it were not, and costs nothing where it is absent."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ValidationError

from curation.decode import DecodeConfig
from pipeline.config import ConfigError, PopulaceConfig, apply_override, load_config, parse_config, resolved_yaml
from pipeline.late_config import LateConfig

SOURCE = {"kind": "folder", "path": "pool"}
ABSENT = """
import sys
from pipeline.config import parse_config
config = parse_config({"output": "o", "source": {"kind": "folder", "path": "p"}})
config.result_hash(), config.model_dump(mode="json")
print("torch" in sys.modules)
"""


class Outer(BaseModel):
    part: Annotated[Any, LateConfig("curation.decode", "DecodeConfig")] | None = None


def error(data: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(data, "c.yaml")
    return str(caught.value)


def test_without_the_section_torch_is_not_imported() -> None:
    done = subprocess.run([sys.executable, "-c", ABSENT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_values_dumps_and_schema_are_those_of_the_class() -> None:
    made = Outer(part={"work_side": 512})
    assert made.part == DecodeConfig(work_side=512)
    assert made.model_dump(mode="json") == {"part": DecodeConfig(work_side=512).model_dump(mode="json")}
    assert pickle.loads(pickle.dumps(made)) == made
    assert Outer().part is None
    (schema, null) = Outer.model_json_schema()["properties"]["part"]["anyOf"]
    assert schema["properties"] == DecodeConfig.model_json_schema()["properties"]
    assert null == {"type": "null"}


def test_an_error_keeps_its_place() -> None:
    with pytest.raises(ValidationError) as caught:
        Outer(part={"work_side": "wide"})
    assert [item["loc"] for item in caught.value.errors()] == [("part", "work_side")]


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"step": 3}, "unknown key pretrain.step: did you mean pretrain.steps?"),
        (
            {"views": {"global_siz": 3}},
            "unknown key pretrain.views.global_siz: did you mean pretrain.views.global_size?",
        ),
        (
            {"data": {"corpora": [{"path": "a", "wieght": 3}]}},
            "unknown key pretrain.data.corpora.0.wieght: did you mean pretrain.data.corpora.0.weight?",
        ),
        ({"batch": {"size": "x"}}, "pretrain.batch.size: Input should be a valid integer"),
        ({"optimiser": {"lr": -1}}, "pretrain.optimiser.lr: Input should be greater than 0"),
        ({"model": {"backbone": "sapiens3"}}, "pretrain: there is no model 'sapiens3'"),
    ],
)
def test_mistakes_inside_of_pretrain_are_named_by_their_key(section: dict[str, Any], expected: str) -> None:
    assert f"c.yaml: {expected}" in error({"output": "o", "pretrain": section})


def test_overrides_reach_into_it_and_take_text_as_it_stands() -> None:
    data: dict[str, Any] = {"output": "o", "pretrain": {}}
    apply_override(data, "pretrain.data.corpora.0.path=007")
    apply_override(data, "pretrain.steps=70")
    apply_override(data, "pretrain.optimiser.warmup=7")
    config = parse_config(data)
    assert config.pretrain is not None
    assert (config.pretrain.data.corpora[0].path, config.pretrain.steps) == ("007", 70)


def test_a_configuration_that_only_trains_needs_no_source() -> None:
    config = parse_config({"output": "o", "pretrain": {}})
    assert config.source is None
    with pytest.raises(ConfigError, match=r"source: missing; curating needs the images: source.kind"):
        config.identity()


def test_what_is_trained_changes_nothing_of_what_is_curated() -> None:
    configs = [
        parse_config({"output": "o", "source": SOURCE, **more})
        for more in ({}, {"pretrain": {}}, {"pretrain": {"steps": 70, "optimiser": {"warmup": 1}}})
    ]
    assert len({config.result_hash() for config in configs}) == 1
    assert len({json.dumps([config.identity(), config.shown()]) for config in configs}) == 1


def test_the_credentials_of_a_corpus_are_shown_nowhere(tmp_path: Path) -> None:
    entry = {"path": "s3://bucket/shards", "storage_options": {"key": "SECRET-one", "secret": "SECRET-two"}}
    data = {"output": "o", "pretrain": {"data": {"corpora": [entry]}}}
    (tmp_path / "c.yaml").write_text(json.dumps(data))
    config = load_config(tmp_path / "c.yaml")
    assert config.pretrain is not None
    assert config.pretrain.data.corpora[0].storage_options["secret"] == "SECRET-two"
    shown = [
        repr(config), str(config), resolved_yaml(config), json.dumps(config.pretrain.identity()),
        json.dumps(config.model_dump(mode="json")), error({**data, "pretrain": {**data["pretrain"], "steps": "x"}}),
    ]  # fmt: skip
    assert not [text for text in shown if "SECRET" in text]


def test_the_schema_describes_the_section() -> None:
    schema = PopulaceConfig.model_json_schema()
    section, null = schema["properties"]["pretrain"]["anyOf"]
    assert {"steps", "model", "data", "engine"} <= section["properties"].keys()
    assert null == {"type": "null"}
    assert {"PretrainOptimiserConfig", "FinetuneOptimiserConfig"} <= schema["$defs"].keys()
