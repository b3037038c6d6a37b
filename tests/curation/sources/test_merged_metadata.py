import json
from collections import Counter

from curation.sources.merged_metadata import MAX_MERGED_BYTES, MergedMetadata
from curation.sources.metadata import MAX_METADATA_BYTES, MAX_SIDECAR_BYTES

BIG = json.dumps({"caption": "a cat", "noai": True, "pad": ["x"] * 100_000}).encode()


def test_what_images_share_is_read_once() -> None:
    files = {"big": BIG, **{f"own{n}": b'{"n": %d}' % n for n in range(40)}}
    reads: Counter[str] = Counter()

    def read(name: str) -> bytes:
        reads[name] += 1
        return files[name]

    merged = MergedMetadata(read, lambda name: len(files[name]), lambda name: name)
    for _ in range(3):
        for number in range(40):
            text = merged.of([{"json": f"own{number}"}, {"meta.json": "big"}])
            assert json.loads(text or "") == {
                "caption": "a cat", "noai": True, "metadata_truncated": True, "n": number
            }  # fmt: skip
    assert reads == {"big": 1} | {f"own{number}": 1 for number in range(40)}
    merged.of([{"json": "own0"}], [{"k": 1}])
    assert reads["own0"] == 2, "with rows of tables it is merged each time"


def test_one_image_takes_a_bounded_number_of_bytes() -> None:
    count = MAX_MERGED_BYTES // MAX_METADATA_BYTES + 3
    asked: list[int] = []

    def read(number: int) -> bytes:
        asked.append(number)
        return BIG

    merged = MergedMetadata(read, lambda _: len(BIG), lambda number: number)
    found = json.loads(merged.of([{f"f{number}.json": number for number in range(count)}]) or "")
    assert len(asked) == count - 3
    assert sum("not readable" in str(value) for value in found.values()) == 1


def test_what_is_too_long_or_unreadable_is_named() -> None:
    merged = MergedMetadata(lambda _: None, lambda size: size, lambda size: size)
    for size in (MAX_SIDECAR_BYTES + 1, 10, None):
        assert "json: not readable" in (merged.of([{"json": size}]) or "")
