"""A changed source is named by its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.sources.base import Source, Unit
from curation.sources.unused import Unused
from pipeline.plan import CHUNKS, UnitListing, make_plan
from pipeline.rundir import RunConflictError
from pipeline.source_check import LISTING, SOURCE_RECORD, _changes, check_source
from pipeline.storage import Storage


class Listed(Source):
    """A source of which only the listing matters."""

    def units(self) -> list[Unit]:
        return []

    def list_unit(self, unit):  # type: ignore[no-untyped-def]
        return iter(())

    def read(self, locators):  # type: ignore[no-untyped-def]
        return iter(())


SOURCE = Listed(None)
FILES: list[tuple[str, int | None]] = [(f"photo-{number:02d}.jpg", 3000 + number) for number in range(40)]


def units(files: list[tuple[str, int | None]]) -> list[Unit]:
    return [Unit(f"unit {start}", tuple(files[start : start + 7])) for start in range(0, len(files), 7)]


def begin(storage: Storage) -> None:
    check_source(storage, SOURCE, units(FILES))
    make_plan(
        storage, SOURCE, units(FILES), 8, lambda items: ((number, UnitListing([], Unused())) for number, _ in items)
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ([*FILES[:17], ("photo-17.jpg", 3155), *FILES[18:]], "photo-17.jpg was 3,017 bytes, is 3,155 bytes now. A run"),
        ([*FILES[:17], ("photo-17.jpg", None), *FILES[18:]], "photo-17.jpg was 3,017 bytes, is of unknown size now. A"),
        ([*FILES[:17], *FILES[18:]], "begun: photo-17.jpg is gone. A run"),
        ([*FILES, ("photo-99.jpg", 1)], "begun: photo-99.jpg is new. A run"),
        ([("a.jpg", 1), *FILES], "begun: a.jpg is new. A run"),
        ([("a.jpg", 1), *FILES[1:-1], ("photo-39.jpg", 0)],
         "photo-39.jpg was 3,039 bytes, is 0 bytes now; in all 1 gone, 1 new, 1 of another size. A run"),
        ([], "photo-00.jpg is gone; in all 40 gone. A run"),
        (FILES[::-1], "40 files then, 40 now, or other sizes or another order. A run"),
    ],
)  # fmt: skip
def test_what_changed_is_named(tmp_path: Path, changed: list[tuple[str, int | None]], message: str) -> None:
    storage = Storage(tmp_path)
    begin(storage)
    check_source(storage, SOURCE, units(FILES))
    with pytest.raises(RunConflictError) as caught:
        check_source(storage, SOURCE, units(changed))
    assert message in str(caught.value)
    assert "Use another output, or --new" in str(caught.value)


def test_an_earlier_run_without_a_listing_says_the_counts(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    begin(storage)
    storage.remove(LISTING)
    with pytest.raises(RunConflictError, match="40 files then, 39 now"):
        check_source(storage, SOURCE, units(FILES[1:]))


def test_what_was_not_planned_is_listed_anew(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    begin(storage)
    storage.remove(CHUNKS)
    check_source(storage, SOURCE, units(FILES[1:]))
    begun = storage.read_bytes(SOURCE_RECORD)
    assert len(storage.read_table(LISTING)) == 39
    check_source(storage, SOURCE, units(FILES[1:]))
    assert storage.read_bytes(SOURCE_RECORD) == begun


LISTINGS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 2))


@given(LISTINGS, LISTINGS)
def test_counts_are_those_of_sets(before: dict[str, int], now: dict[str, int]) -> None:
    counts = _changes(iter(before.items()), iter(now.items())).counts
    expected = {
        "gone": len(before.keys() - now.keys()),
        "new": len(now.keys() - before.keys()),
        "of another size": sum(before[name] != now[name] for name in before.keys() & now.keys()),
    }
    assert counts == {kind: count for kind, count in expected.items() if count}
