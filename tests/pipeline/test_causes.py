"""The innermost cause in one line, whatever it came wrapped in."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path

import pytest
import ray

from curation.scorers.base import MissingWeightsError
from pipeline.causes import cause_line, innermost_of_text, write_traceback
from pipeline.storage import DamagedFileError
from pipeline.tasks import run_tasks


class Fails:
    """Raises in a worker."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, item: object) -> object:
        if self.kind == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/run/part")
        if self.kind == "weights":
            raise MissingWeightsError("the weights yolo.pt are a pickle: give\n  a .onnx file")
        if self.kind == "caused":
            try:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/data/run/part")
            except OSError as error:
                raise RuntimeError("the operator failed") from error
        if self.kind == "worded":
            try:
                raise KeyError("x")
            except KeyError as error:
                raise DamagedFileError("part 7 is damaged: remove it") from error
        if self.kind == "empty":
            raise TimeoutError
        if self.kind == "secret":
            raise ValueError("no such bucket: KEYKEYKEY:SECRET@bucket/x?code=SECRET")
        return item


EXPECTED = {
    "full": "No space left on device: /data/run/part (free some space, or give another place)",
    "weights": "the weights yolo.pt are a pickle: give a .onnx file",
    "caused": "Permission denied: /data/run/part (allow this user to use it, or give another place)",
    "worded": "part 7 is damaged: remove it",
    "secret": "ValueError: no such bucket: bucket/x?code=REDACTED",
}


@pytest.mark.parametrize("kind", sorted(EXPECTED))
def test_of_what_is_raised_here(kind: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        Fails(kind)(0)
    assert cause_line(caught.value) == EXPECTED[kind]


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("kind", ["weights", "caused", "worded", "secret"])
def test_of_a_task(kind: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        list(run_tasks(Fails(kind), [0]))
    assert cause_line(caught.value) == EXPECTED[kind]


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(
    ("where", "kind"), [("call", "caused"), ("call", "empty"), ("constructor", "weights"), ("constructor", "full")]
)
def test_of_a_worker_of_ray_data(kind: str, where: str) -> None:
    """Not Ray's advice on DataContext, and not that an actor died."""

    class Operator:
        def __init__(self) -> None:
            if where == "constructor":
                Fails(kind)(0)

        def __call__(self, batch: object) -> object:
            return Fails(kind)(batch)

    data = ray.data.range(1).map_batches(Operator, concurrency=1)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        data.take_all()
    line = cause_line(caught.value)
    assert line == EXPECTED[kind] if kind != "empty" else line.startswith("TimeoutError")
    assert "DataContext" not in line


def test_an_empty_error_says_where() -> None:
    with pytest.raises(TimeoutError) as caught:
        Fails("empty")(0)
    assert cause_line(caught.value).startswith("TimeoutError in test_causes.py, line ")
    assert cause_line(TimeoutError()) == "TimeoutError"
    assert cause_line(pickle.loads(pickle.dumps(OSError(errno.EDQUOT, "Disk quota exceeded", "/a")))) == (
        "Disk quota exceeded: /a (the quota of this user is used up: free some space, or give another place)"
    )


def test_a_chain_that_is_a_circle_and_a_long_text_end() -> None:
    one, two = RuntimeError("one"), RuntimeError("two")
    one.__cause__, two.__cause__ = two, one
    assert cause_line(one) in ("one", "two")
    assert len(cause_line(ValueError("x" * 5000))) == 600


def test_an_error_in_handling_another_is_the_one_told() -> None:
    text = (
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    x\nKeyError: 'a'\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    y\nValueError: b is no number\n'
    )
    assert innermost_of_text(text) == "ValueError: b is no number"
    assert innermost_of_text("no traceback here") is None


def test_a_traceback_is_written_without_credentials(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such bucket") as caught:
        Fails("secret")(0)
    place = write_traceback(caught.value, str(tmp_path / "log"))
    assert write_traceback(caught.value, str(tmp_path / "no" / "folder")) is None
    assert place is not None
    text = Path(place).read_text()
    assert text.startswith("Traceback")
    assert "bucket/x?code=REDACTED" in text
    assert "KEYKEYKEY" not in text
