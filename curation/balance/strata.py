"""Strata: rows by what the ledger says of them, in bins that the configuration alone defines.

The code of a stratum is computed from the bins, never from the values that happen to occur, so every table of a run,
and of the next run with the same configuration, numbers its strata alike.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from math import prod

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from curation.balance.attributes import ATTRIBUTES
from curation.config import Config

Codes = npt.NDArray[np.int32]

MAX_STRATA = 100_000
"""Most strata that crossed attributes may make: rows per stratum would be too few to balance long before."""

ALL = "all"
"""The name of the one stratum when there is nothing to stratify by."""


class StratumConfig(Config):
    """One attribute that strata are made of: a ledger column, or a derived attribute."""

    column: str = Field(
        min_length=1,
        description="a ledger column (head_yaw, person_count, person_short_side, brightness, ...), or a derived "
        f"attribute: {', '.join(ATTRIBUTES)}",
    )
    edges: tuple[float, ...] | None = Field(
        None,
        min_length=1,
        description="for numbers: ascending edges e0 .. em of the bins < e0, [e0, e1), ..., >= em; a missing value has "
        "a bin of its own",
    )
    values: tuple[bool | int | str, ...] | None = Field(
        None,
        min_length=1,
        description="for text, whole numbers and booleans: one bin each, one for any other value, one for a missing "
        "one",
    )
    absolute: bool = Field(False, description="compare the absolute value with the edges: left and right are alike")

    @model_validator(mode="after")
    def _bins(self) -> StratumConfig:
        if self.edges is not None and self.values is not None:
            raise ValueError(f"{self.column}: give edges (numbers) or values (categories), not both")
        edges, values = bins(self)
        if edges is None and values is None:
            raise ValueError(
                f"{self.column}: give edges, e.g. [-45, -15, 15, 45], or values, e.g. [yes, no]: the bins must not "
                "depend on the rows that happen to be there"
            )
        if edges is not None:
            for low, high in pairwise(edges):
                if low >= high:
                    raise ValueError(f"{self.column}: edges must ascend, got {low:g} before {high:g}")
            if self.absolute and edges[0] <= 0:
                raise ValueError(f"{self.column}: edges of absolute values must be above 0, got {edges[0]:g}")
        elif self.absolute:
            raise ValueError(f"{self.column}: absolute is for numbers with edges")
        if values is not None:
            for value in values:
                if type(value) is not type(values[0]):
                    raise ValueError(f"{self.column}: values must be of one type, got {values[0]!r} and {value!r}")
                if values.count(value) > 1:
                    raise ValueError(f"{self.column}: the value {value!r} is listed twice")
        return self


def bins(config: StratumConfig) -> tuple[tuple[float, ...] | None, tuple[bool | int | str, ...] | None]:
    """Edges and values of an attribute: the configuration's, else those of the derived attribute."""
    if config.edges is None and config.values is None and config.column in ATTRIBUTES:
        attribute = ATTRIBUTES[config.column]
        return attribute.edges, attribute.values
    return config.edges, config.values


def required_columns(configs: Sequence[StratumConfig]) -> set[str]:
    """Ledger columns that strata are computed from."""
    needed: set[str] = set()
    for config in configs:
        derived = ATTRIBUTES.get(config.column)
        needed |= {config.column} if derived is None else set(derived.columns)
    return needed


def check_strata(configs: Sequence[StratumConfig], columns: Mapping[str, pa.DataType]) -> None:
    """Find out before the run that the columns are there and fit their bins.

    Args:
        configs: the attributes.
        columns: what the ledger holds.

    Raises:
        ValueError: a column is missing, is no number or no category, or comes twice; or too many strata.
    """
    for config in configs:
        derived = ATTRIBUTES.get(config.column)
        if derived is None:
            if config.column not in columns:
                valid = [*columns, *(name for name, made in ATTRIBUTES.items() if set(made.columns) <= set(columns))]
                near = difflib.get_close_matches(config.column, valid, n=1, cutoff=0.5)
                raise ValueError(
                    f"strata: there is no column {config.column!r}: "
                    f"{f'did you mean {near[0]}? ' if near else ''}valid: {', '.join(valid)}"
                )
            _check_type(config, columns[config.column])
            continue
        for name, type_ in derived.columns.items():
            if name not in columns:
                raise ValueError(
                    f"strata: {config.column} is made of the column {name}, which this run does not measure; configure "
                    "the scorer that gives it, or leave the attribute out"
                )
            if columns[name] != type_:
                raise ValueError(f"strata: {config.column} needs {name} as {type_}, got {columns[name]}")
        _check_type(config, derived.type)
    seen = [config.column for config in configs]
    for name in seen:
        if seen.count(name) > 1:
            raise ValueError(f"strata: {name} comes twice; give its bins once")
    total = prod(len(_labels(config)) for config in configs)
    if total > MAX_STRATA:
        raise ValueError(f"strata: crossing the attributes makes {total:,} strata, at most {MAX_STRATA:,}; use fewer")


def stratum_names(configs: Sequence[StratumConfig]) -> tuple[str, ...]:
    """Names of all strata, by code; those that no row falls in too."""
    if not configs:
        return (ALL,)
    return tuple(" x ".join(labels) for labels in product(*(_labels(config) for config in configs)))


def strata(table: pa.Table, configs: Sequence[StratumConfig]) -> tuple[Codes, tuple[str, ...]]:
    """Which stratum each row is in.

    Args:
        table: n rows with the columns of `required_columns`.
        configs: attributes that are crossed, the first one varies slowest; none: all rows are one stratum.

    Returns:
        int32 [n] codes, and the names of all codes, e.g. "head_yaw [-15, 15) x person_count [1, 2)". Missing values
        and NaN are "unknown".

    Raises:
        ValueError: as `check_strata`.
    """
    check_strata(configs, {name: table.schema.field(name).type for name in table.column_names})
    codes = np.zeros(len(table), np.int64)
    for config in configs:
        derived = ATTRIBUTES.get(config.column)
        column = table.column(config.column) if derived is None else derived.compute(table)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        codes = codes * len(_labels(config)) + _codes(column, config)
    return codes.astype(np.int32), stratum_names(configs)


def _codes(column: pa.Array, config: StratumConfig) -> npt.NDArray[np.int64]:
    """Bins of one attribute: 0 unknown, then as in `_labels`."""
    edges, values = bins(config)
    if edges is not None:
        numbers = np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
        if config.absolute:
            numbers = np.abs(numbers)
        return np.where(np.isnan(numbers), 0, 1 + np.searchsorted(np.array(edges), numbers, side="right"))
    assert values is not None
    codes = np.full(len(column), len(values) + 1, np.int64)
    for position, value in enumerate(values):
        codes[np.asarray(pc.equal(column, pa.scalar(value, column.type)).fill_null(False))] = position + 1
    codes[np.asarray(column.is_null())] = 0
    return codes


def _labels(config: StratumConfig) -> tuple[str, ...]:
    edges, values = bins(config)
    name = f"|{config.column}|" if config.absolute else config.column
    if edges is None:
        assert values is not None
        return (f"{name} unknown", *(f"{name} {_plain(value)}" for value in values), f"{name} other")
    texts = [repr(edge).removesuffix(".0") for edge in edges]
    inner = [f"{name} [{low}, {high})" for low, high in pairwise(texts)]
    return (f"{name} unknown", f"{name} < {texts[0]}", *inner, f"{name} >= {texts[-1]}")


def _plain(value: bool | int | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_text(type_: pa.DataType) -> bool:
    return pa.types.is_string(type_) or pa.types.is_large_string(type_)


def _check_type(config: StratumConfig, type_: pa.DataType) -> None:
    edges, values = bins(config)
    if edges is not None and not (pa.types.is_integer(type_) or pa.types.is_floating(type_)):
        raise ValueError(f"strata: {config.column} is {type_}, not a number: give values in place of edges")
    if values is None:
        return
    fits = {bool: pa.types.is_boolean, int: pa.types.is_integer, str: _is_text}[type(values[0])]
    if not fits(type_):
        raise ValueError(
            f"strata: {config.column} is {type_} and the values are like {values[0]!r}; numbers with a fraction take "
            "edges, other columns take values of their own type"
        )
