import errno

import pytest

from curation.reasons import Reason
from curation.sources.failures import TooManyBytesError, failure, with_retries


def test_retries_only_what_may_pass() -> None:
    calls: list[BaseException] = []

    def failing(error: BaseException, times: int) -> str:
        calls.append(error)
        if len(calls) <= times:
            raise error
        return "done"

    assert with_retries(lambda: failing(ConnectionResetError(), 2), delay_s=0.001) == "done"
    assert len(calls) == 3
    for error in (FileNotFoundError(), PermissionError(), ValueError(), OSError("broken page")):
        calls.clear()
        with pytest.raises(type(error)):
            with_retries(lambda: failing(error, 9), delay_s=0.001)  # noqa: B023
        assert len(calls) == 1
    calls.clear()
    with pytest.raises(ConnectionResetError):
        with_retries(lambda: failing(ConnectionResetError(), 9), attempts=3, delay_s=0.001)
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileNotFoundError(errno.ENOENT, "gone"), Reason.MISSING),
        (IsADirectoryError(errno.EISDIR, "a folder now"), Reason.MISSING),
        (OSError(errno.ELOOP, "a link to itself"), Reason.MISSING),
        (PermissionError(errno.EACCES, "no"), Reason.READ_ERROR),
        (OSError(errno.EIO, "disk"), Reason.READ_ERROR),
        (RuntimeError("whatever a library raises"), Reason.READ_ERROR),
        (TooManyBytesError("9 bytes, the cap is 5"), Reason.TOO_MANY_BYTES),
    ],
)
def test_failures_have_reasons(error: Exception, reason: Reason) -> None:
    payload = failure(error)
    assert payload.data is None
    assert payload.reason is reason
    assert payload.detail
