import pickle

import pytest

from training.data.errors import DataError
from training.data.labelled_sets.problem import LabelError, Problem, refuse


def test_an_error_names_file_and_fix_and_crosses_processes():
    error = pickle.loads(pickle.dumps(LabelError("a.png", "is wrong", "Correct it")))
    assert str(error) == "a.png: is wrong. Correct it."
    assert error.problem == Problem("a.png", "is wrong", "Correct it")
    assert isinstance(error, DataError)


def test_only_fatal_problems_are_refused_and_long_lists_cut():
    refuse([Problem("a", "is odd", "Look", fatal=False)])
    with pytest.raises(DataError) as raised:
        refuse([Problem(str(index), "is wrong", "Correct it") for index in range(8)])
    lines = str(raised.value).splitlines()
    assert lines[0] == "0: is wrong. Correct it."
    assert lines[-1].startswith("and 3 more")
