"""What a pipeline relies on when it runs a scorer over many rows: order, batches, memory, and bad rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.records import Batch
from curation.scorers.base import (
    BatchRunner,
    ResourceConfig,
    Scorer,
    ScorerConfig,
    Weights,
    hash_file,
    is_out_of_memory,
)


class Doubling(Scorer):
    """Doubles a column; refuses negative values; has memory for `capacity` rows."""

    name = "doubling"
    columns = {"double": pa.int64()}  # noqa: RUF012
    needs = ("value",)
    needs_pixels = False

    def __init__(self, batch_size: int = 4, capacity: int = 1000) -> None:
        super().__init__(ScorerConfig(kind="doubling", batch_size=batch_size))
        self.capacity = capacity
        self.calls: list[list[int]] = []
        self.setups = 0

    def setup(self) -> None:
        self.setups += 1

    def score(self, batch: Batch) -> dict[str, Sequence[Any]]:
        values = batch.columns["value"]
        self.calls.append(list(values))
        if len(values) > self.capacity:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        if min(values) < 0:
            raise ValueError(f"negative value {min(values)}")
        return {"double": [2 * value for value in values]}


def rows(values: Sequence[int]) -> Batch:
    return Batch([f"row{index}" for index in range(len(values))], [], {"value": list(values)})


def test_rows_come_back_in_order_in_batches_of_the_configured_size() -> None:
    scorer = Doubling(batch_size=4)
    columns, errors = BatchRunner(scorer)(rows(range(10)))
    assert columns == {"double": [2 * value for value in range(10)]}
    assert errors == {}
    assert scorer.calls == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_setup_runs_once_before_the_first_batch() -> None:
    scorer = Doubling()
    runner = BatchRunner(scorer)
    assert scorer.setups == 0
    runner(rows([1]))
    runner(rows([2]))
    assert scorer.setups == 1


def test_no_rows_give_empty_columns() -> None:
    assert BatchRunner(Doubling())(rows([])) == ({"double": []}, {})


def test_out_of_memory_halves_the_batch_and_the_size_is_remembered() -> None:
    scorer = Doubling(batch_size=8, capacity=2)
    runner = BatchRunner(scorer)
    columns, errors = runner(rows(range(8)))
    assert columns["double"] == [2 * value for value in range(8)]
    assert errors == {}
    assert runner.batch_size == 2
    scorer.calls.clear()
    runner(rows(range(4)))
    assert [len(call) for call in scorer.calls] == [2, 2]


def test_out_of_memory_at_one_row_costs_that_row_only() -> None:
    runner = BatchRunner(Doubling(batch_size=4, capacity=0))
    columns, errors = runner(rows([1, 2]))
    assert columns == {"double": [None, None]}
    assert sorted(errors) == [0, 1]


def test_a_bad_row_costs_one_row_and_does_not_shrink_later_batches() -> None:
    scorer = Doubling(batch_size=8)
    runner = BatchRunner(scorer)
    columns, errors = runner(rows([0, 1, 2, -3, 4, 5, 6, 7]))
    assert columns["double"] == [0, 2, 4, None, 8, 10, 12, 14]
    assert errors == {3: "ValueError: negative value -3"}
    assert runner.batch_size == 8


@given(values=st.lists(st.integers(-3, 50), max_size=40), batch_size=st.integers(1, 9), capacity=st.integers(1, 9))
def test_the_result_does_not_depend_on_batches_or_memory(values: list[int], batch_size: int, capacity: int) -> None:
    columns, errors = BatchRunner(Doubling(batch_size, capacity))(rows(values))
    assert columns["double"] == [2 * value if value >= 0 else None for value in values]
    assert sorted(errors) == [index for index, value in enumerate(values) if value < 0]


@pytest.mark.parametrize("result", [{}, {"double": [1]}, {"double": [1, 2, 3]}])
def test_columns_of_the_wrong_length_are_errors_of_the_row(result: dict[str, list[int]]) -> None:
    class Wrong(Doubling):
        def score(self, batch: Batch) -> dict[str, Sequence[Any]]:
            return result if len(batch) > 1 or not result else {"double": [1, 2]}

    columns, errors = BatchRunner(Wrong())(rows([1, 2]))
    assert columns == {"double": [None, None]}
    assert "must have 1 values" in errors[0]
    assert "doubling" in errors[1]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("CUDA out of memory. Tried to allocate"), True),
        (RuntimeError("onnxruntime: Failed to allocate memory for requested buffer"), True),
        (ValueError("the embedding has 4 values"), False),
    ],
)
def test_which_errors_are_out_of_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_batch_size_and_resources_do_not_change_the_identity_of_scores() -> None:
    plain = ScorerConfig(kind="a")
    assert ScorerConfig(kind="a", batch_size=1, resources=ResourceConfig(num_cpus=4)).identity() == plain.identity()
    assert ScorerConfig(kind="b").identity() != plain.identity()


def test_other_weights_change_the_fingerprint() -> None:
    scorer = Doubling()
    first, second = Weights("w", "00", 1), Weights("w", "01", 1)
    assert scorer.model_fingerprint([first]) == scorer.model_fingerprint([first])
    assert scorer.model_fingerprint([first]) != scorer.model_fingerprint([second])


def test_a_file_is_hashed_whole(tmp_path: Any) -> None:
    data = bytes(range(256)) * 9000  # more than one block
    (tmp_path / "weights.bin").write_bytes(data)
    assert hash_file(tmp_path / "weights.bin") == Weights("weights.bin", hashlib.sha256(data).hexdigest(), len(data))
