"""The plan: every input in one chunk, in source order, once and for all."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.reasons import Reason
from curation.records import LOCATOR_SCHEMA, Locator, Payload, record_id
from curation.sources import FolderConfig, WebDatasetConfig, open_source
from curation.sources.base import Source, Unit
from curation.sources.unused import Unused
from pipeline import plan as plan_module
from pipeline.plan import CHUNKS, Plan, UnitListing, list_unit, load_plan, make_plan, to_locators, unit_name
from pipeline.storage import Storage
from tests.fixtures.tars import picture, write_tar


class Listing(Source):
    """Units with given numbers of rows; counts how often each is listed."""

    def __init__(self, sizes: list[int], bad: frozenset[int] = frozenset()) -> None:
        super().__init__(None)
        self.sizes = sizes
        self.bad = bad
        self.listed: list[int] = []

    def units(self) -> list[Unit]:
        return [Unit(f"u{number}", ((f"u{number}", size),)) for number, size in enumerate(self.sizes)]

    def list_unit(self, unit: Unit) -> Iterator[Locator]:
        number = int(unit.name[1:])
        self.listed.append(number)
        for row in range(self.sizes[number]):
            if number in self.bad and row == 1:
                raise RuntimeError("killed half-way")
            yield Locator(record_id(unit.name, str(row)), unit.name, str(row), row * 10, 10, f'{{"caption":"{row}"}}')

    def read(self, locators: object) -> Iterator[Payload]:
        raise AssertionError("planning reads no picture")

    def ignored(self) -> dict[str, int]:
        return {"txt": 3}

    def ignored_examples(self) -> list[str]:
        return ["notes.txt"]

    def ignored_in_unit(self) -> Unused:
        last = self.listed[-1]
        return Unused(Counter({"npy": last}), [f"u{last}: a.npy"] if last else [])


Order = Callable[[list[tuple[int, Unit]]], list[tuple[int, Unit]]]


def plan_of(storage: Storage, source: Source, chunk_rows: int, order: Order = lambda items: items) -> Plan:
    def run(items: list[tuple[int, Unit]]) -> Iterator[tuple[int, UnitListing]]:
        for ordinal, unit in order(items):
            yield ordinal, list_unit(storage, source, ordinal, unit, chunk_rows)

    return make_plan(storage, source, source.units(), chunk_rows, run)


def members(plan: Plan) -> list[list[str]]:
    return [[f"{row['uri']}/{row['member']}" for row in plan.locators(chunk).to_pylist()] for chunk in range(len(plan))]


def test_chunks_never_span_units_and_have_the_asked_size(tmp_path: Path) -> None:
    plan = plan_of(Storage(tmp_path), Listing([5, 0, 2, 4]), 2)
    assert plan.rows.tolist() == [2, 2, 1, 2, 2, 2]
    assert plan.unit.tolist() == [0, 0, 0, 2, 3, 3]
    assert plan.inputs == 11
    assert plan.first_row.tolist() == [0, 2, 4, 5, 7, 9]
    assert members(plan) == [
        ["u0/0", "u0/1"], ["u0/2", "u0/3"], ["u0/4"], ["u2/0", "u2/1"], ["u3/0", "u3/1"], ["u3/2", "u3/3"],
    ]  # fmt: skip
    assert plan.locators(3).schema.equals(LOCATOR_SCHEMA)
    assert to_locators(plan.locators(2)) == [Locator(record_id("u0", "4"), "u0", "4", 40, 10, '{"caption":"4"}')]
    assert plan.ignored == {"txt": 3, "npy": 1 + 2 + 3}
    assert plan.ignored_examples == ("notes.txt", "u1: a.npy", "u2: a.npy")


def test_the_plan_is_the_same_in_any_order_and_on_a_second_call(tmp_path: Path) -> None:
    sizes = [3, 7, 1, 5]
    first = plan_of(Storage(tmp_path / "a"), Listing(sizes), 3)
    second = plan_of(Storage(tmp_path / "b"), Listing(sizes), 3, lambda items: items[::-1])
    assert members(first) == members(second)
    for name in [CHUNKS, *(unit_name(number) for number in range(4))]:
        assert first.storage.read_bytes(name) == second.storage.read_bytes(name)
    loaded = load_plan(Storage(tmp_path / "a"))
    assert loaded is not None
    assert members(loaded) == members(first)
    assert (loaded.ignored, loaded.ignored_examples) == (first.ignored, first.ignored_examples)
    assert loaded.source_fingerprint == first.source_fingerprint == Source.fingerprint(Listing(sizes).units())


def test_no_plan_before_all_units_are_listed_and_finished_units_are_not_listed_again(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    with pytest.raises(RuntimeError, match="killed half-way"):
        plan_of(storage, Listing([3, 4, 5], frozenset({1})), 2)
    assert load_plan(storage) is None
    assert storage.names("work/plan/units") == ["unit-00000000.parquet"]
    source = Listing([3, 4, 5])
    plan = plan_of(storage, source, 2)
    assert source.listed == [1, 2]
    assert members(plan) == members(plan_of(Storage(tmp_path / "fresh"), Listing([3, 4, 5]), 2))


@pytest.mark.parametrize("sizes", [[], [0], [0, 0, 0]])
def test_an_empty_source_is_an_empty_plan(tmp_path: Path, sizes: list[int]) -> None:
    plan = plan_of(Storage(tmp_path), Listing(sizes), 10)
    assert (len(plan), plan.inputs, plan.groups, plan.first_row.tolist()) == (0, 0, [], [])
    loaded = load_plan(Storage(tmp_path))
    assert loaded is not None
    assert len(loaded) == 0


@given(st.lists(st.integers(1, 60), max_size=30), st.integers(1, 100))
@settings(deadline=None)
def test_groups_cover_all_chunks_once_and_keep_to_the_cap(rows: list[int], cap: int) -> None:
    counts = np.array(rows, dtype=np.int64)
    plan = Plan(Storage("unused"), counts, counts, counts, "x", {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "GROUP_ROWS", cap)
        groups = plan.groups
    assert [chunk for start, stop in groups for chunk in range(start, stop)] == list(range(len(rows)))
    for start, stop in groups:
        assert sum(rows[start:stop]) <= cap or stop == start + 1
    # As few as a single pass allows: a group could not have taken the next chunk.
    assert all(sum(rows[start : stop + 1]) > cap for start, stop in groups[:-1])


@given(st.lists(st.integers(0, 9), max_size=6), st.integers(1, 5))
@settings(deadline=None, max_examples=40)
def test_every_input_is_in_one_chunk(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], chunk_rows: int
) -> None:
    plan = plan_of(Storage(tmp_path_factory.mktemp("plan")), Listing(sizes), chunk_rows)
    listed = [name for chunk in members(plan) for name in chunk]
    assert listed == [f"u{unit}/{row}" for unit, size in enumerate(sizes) for row in range(size)]
    assert all(0 < count <= chunk_rows for count in plan.rows.tolist())
    assert plan.first_row.tolist() == np.cumsum([0, *plan.rows.tolist()])[:-1].tolist()


def test_problems_found_at_listing_are_carried(tmp_path: Path) -> None:
    write_tar(tmp_path / "pool" / "a.tar", [("x.jpg", picture(1)), ("y.jpg", picture(2))])
    (tmp_path / "pool" / "b.tar").write_bytes(b"this is no tar" * 100)
    source = open_source(WebDatasetConfig(path=str(tmp_path / "pool")))
    plan = plan_of(Storage(tmp_path / "run"), source, 100)
    rows = [row for chunk in range(len(plan)) for row in plan.locators(chunk).to_pylist()]
    assert [row["problem"] for row in rows] == [None, None, Reason.BAD_CONTAINER.value]
    assert rows[2]["uri"] == "b.tar"
    assert rows[2]["problem_detail"]


def test_file_names_that_are_no_text_are_listed(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    for name in (b"plain.jpg", b"caf\xe9.jpg", "中.jpg".encode()):
        with open(os.path.join(os.fsencode(tmp_path / "pool"), name), "wb") as file:
            file.write(picture(1))
    source = open_source(FolderConfig(path=str(tmp_path / "pool")))
    plan = plan_of(Storage(tmp_path / "run"), source, 100)
    locators = to_locators(plan.locators(0))
    assert len({locator.id for locator in locators}) == 3
    assert [payload.data for payload in source.read(locators)] == [picture(1)] * 3


def test_rows_with_metadata_that_could_not_be_read_are_counted_with_examples(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    for number in range(5):
        (tmp_path / f"pool/{number}.jpg").write_bytes(picture(number))
        (tmp_path / f"pool/{number}.json").write_text('{"caption": "fine"}' if number % 2 else "{broken")
    source = open_source(FolderConfig(path=str(tmp_path / "pool")))
    storage, (unit,) = Storage(tmp_path / "run"), source.units()
    listing = list_unit(storage, source, 0, unit, 2)
    assert listing.problems.counts == {"metadata_problem": 3}
    assert listing.problems.examples == [f"{number}.jpg: json: not JSON" for number in (0, 2, 4)]
    assert list_unit(storage, source, 0, unit, 2) == listing  # from the file
    plan = make_plan(storage, source, source.units(), 2, lambda items: iter([(0, listing) for _ in items]))
    assert (plan.metadata_problems, plan.problem_examples) == (3, tuple(listing.problems.examples))
