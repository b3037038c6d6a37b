"""A section of the configuration whose class is imported when the section is used.

Classes that stand beside code with torch take more than a second and 200 MB to import; a run that has no such section
does without.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


@dataclass(frozen=True)
class LateConfig:
    """Annotation of a field: `Annotated[Any, LateConfig("package.module", "Class")]`.

    Values, errors with their places, dumps and the JSON schema are those of the class itself.
    """

    module: str
    name: str

    def load(self) -> type[BaseModel]:
        """The class."""
        found = getattr(import_module(self.module), self.name)
        assert isinstance(found, type)
        assert issubclass(found, BaseModel)
        return found

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # An error of the class inside this function keeps its place below the field's.
        return core_schema.no_info_plain_validator_function(lambda value: self.load().model_validate(value))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(self.load().__pydantic_core_schema__)
