import gzip
import zlib

import pyarrow as pa
import pytest

from curation.reasons import Reason
from curation.sources import SourceError
from curation.sources.tables import CHECKED_FILES, container_failure, problem_row, require_column, sampled


def test_a_file_of_many_columns_is_named_briefly() -> None:
    with pytest.raises(SourceError) as caught:
        require_column([f"column{n}" for n in range(100_000)], "image", "source.image_column", "a.parquet")
    assert "(100000 columns)" in str(caught.value)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError("broken page"), Reason.BAD_CONTAINER),
        (pa.ArrowInvalid("x"), Reason.BAD_CONTAINER),
        (UnicodeDecodeError("utf-8", b"\xe9", 0, 1, "x"), Reason.BAD_CONTAINER),
        (OverflowError("x"), Reason.BAD_CONTAINER),
        (EOFError("x"), Reason.BAD_CONTAINER),
        (gzip.BadGzipFile("x"), Reason.BAD_CONTAINER),
        (zlib.error("x"), Reason.BAD_CONTAINER),
        (FileNotFoundError(2, "x"), Reason.MISSING),
        (OSError(5, "input/output error"), Reason.READ_ERROR),
        (ConnectionResetError("x"), Reason.READ_ERROR),
    ],
)
def test_broken_content_is_told_apart_from_failing_storage(error: Exception, reason: Reason) -> None:
    assert container_failure(error).reason is reason


def test_files_are_sampled_from_the_first_to_the_last() -> None:
    assert sampled(3) == [0, 1, 2]
    many = sampled(10_000)
    assert (len(many), many[0], many[-1]) == (CHECKED_FILES, 0, 9_999)


def test_a_detail_is_valid_text() -> None:
    assert problem_row("a", 3, Reason.BAD_CONTAINER, "caf\udce9").problem_detail == "caf?"
