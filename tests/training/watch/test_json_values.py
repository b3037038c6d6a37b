"""Numbers survive strict JSON, finite or not."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.watch.json_values import dump, plain, restored

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text().filter(lambda t: t not in WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
WORDS = ("nan", "inf", "-inf")


@given(VALUES)
def test_values_come_back_exactly(value: object) -> None:
    assert restored(json.loads(dump(value))) == value


def test_non_finite_numbers_are_words() -> None:
    written = dump({"a": math.nan, "b": [math.inf, np.float32("-inf")], "c": torch.tensor(math.nan)})
    assert written == b'{"a":"nan","b":["inf","-inf"],"c":"nan"}'
    back = restored(json.loads(written))
    assert math.isnan(back["a"])
    assert back["b"] == [math.inf, -math.inf]
    assert all(math.isnan(float(word)) or math.isinf(float(word)) for word in WORDS)


def test_numbers_of_numpy_and_torch() -> None:
    given_ = {"f": np.float32(0.5), "i": np.int64(3), "b": np.bool_(True), "t": torch.tensor(2.5, dtype=torch.bfloat16)}
    assert plain(given_) == {"f": 0.5, "i": 3, "b": True, "t": 2.5}
    assert plain(np.array([[1.0, np.nan]])) == [[1.0, "nan"]]
    assert plain(torch.arange(2)) == [0, 1]


def test_other_kinds_are_refused() -> None:
    with pytest.raises(TypeError, match="is a set: give numbers"):
        plain({"a": {1, 2}})
