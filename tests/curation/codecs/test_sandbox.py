"""What a user relies on: a decoder's crash or greed costs one image, and no process is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from curation.codecs import sandbox
from curation.codecs.base import DecodeConfig, Header, Problem
from curation.decode import Decoded, decode, read_header
from curation.reasons import Reason
from tests.fixtures import images

CONFIG = DecodeConfig()
ROOT = Path(__file__).parents[3]
ODD = images.odd_images()


def take(data: bytes) -> Decoded | Problem:
    header = read_header(data, CONFIG)
    return header if isinstance(header, Problem) else decode(data, header, CONFIG, 640)


@pytest.fixture(autouse=True)
def _no_children_before_or_after():
    sandbox.close()
    yield
    sandbox.close()


def only_child() -> int:
    assert len(sandbox._idle) == 1
    return sandbox._idle[0].process.pid


def test_one_child_serves_many_images() -> None:
    assert isinstance(take(ODD["tiff"][0]), Decoded)
    first = only_child()
    for name in ("avif", "jpeg2000", "tiff_lab", "jpeg2000_half_tiles"):
        take(ODD[name][0])
    assert only_child() == first


def test_formats_with_bounded_headers_start_no_child() -> None:
    for name in ("jpeg", "png", "webp_lossy", "gif", "bmp", "ppm"):
        assert isinstance(take(ODD[name][0]), Decoded)
    assert sandbox._idle == []


def test_a_killed_child_changes_no_verdict() -> None:
    assert isinstance(take(ODD["avif"][0]), Decoded)
    child = only_child()
    os.kill(child, signal.SIGKILL)
    assert isinstance(take(ODD["avif"][0]), Decoded)
    assert only_child() != child


def test_a_frame_larger_than_its_container_says_is_refused_and_the_next_image_is_not() -> None:
    refused = take(ODD["avif_lie"][0])
    assert isinstance(refused, Problem)
    assert refused.reason is Reason.CORRUPT
    assert isinstance(take(ODD["avif"][0]), Decoded)


def test_memory_beyond_the_bound_is_refused_by_a_fresh_child() -> None:
    data = images.tiff_bomb(10_000, 8000)
    header = read_header(data, CONFIG)
    assert isinstance(header, Header)
    result = sandbox.decode(data, header, CONFIG, None, memory=0)
    assert isinstance(result, Problem)
    assert result.reason is Reason.TOO_MANY_PIXELS
    assert isinstance(take(data), Decoded)


def test_threads_have_a_child_each() -> None:
    results: list[Decoded | Problem] = []
    threads = [threading.Thread(target=lambda: results.append(take(ODD["jpeg2000"][0]))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [isinstance(result, Decoded) for result in results] == [True] * 3
    assert 1 <= len(sandbox._idle) <= 3


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the process in /proc")
@pytest.mark.parametrize("ending", ["return", "kill"])
def test_a_child_ends_with_its_parent(ending: str) -> None:
    code = (
        "import os, signal; from tests.fixtures import images; from curation.codecs import sandbox;"
        "from curation.decode import DecodeConfig, read_header;"
        "read_header(images.encode(images.reference(), 'TIFF'), DecodeConfig());"
        "print(sandbox._idle[0].process.pid, flush=True);"
        + ("os.kill(os.getpid(), signal.SIGKILL)" if ending == "kill" else "")
    )
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.stderr == ""
    child = Path(f"/proc/{int(run.stdout)}")
    limit = time.monotonic() + 20
    while child.exists() and "Z" not in (child / "stat").read_text().rpartition(")")[2][:3]:
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_a_fork_leaves_the_children_to_its_parent() -> None:
    assert isinstance(take(ODD["tiff"][0]), Decoded)
    child = only_child()
    fork = os.fork()
    if fork == 0:
        os._exit(0 if sandbox._idle == [] and isinstance(take(ODD["tiff"][0]), Decoded) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) == 0
    assert isinstance(take(ODD["tiff"][0]), Decoded)
    assert only_child() == child
