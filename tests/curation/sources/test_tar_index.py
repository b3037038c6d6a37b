import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.reasons import Reason
from curation.sources.tar_index import Damage, Member, scan
from tests.fixtures.tars import picture, tar_bytes

THREE = [(f"{number}.jpg", picture(number, 600)) for number in range(3)]


def scanned(data: bytes) -> tuple[list[Member], Damage | None]:
    found = list(scan(io.BytesIO(data), len(data)))
    members = [item for item in found if isinstance(item, Member)]
    damages = [item for item in found if isinstance(item, Damage)]
    assert found == [*members, *damages]
    assert len(damages) <= 1
    return members, damages[0] if damages else None


@pytest.mark.parametrize("fmt", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_offsets_and_sizes_are_those_of_the_data(fmt: int) -> None:
    long = [("d/" * 40 + "long-" * 8 + "name.jpg", b"long name")] if fmt != tarfile.USTAR_FORMAT else []
    members = [*THREE, *long, ("e.jpg", b"")]
    data = tar_bytes(members, fmt=fmt)
    found, damage = scanned(data)
    assert damage is None
    assert [(item.name, data[item.offset : item.offset + item.size]) for item in found] == members


def test_every_truncation_keeps_the_complete_members_and_says_so() -> None:
    data = tar_bytes(THREE, end=False)
    whole, _ = scanned(data)
    for length in range(1, len(data)):
        members, damage = scanned(data[:length])
        assert members == [item for item in whole if item.offset + item.size <= length]
        if length % 512 == 0 and any(length == -(-(item.offset + item.size) // 512) * 512 for item in whole):
            assert damage is None, "a cut between members cannot be told from a tar without end blocks"
        else:
            expected = Reason.TRUNCATED_CONTAINER if length >= 512 else Reason.BAD_CONTAINER
            assert damage is not None
            assert damage.reason is expected, length


def test_damage_in_the_middle_is_found() -> None:
    data = bytearray(tar_bytes(THREE))
    start = scanned(bytes(data))[0][1].offset - 512
    data[start : start + 100] = b"\x7f" * 100
    members, damage = scanned(bytes(data))
    assert [item.name for item in members] == ["0.jpg"]
    assert damage is not None
    assert damage.reason is Reason.BAD_CONTAINER
    assert f"after byte {start}" in damage.detail


def test_concatenated_tars_are_read_through() -> None:
    members, damage = scanned(tar_bytes(THREE[:1]) + tar_bytes(THREE[1:2]) + tar_bytes(THREE[2:]))
    assert [item.name for item in members] == ["0.jpg", "1.jpg", "2.jpg"]
    assert damage is None


def test_what_follows_the_end_marker_is_ignored() -> None:
    members, damage = scanned(tar_bytes(THREE) + b"trailing junk" * 100)
    assert len(members) == 3
    assert damage is None


def test_negative_size_does_not_run_in_circles() -> None:
    data = bytearray(tar_bytes(THREE, fmt=tarfile.GNU_FORMAT))
    start = scanned(bytes(data))[0][1].offset - 512
    data[start + 124 : start + 136] = b"\xff" * 11 + b"\x00"  # base-256 for a negative number
    data[start + 148 : start + 156] = b" " * 8
    checksum = sum(data[start : start + 512])
    data[start + 148 : start + 156] = f"{checksum:06o}\0 ".encode()
    members, damage = scanned(bytes(data))
    assert [item.name for item in members] == ["0.jpg"]
    assert damage is not None
    assert damage.reason is Reason.BAD_CONTAINER


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_bytes_end_in_an_answer(data: st.DataObject) -> None:
    tar = bytearray(tar_bytes([*THREE[:2], ("a" * 120 + ".jpg", b"x")]))
    for _ in range(data.draw(st.integers(0, 6))):
        tar[data.draw(st.integers(0, len(tar) - 1))] = data.draw(st.integers(0, 255))
    members, _ = scanned(bytes(tar[: data.draw(st.integers(0, len(tar)))]))
    for item in members:
        assert item.problem or 0 <= item.offset <= item.offset + item.size <= len(tar)


@given(st.binary(max_size=3000))
def test_garbage_is_no_tar(data: bytes) -> None:
    members, damage = scanned(data)
    assert members == []
    if data.strip(b"\0"):
        assert damage is not None
