"""One YAML file -> a typed, validated configuration.

Every component owns its section's class; this module composes them, applies `key.path=value` overrides and turns
mistakes into errors that say what was given, what is allowed and which key is nearest.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from curation.config import Config, fingerprint
from curation.decode import DecodeConfig
from curation.policy import PolicyConfig
from curation.scorers.config import ScorersConfig
from curation.sources import AnySourceConfig
from curation.sources.redact import redact_url
from curation.sources.storage import absolute, is_local
from pipeline.export import ExportConfig
from pipeline.late_config import LateConfig
from pipeline.resources import RayConfig
from pipeline.select import SelectConfig

if TYPE_CHECKING:
    from training.finetuning.config import FinetuneConfig as Finetune
    from training.pretraining.config import PretrainConfig as Pretrain
else:
    Finetune = Annotated[Any, LateConfig("training.finetuning.config", "FinetuneConfig")]
    Pretrain = Annotated[Any, LateConfig("training.pretraining.config", "PretrainConfig")]


class PopulaceConfig(Config):
    """A whole run."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": [name]} for name in ("source", "pretrain", "finetune")]}
    )

    output: str = Field(
        min_length=1,
        description="run directory: a local path or an fsspec URL; holds ledger/, shards/, pretrain/, finetune-seg/",
    )
    source: AnySourceConfig | None = Field(None, description="where the images are; what curates needs it")
    chunk_rows: int = Field(256, ge=1, le=100_000, description="inputs per unit of work; fixed for a run")
    decode: DecodeConfig = DecodeConfig()
    scorers: ScorersConfig = Field(default_factory=ScorersConfig)
    policy: PolicyConfig = Field(default_factory=PolicyConfig)
    select: SelectConfig = SelectConfig()
    export: ExportConfig = Field(default_factory=lambda: ExportConfig())
    pretrain: Pretrain | None = Field(None, description="what `populace pretrain` trains; null: nothing")
    finetune: Finetune | None = Field(None, description="the task that `populace finetune` trains; null: none")
    ray: RayConfig = RayConfig()

    @model_validator(mode="after")
    def _output_apart(self) -> PopulaceConfig:
        if self.source is None:
            if self.pretrain is None and self.finetune is None:
                raise ValueError(
                    "neither source nor pretrain nor finetune is given: give source to curate, pretrain to train a "
                    "backbone, finetune to train a task, or several"
                )
            return self
        source, output = self.source.path, self.output
        if (
            is_local(source)
            and is_local(output)
            and Path(absolute(output)).resolve().is_relative_to(Path(absolute(source)).resolve())
        ):
            raise ValueError(
                f"output {output} lies inside source.path {source}, so that a run would find its own files among its "
                "inputs. Give an output outside of the source."
            )
        return self

    @property
    def pool(self) -> AnySourceConfig:
        """The source.

        Raises:
            ConfigError: there is none.
        """
        if self.source is None:
            raise ConfigError(
                "source: missing; curating needs the images: source.kind (folder, webdataset, parquet, urls) and "
                "source.path. (`populace pretrain` alone works without, on pretrain.data.corpora.)"
            )
        return self.source

    def identity(self) -> dict[str, Any]:
        """What fixes the rows of a run and their order: it cannot change inside a run directory."""
        source = self.pool.model_dump(mode="json")
        # Signed URLs are renewed, and credentials belong in no file of a run.
        source["path"] = redact_url(absolute(self.pool.path))
        # How hard a source is read does not change which rows there are.
        fixed = {key: value for key, value in source.items() if key in self.pool.identity_fields()}
        return {"source": fixed, "chunk_rows": self.chunk_rows}

    def result_hash(self) -> str:
        """Hash of everything that changes what curation makes: not where it is written, on which machines it is
        computed, or what is trained on it."""
        return fingerprint(self.shown())

    def shown(self) -> dict[str, Any]:
        """What curation is configured with, as it is stored: without output, ray and the stages that train, and without
        the credentials that URLs may carry.

        Those in storage options mask themselves.
        """
        dumped = self.model_dump(mode="json", exclude={"output", "ray", "pretrain", "finetune"})
        if self.source is not None:
            dumped["source"]["path"] = redact_url(self.source.path)
        select = dumped["select"]
        select["against"] = [redact_url(path) for path in select["against"]]
        for reference in select["references"]:
            if reference["source"] is not None:
                reference["source"]["path"] = redact_url(reference["source"]["path"])
            if reference["table"] is not None:
                reference["table"] = redact_url(reference["table"])
        return dumped


class ConfigError(ValueError):
    """A configuration is wrong. The message says what was given, what is allowed and how to fix it."""


def load_config(path: str | Path, overrides: Sequence[str] = (), writes: bool = True) -> PopulaceConfig:
    """Read a YAML file and apply overrides.

    Args:
        writes: False: for a command that neither reads the source nor writes a run, so that `output` and `source.path`
            may be absent; they are then "".
        overrides: `key.path=value` strings; values are YAML, so `null`, numbers, lists and `{a: 1}` work.

    Raises:
        ConfigError: unreadable file, bad override, unknown key, or a value of the wrong type.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {str(path)!r}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a YAML file in UTF-8: {error}") from None
    try:
        data = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2024-13-01
        raise ConfigError(f"{path} is not valid YAML: {error}") from None
    data = {} if data is None else data
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a mapping of sections, got {type(data).__name__}")
    for override in overrides:
        apply_override(data, override)
    return parse_config(data, str(path)) if writes else _parse_without_places(data, str(path))


def _parse_without_places(data: dict[str, Any], where: str) -> PopulaceConfig:
    """`parse_config` of a configuration that need not say yet which images and where to."""
    source = data.get("source")
    filled = {"output": "output"} | data
    no_path = False
    if isinstance(source, dict) and "path" not in source:
        no_path, filled["source"] = True, {**source, "path": "source"}
    config = parse_config(filled, where)
    if no_path and config.source is not None:
        config = config.model_copy(update={"source": config.source.model_copy(update={"path": ""})})
    return config if "output" in data else config.model_copy(update={"output": ""})


def parse_config(data: dict[str, Any], where: str = "configuration") -> PopulaceConfig:
    """Validate a mapping.

    Raises:
        ConfigError: see `load_config`.
    """
    unknown = list(_unknown_keys(data, PopulaceConfig, ""))
    if unknown:
        raise ConfigError("\n".join(f"{where}: {message}" for message in unknown))
    try:
        return PopulaceConfig.model_validate(data)
    except ValidationError as error:
        lines = []
        for item in error.errors(include_url=False, include_input=False):
            place, message = _place(item["loc"], data), item["msg"].removeprefix("Value error, ")
            if item["type"].startswith("union_tag"):
                place, message = f"{place}.kind", _kind_message(place, data, item.get("ctx", {}).get("tag"))
            if item["type"] == "missing" and place == "output":
                message = "missing; give the folder for the run, for example output=RUN"
            lines.append(f"{where}: {place or '(top level)'}: {message}")
        raise ConfigError("\n".join(lines)) from None


def _place(location: tuple[int | str, ...], data: Any) -> str:
    """The key path of an error; pydantic puts the `kind` of a section among the keys, which is left out. Where a kind
    can be left out, it has the form kind=NAME there."""
    parts = []
    for part in location:
        if isinstance(part, str) and part.startswith("kind="):
            continue
        if isinstance(data, dict) and part not in data and data.get("kind") == part:
            continue
        parts.append(str(part))
        if isinstance(data, list):
            data = data[part] if isinstance(part, int) and part < len(data) else None
        else:
            data = data.get(part) if isinstance(data, dict) else None
    return ".".join(parts)


def _kind_message(place: str, data: dict[str, Any], given: str | None) -> str:
    """What to say of a section whose `kind` is absent (given is None) or unknown."""
    parts = place.split(".")
    (annotation,) = _annotations(parts[:-1] if parts[-1].isdecimal() else parts, data)  # items have the list's types
    valid = [model.model_fields["kind"].default for model in _models(annotation)]
    if given is None:
        return f"missing; valid: {', '.join(valid)}"
    near = difflib.get_close_matches(given, valid, n=1, cutoff=0.5)
    return f"{given!r} is not known: {f'did you mean {near[0]}? ' if near else ''}valid: {', '.join(valid)}"


def apply_override(data: dict[str, Any], override: str) -> None:
    """Set one `key.path=value` in a mapping, in place.

    Raises:
        ConfigError: not of that form, or the value is not YAML.
    """
    key, sign, text = override.partition("=")
    parts = key.strip().split(".")
    if not sign or not all(parts):
        raise ConfigError(f"override {override!r} is not of the form key.path=value, e.g. policy.too_small.min=256")
    try:
        value = yaml.load(text, _Loader) if text.strip() else None  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError):
        value = text
    if text.strip().lower() not in ("", "null", "~") and text.strip()[0] not in "'\"" and _is_text(parts, data):
        # A path or title is taken as it stands: YAML would read 007 as 7, 2024-01-01 as a date, and cut at " #".
        value = text.strip()
    node: Any = data
    for position, part in enumerate(parts[:-1]):
        child = _entry(node, part, override)
        place = parts[position + 1].isdecimal()
        if not isinstance(child, dict | list) or (isinstance(child, list) and not place):
            child = [] if place else {}
            _put(node, part, child)
        node = child
    if isinstance(node, list):
        _entry(node, parts[-1], override)
    _put(node, parts[-1], value)


def _entry(node: dict[str, Any] | list[Any], part: str, override: str) -> Any:
    """What is below a mapping or a list; a list can be written one place beyond its end."""
    if isinstance(node, dict):
        return node.get(part)
    if not part.isdecimal() or int(part) > len(node):
        raise ConfigError(
            f"override {override!r}: {part} is no place in a list of {len(node)}; give 0 to {len(node)}, or the whole "
            "list as [..., ...]"
        )
    return node[int(part)] if int(part) < len(node) else None


def _put(node: dict[str, Any] | list[Any], part: str, value: Any) -> None:
    if isinstance(node, dict):
        node[part] = value
    elif int(part) < len(node):
        node[int(part)] = value
    else:
        node.append(value)


def _is_text(parts: Sequence[str], data: dict[str, Any]) -> bool:
    """Whether a key path leads to a value that is text, or text or null, whatever the `kind`s on its way."""
    found = list(_annotations(parts, data))
    return bool(found) and all({*(get_args(item) or (item,))} <= {str, type(None)} for item in found)


def _annotations(parts: Sequence[str], data: Any) -> Iterator[Any]:
    """The types that a key path may have; several where a `kind` on its way is not given yet."""
    models: list[type[BaseModel]] = [PopulaceConfig]
    for position, part in enumerate(parts):
        if part.isdecimal() and 0 < position < len(parts) - 1:  # a place in a list, of the class of its others
            data = data[int(part)] if isinstance(data, list) and int(part) < len(data) else None
            continue
        found = [model.model_fields[part].annotation for model in models if part in model.model_fields]
        if position == len(parts) - 1:
            yield from found
            return
        data = data.get(part) if isinstance(data, dict) else None
        kind = data.get("kind") if isinstance(data, dict) else None
        models = [model for annotation in found for model in _models(annotation)]
        models = [model for model in models if _is_kind(model, kind)] or models


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The configuration classes among the types that an annotation allows."""
    origin = get_origin(annotation)
    if origin is Annotated:
        late = [item for item in annotation.__metadata__ if isinstance(item, LateConfig)]
        return [late[0].load()] if late else _models(get_args(annotation)[0])
    if origin in (Union, types.UnionType, tuple, list):
        return [model for argument in get_args(annotation) for model in _models(argument)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []


def _is_kind(model: type[BaseModel], kind: Any) -> bool:
    return "kind" in model.model_fields and model.model_fields["kind"].default == kind


class _Loader(yaml.SafeLoader):
    """YAML's plain types only, and no key twice in a mapping: the first would be lost in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} stands twice in one mapping", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _unknown_keys(data: dict[str, Any], model: type[BaseModel], prefix: str) -> Iterator[str]:
    """Messages for keys that a model does not have, at any depth."""
    for key, value in data.items():
        if key not in model.model_fields:
            valid = list(model.model_fields)
            near = difflib.get_close_matches(str(key), valid, n=1, cutoff=0.5)
            hint = f"did you mean {prefix}{near[0]}? " if near else ""
            yield f"unknown key {prefix}{key}: {hint}valid keys here: {', '.join(valid)}"
            continue
        items = enumerate(value) if isinstance(value, list) else [(None, value)]
        for position, item in items:
            child = _model_for(model.model_fields[key], item) if isinstance(item, dict) else None
            if child is not None:
                place = f"{key}." if position is None else f"{key}.{position}."
                yield from _unknown_keys(item, child, f"{prefix}{place}")


def _model_for(field: FieldInfo, value: dict[str, Any]) -> type[BaseModel] | None:
    """The configuration class that a mapping would be validated as, or None when there is not exactly one."""
    models = _models(field.annotation)
    if len(models) > 1:
        # Without a kind, a section that has a default is of that one's class.
        kind = value.get("kind", getattr(field.default, "kind", None))
        models = [model for model in models if _is_kind(model, kind)]
    return models[0] if len(models) == 1 else None


def resolved_yaml(config: PopulaceConfig) -> str:
    """The configuration with every default, as YAML. Secrets are masked."""
    return yaml.safe_dump(resolved(config), sort_keys=False, allow_unicode=True)


def resolved(config: PopulaceConfig) -> dict[str, Any]:
    """The configuration with every default. Options mask their secrets themselves; those inside of URLs go here."""
    shown = _without_credentials(config.model_dump(mode="json"))
    assert isinstance(shown, dict)
    return shown


def _without_credentials(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_credentials(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_credentials(item) for item in value]
    return redact_url(value) if isinstance(value, str) else value
