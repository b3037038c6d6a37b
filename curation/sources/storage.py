"""What every source that lies in files is configured with: a path and the options to open it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, PlainSerializer

from curation.sources.base import SourceConfig

DEFAULT_MAX_BYTES = 256 << 20


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _masked(item) for key, item in value.items()}
    return value if value is None or isinstance(value, bool | int | float) else "***"


class StorageOptions(dict[str, Any]):
    """fsspec options, which hold credentials: printing and serialising show `***` for every text."""

    def __repr__(self) -> str:
        return repr(_masked(self))

    __str__ = __repr__


def _given(value: dict[str, Any]) -> StorageOptions:
    if "***" in value.values():
        raise ValueError(
            "a value is '***', which stands for a secret where options are printed: give the secret itself"
        )
    return StorageOptions(value)


SecretOptions = Annotated[dict[str, Any], AfterValidator(_given), PlainSerializer(_masked, return_type=dict[str, Any])]


class StorageConfig(SourceConfig):
    """What every source that lies in files has."""

    # A wrong key elsewhere must not print the credentials of this section.
    model_config = ConfigDict(hide_input_in_errors=True)

    path: str = Field(min_length=1, description="path or fsspec URL (s3://, gs://, memory://, file://); no default")
    storage_options: SecretOptions = Field(
        default_factory=dict, description="options for fsspec, such as key, secret, client_kwargs; never stored"
    )
    max_bytes: int = Field(
        DEFAULT_MAX_BYTES, ge=1, description="encoded bytes above which an image is dropped unread (too_many_bytes)"
    )


def is_local(path: str) -> bool:
    """True for a plain path and for `file://`."""
    return path.startswith(("file://", "local://")) or ("://" not in path and "::" not in path)


def absolute(path: str) -> str:
    """Absolute plain path for local ones (workers have another working directory); URLs unchanged."""
    if not is_local(path):
        return path
    return os.path.abspath(os.path.expanduser(path.removeprefix("file://").removeprefix("local://")))
