import io
import random
import tarfile
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import curation.sources.tar_index as tar_index
from curation.reasons import Reason
from curation.sources.names import escape_name
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


def block(name: str, kind: bytes, size: int) -> bytes:
    """One header block, whatever the size it claims."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def extended(kind: bytes, content: bytes) -> bytes:
    return block("././@Long", kind, len(content)) + content + bytes(-len(content) % 512)


def with_checksum(header: bytearray) -> bytes:
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return bytes(header)


names = st.text(st.characters(codec="utf-8", exclude_characters="\0/\n"), min_size=1, max_size=60)
paths = st.lists(names, min_size=1, max_size=6).map("/".join)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_tar_that_tarfile_writes_is_read_as_tarfile_reads_it(data: st.DataObject) -> None:
    fmt = data.draw(st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
    shared = {"comment": "x" * data.draw(st.integers(0, 2000))} if data.draw(st.booleans()) else None
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w", format=fmt, pax_headers=shared, encoding="utf-8", errors="surrogateescape"
    ) as tar:
        for _ in range(data.draw(st.integers(1, 6))):
            info = tarfile.TarInfo(data.draw(paths))
            info.type = data.draw(
                st.sampled_from([*[tarfile.REGTYPE] * 6, tarfile.DIRTYPE, tarfile.SYMTYPE, b"7", b"3"])
            )
            info.linkname = data.draw(paths) if info.type == tarfile.SYMTYPE else ""
            info.size = data.draw(st.sampled_from([0, 1, 511, 512, 513, 3000])) if info.isreg() else 0
            info.mtime = data.draw(st.sampled_from([0, 1.5, 2**40]))
            try:
                tar.addfile(info, io.BytesIO(bytes(info.size)))
            except ValueError:  # the name or time is too long for this format
                tar.addfile(tarfile.TarInfo("short"))
    buffer.seek(0)
    with tarfile.open(fileobj=buffer, encoding="utf-8", errors="surrogateescape") as tar:
        expected = [
            (escape_name(item.name), item.offset_data, item.size) if item.isreg() else (escape_name(item.name), 0, 0)
            for item in tar
            if not item.isdir()
        ]
    members, damage = scanned(buffer.getvalue())
    assert damage is None
    assert [(item.name, item.offset, item.size) for item in members] == expected


@pytest.mark.parametrize("kind", [b"L", b"x", b"g"])
def test_a_chain_of_extended_headers_is_damage_and_the_rows_before_it_stay(kind: bytes) -> None:
    chained = extended(kind, b"10 path=a\n") * 1200
    members, damage = scanned(tar_bytes(THREE, end=False) + chained + tar_bytes(THREE))
    assert [item.name for item in members] == ["0.jpg", "1.jpg", "2.jpg"]
    assert damage is not None
    assert damage.reason is Reason.BAD_CONTAINER
    assert "more than 16 extended headers" in damage.detail


def test_sixteen_extended_headers_are_read() -> None:
    members, damage = scanned(extended(b"x", b"10 path=a\n") * 15 + extended(b"L", b"b.jpg\0") + tar_bytes(THREE[:1]))
    assert ([item.name for item in members], damage) == (["a"], None)


@pytest.mark.parametrize("content", [b"1" * 400_000, b"1 " * 200_000, b"11 comment=\n" * 80_000, b"=" * 400_000])
def test_pax_headers_take_linear_time(content: bytes) -> None:
    started = time.perf_counter()
    members, damage = scanned(extended(b"x", content) + tar_bytes(THREE))
    assert time.perf_counter() - started < 2
    assert ([item.name for item in members], damage) == (["0.jpg", "1.jpg", "2.jpg"], None)


@pytest.mark.parametrize("kind", [b"x", b"g", b"X", b"L", b"K"])
def test_a_huge_extended_header_is_not_read(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "a.tar"
    with open(path, "wb") as file:
        file.write(tar_bytes(THREE, end=False) + block("././@Long", kind, 700 << 20))
        file.truncate(800 << 20)
    tracemalloc.start()
    with open(path, "rb") as file:
        *members, damage = scan(file, 800 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(members) == 3
    assert isinstance(damage, Damage)
    assert damage.reason is Reason.BAD_CONTAINER
    assert f"an extended header of {700 << 20} bytes" in damage.detail
    assert peak < 8 << 20


def test_a_name_that_no_file_system_takes_is_damage() -> None:
    members, damage = scanned(tar_bytes(THREE[:1], end=False) + extended(b"L", b"n" * 20_000) + tar_bytes(THREE[1:]))
    assert [item.name for item in members] == ["0.jpg"]
    assert damage is not None
    assert "a name of more than 16384 bytes" in damage.detail


@pytest.mark.parametrize("zeros", [512, 1024, (1 << 20) - 512, 1 << 20, 2 << 20, (5 << 20) + 512])
def test_zeros_between_appended_tars_hide_no_member(zeros: int) -> None:
    data = tar_bytes(THREE[:2], end=False) + bytes(zeros) + tar_bytes(THREE[2:])
    members, damage = scanned(data)
    assert [item.name for item in members] == ["0.jpg", "1.jpg", "2.jpg"]
    assert data[members[2].offset : members[2].offset + members[2].size] == THREE[2][1]
    assert damage is None


def test_a_hole_of_100_gigabytes_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    first, second = tar_bytes(THREE[:2]), tar_bytes(THREE[2:])
    start = 100 << 30
    try:
        with open(path, "wb") as file:
            file.write(first)
            file.seek(start)
            file.write(second)
    except OSError:
        pytest.skip("the file system takes no file of 100 GiB")
    started = time.perf_counter()
    with open(path, "rb") as file:
        found = list(scan(file, start + len(second)))
        assert [item.name for item in found if isinstance(item, Member)] == ["0.jpg", "1.jpg", "2.jpg"]
        last = found[-1]
        assert isinstance(last, Member)
        file.seek(last.offset)
        assert file.read(last.size) == THREE[2][1]
    assert time.perf_counter() - started < 5


def test_zeros_have_a_limit_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_index, "MAX_ZERO_BYTES", 3 << 20)
    members, damage = scanned(tar_bytes(THREE[:2]) + bytes(4 << 20) + tar_bytes(THREE[2:]))
    assert [item.name for item in members] == ["0.jpg", "1.jpg"]
    assert damage is not None
    assert "bytes of zeros between members" in damage.detail


def test_a_damaged_header_behind_an_end_marker_is_told() -> None:
    second = bytearray(tar_bytes(THREE[2:]))
    second[0] ^= 1
    members, damage = scanned(tar_bytes(THREE[:2]) + bytes(second))
    assert [item.name for item in members] == ["0.jpg", "1.jpg"]
    assert damage is not None
    assert damage.reason is Reason.BAD_CONTAINER


def test_sparse_members_are_named_and_passed_over() -> None:
    def gnu(continued: int) -> bytes:
        header = bytearray(block("s.jpg", b"S", 1000))
        header[482] = continued > 0
        maps = [bytes(504) + bytes([index + 1 < continued]) + bytes(7) for index in range(continued)]
        return with_checksum(header) + b"".join(maps) + bytes([65]) * 1000 + bytes(24)

    pax = extended(b"x", b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n25 GNU.sparse.name=p.jpg\n")
    pax += block("GNUSparseFile.0/p.jpg", b"0", 1024) + b"1\n" + bytes(1022)
    members, damage = scanned(gnu(0) + gnu(1) + gnu(3) + pax + tar_bytes(THREE[:1]))
    assert damage is None
    assert [(item.name, item.reason) for item in members] == [
        *[("s.jpg", Reason.BAD_CONTAINER)] * 3,
        ("p.jpg", Reason.BAD_CONTAINER),
        ("0.jpg", None),
    ]
    _, damage = scanned(gnu(2100) + tar_bytes(THREE[:1]))
    assert damage is not None
    assert "sparse map" in damage.detail


def test_sizes_in_base_256_and_signed_checksums() -> None:
    header = bytearray(block("\u00e9.jpg", b"0", 0))
    header[124:136] = b"\x80" + (700).to_bytes(11, "big")
    unsigned = with_checksum(header)
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(byte - 256 * (byte > 127) for byte in header):06o}\0 ".encode()
    for variant in (unsigned, bytes(header)):
        members, damage = scanned(variant + bytes([7]) * 700 + bytes(-700 % 512))
        assert [(item.name, item.offset, item.size) for item in members] == [("\u00e9.jpg", 512, 700)]
        assert damage is None


def test_only_global_headers_are_an_empty_tar() -> None:
    assert scanned(extended(b"g", b"13 comment=a\n") + bytes(1024)) == ([], None)


def test_what_is_no_tar_is_named_and_not_quoted() -> None:
    for content, kind in ((b"root:x:0:0:root:/root:/bin/bash\n" * 40, "text"), (b"<html>" * 100, "an HTML page")):
        _, damage = scanned(content)
        assert damage is not None
        assert kind in damage.detail
        assert "root" not in damage.detail


def test_mutated_tars_end_in_an_answer_at_once() -> None:
    rng = random.Random(11)
    long = ("n" * 150 + ".jpg", picture(9, 900))
    seeds = [tar_bytes([*THREE, *extra], fmt=fmt) for fmt, extra in ((0, []), (1, [long]), (2, [long]))]
    for _ in range(400):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 4)):
            start = rng.randrange(len(data) // 512) * 512
            if rng.random() < 0.6 and data[start + 257 : start + 262] == b"ustar":
                header = bytearray(data[start : start + 512])
                header[rng.choice([0, 99, 124, 130, 135, 156, 156, 156, 157, 345, 482])] = rng.choice(
                    [0, 32, 48, 53, 55, 128, 255, *b"LKxXgS"]
                )
                data[start : start + 512] = with_checksum(header)
            elif rng.random() < 0.5:
                data[start:start] = bytes(512 * rng.randint(1, 4))
            else:
                data[rng.randrange(len(data))] = rng.randrange(256)
        cut = bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
        members, _ = scanned(cut)
        for item in members:
            assert item.problem or 0 <= item.offset <= item.offset + item.size <= len(cut)
