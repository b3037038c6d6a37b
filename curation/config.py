"""The base of every configuration class, and the stable fingerprint of a value.

A component declares its own subclass of `Config` beside its code; `pipeline/config.py` only composes them.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """A typed, immutable section of the configuration. Unknown keys are errors."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        protected_namespaces=(),
        coerce_numbers_to_str=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )


def fingerprint(*parts: Any) -> str:
    """Hash JSON-able values (or `Config`s) to 16 hex characters, independent of key order and of the process."""

    def plain(value: Any) -> Any:
        if isinstance(value, BaseModel):
            return value.model_dump(mode="json")
        raise TypeError(f"cannot fingerprint a {type(value).__name__}: give JSON-able values or Config objects")

    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=plain)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
