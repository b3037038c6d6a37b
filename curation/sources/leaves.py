"""Which leaves of a Parquet file are metadata: small values, not images and embeddings, at any depth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from curation.rights import is_opt_out_key

Path = tuple[str, ...]

_LISTS = (
    pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view,
    pa.types.is_large_list_view,
)  # fmt: skip
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)


@dataclass(frozen=True, slots=True)
class Selection:
    """What is read of a file.

    Attributes:
        leaves: ordinals of Parquet columns, ascending.
        binary: dotted paths that were left out because they hold bytes.
    """

    leaves: tuple[int, ...]
    binary: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Leaf:
    ordinal: int
    path: Path
    binary: bool
    in_map: str | None  # the dotted path of the outermost map that it belongs to


def field_name(field: pa.Field) -> str:
    """The name of a field, with U+FFFD in place of bytes that are not UTF-8, of which Arrow makes no name."""
    try:
        return str(field.name)
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", "replace")


def field_names(fields: Iterable[pa.Field]) -> list[str]:
    """The names of the fields of a schema."""
    return [field_name(field) for field in fields]


def is_bytes(kind: pa.DataType) -> bool:
    """True for Arrow's binary types, also as the values of a dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return any(test(kind) for test in _BYTES)


def is_vector(kind: pa.DataType) -> bool:
    """True for lists of numbers, such as embeddings, and for tensors."""
    if isinstance(kind, pa.FixedShapeTensorType):
        return True
    if not any(test(kind) for test in _LISTS):
        return False
    value = kind.value_type
    return pa.types.is_floating(value) or pa.types.is_integer(value) or is_vector(value)


def leaf(schema: pa.Schema, path: Path) -> int | None:
    """Ordinal of the Parquet column at a path of fields; None when there is none. Of equal names the first counts."""
    return next((item.ordinal for item in _leaves(schema) if item.path == path), None)


def count(schema: pa.Schema) -> int:
    """Parquet columns of a file with this schema."""
    return sum(1 for _ in _leaves(schema))


def select(schema: pa.Schema, wanted: Sequence[str] | None, used: str) -> Selection:
    """The metadata of a file.

    Args:
        wanted: columns that are read whole; None for all others but vectors, and but the binary leaves of each.
            Columns that may say an opt-out are always read whole.
        used: the column of the images or URLs, which is no metadata.
    """
    chosen: list[int] = []
    binary: list[str] = []
    whole = {name for name in field_names(schema) if is_opt_out_key(name)} | set(wanted or ())
    skipped = set() if wanted is None else set(field_names(schema)) - whole
    skipped |= {field_name(field) for field in schema if is_vector(field.type)} - whole | {used}
    leaves = [item for item in _leaves(schema) if item.path[0] not in skipped]
    # A map without its values is not a map for Arrow any more: it goes as a whole.
    maps = {item.in_map for item in leaves if item.binary and item.in_map is not None}
    for item in leaves:
        if item.path[0] not in whole and (item.binary or item.in_map in maps):
            name = item.in_map or ".".join(item.path)
            if name not in binary:
                binary.append(name)
        else:
            chosen.append(item.ordinal)
    return Selection(tuple(chosen), tuple(binary))


def _leaves(schema: pa.Schema) -> Iterator[_Leaf]:
    ordinal = 0
    for field in schema:
        for path, kind, in_map in _descend((field_name(field),), field.type, None):
            # The 16 bytes of a UUID are read as its text.
            named = isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid"
            storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
            yield _Leaf(ordinal, path, is_bytes(storage) and not named, in_map)
            ordinal += 1


def _descend(path: Path, kind: pa.DataType, in_map: str | None) -> Iterator[tuple[Path, pa.DataType, str | None]]:
    inner = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if pa.types.is_run_end_encoded(inner):
        inner = inner.value_type
    if pa.types.is_struct(inner):
        for position in range(inner.num_fields):
            child = inner.field(position)
            yield from _descend((*path, field_name(child)), child.type, in_map)
    elif pa.types.is_map(inner):
        whole = in_map or ".".join(path)
        yield from _descend((*path, "key"), inner.key_type, whole)
        yield from _descend((*path, "value"), inner.item_type, whole)
    elif any(test(inner) for test in _LISTS):
        yield from _descend((*path, "[]"), inner.value_type, in_map)
    else:
        yield path, kind, in_map
