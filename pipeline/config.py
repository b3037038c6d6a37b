"""One YAML file -> a typed, validated configuration.

Every component owns its section's class; this module composes them, applies `key.path=value` overrides and turns mistakes
into errors that say what was given, what is allowed and which key is nearest.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, Field, ValidationError

from curation.config import Config, fingerprint
from curation.decode import DecodeConfig
from curation.policy import PolicyConfig
from curation.scorers.config import ScorersConfig
from curation.sources import AnySourceConfig
from pipeline.export import ExportConfig
from pipeline.resources import RayConfig
from pipeline.select import SelectConfig


class PopulaceConfig(Config):
    """A whole run."""

    output: str = Field(
        description="run directory: a local path or an fsspec URL; holds ledger/, shards/, lineage.json, logs/"
    )
    source: AnySourceConfig = Field(description="where the images are")
    chunk_rows: int = Field(256, ge=1, le=100_000, description="inputs per unit of work; fixed for a run")
    decode: DecodeConfig = DecodeConfig()
    scorers: ScorersConfig = Field(default_factory=ScorersConfig)
    policy: PolicyConfig = Field(default_factory=PolicyConfig)
    select: SelectConfig = SelectConfig()
    export: ExportConfig = Field(default_factory=lambda: ExportConfig())
    ray: RayConfig = RayConfig()

    def identity(self) -> dict[str, Any]:
        """What fixes the rows of a run and their order: it cannot change inside a run directory."""
        source = self.source.model_dump(mode="json")
        path = str(source.get("path", ""))
        if path and "://" not in path:
            source["path"] = str(Path(path).expanduser().absolute())
        # How hard a source is read does not change which rows there are.
        fixed = {key: value for key, value in source.items() if key in self.source.identity_fields()}
        return {"source": fixed, "chunk_rows": self.chunk_rows}

    def result_hash(self) -> str:
        """Hash of everything that changes a result: not where it is written, nor on which machines it is computed."""
        dumped = self.model_dump(mode="json", exclude={"output", "ray"})
        return fingerprint(dumped)


class ConfigError(ValueError):
    """A configuration is wrong. The message says what was given, what is allowed and how to fix it."""


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> PopulaceConfig:
    """Read a YAML file and apply overrides.

    Args:
        overrides: `key.path=value` strings; values are YAML, so `null`, numbers, lists and `{a: 1}` work.

    Raises:
        ConfigError: unreadable file, bad override, unknown key, or a value of the wrong type.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {str(path)!r}: {error.strerror or error}") from None
    try:
        data = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a mapping of sections, got {type(data).__name__}")
    for override in overrides:
        apply_override(data, override)
    return parse_config(data, str(path))


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
            place = ".".join(str(part) for part in item["loc"]) or "(top level)"
            lines.append(f"{where}: {place}: {item['msg']}")
        raise ConfigError("\n".join(lines)) from None


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
        value = yaml.safe_load(text) if text.strip() else None
    except yaml.YAMLError:
        value = text
    node = data
    for part in parts[:-1]:
        child = node.get(part)
        if not isinstance(child, dict):
            child = {}
            node[part] = child
        node = child
    node[parts[-1]] = value


def _unknown_keys(data: dict[str, Any], model: type[BaseModel], prefix: str) -> Any:
    """Messages for keys that a model does not have, at any depth."""
    for key, value in data.items():
        if key not in model.model_fields:
            valid = list(model.model_fields)
            near = difflib.get_close_matches(str(key), valid, n=1, cutoff=0.5)
            hint = f"did you mean {prefix}{near[0]}? " if near else ""
            yield f"unknown key {prefix}{key}: {hint}valid keys here: {', '.join(valid)}"
            continue
        if isinstance(value, dict):
            child = _model_for(model.model_fields[key].annotation, value)
            if child is not None:
                yield from _unknown_keys(value, child, f"{prefix}{key}.")


def _model_for(annotation: Any, value: dict[str, Any]) -> type[BaseModel] | None:
    """The configuration class that a mapping would be validated as, or None when there is not exactly one."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _model_for(get_args(annotation)[0], value)
    if origin in (Union, types.UnionType):
        models = [found for argument in get_args(annotation) if (found := _model_for(argument, value)) is not None]
        if len(models) > 1:
            models = [model for model in models if value.get("kind") == model.model_fields["kind"].default]
        return models[0] if len(models) == 1 else None
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def resolved_yaml(config: PopulaceConfig) -> str:
    """The configuration with every default, as YAML. Secrets are masked by their own classes."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
