"""The rules about rows: where a row stops, what is not measured twice, what one failure costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.decode import DecodeConfig
from curation.policy import STAGES, Limit, Policy, PolicyConfig
from curation.reasons import Reason
from curation.records import Payload
from curation.scorers.base import Scorer
from pipeline.chunk import ChunkScorer, ChunkState, NoWatch
from pipeline.scores import ScoreTable, missing_scores, part_name, read_scores
from pipeline.storage import Storage
from tests.fixtures.counting import (
    BlueScorer,
    BrightnessScorer,
    CaptionScorer,
    Counting,
    MeanScorer,
    Rows,
    ScoreReader,
    VectorScorer,
    locator_table,
    locators,
    stage_set,
)
from tests.fixtures.pool import encode, picture

OPEN = PolicyConfig(
    too_small=None, aspect_ratio=None, low_entropy=None, no_person=None, person_too_small=None, blocked=False,
    opted_out=False,
)  # fmt: skip


def limits(**rules: Any) -> PolicyConfig:
    return OPEN.model_copy(update=rules)


def shade(red: int, green: int = 100, blue: int = 100, size: tuple[int, int] = (64, 48)) -> bytes:
    """A lossless picture of one colour."""
    from PIL import Image

    return encode(Image.new("RGB", size, (red, green, blue)), kind="PNG")


class Chunk:
    """One chunk that is measured, written and measured again, as runs over the same directory do."""

    def __init__(
        self, folder: Path, data: Sequence[bytes | Payload], metadata: Sequence[str | None] | None = None
    ) -> None:
        self.storage = Storage(folder)
        self.rows = Rows(data)
        self.locators = locators(len(data), metadata)

    def run(
        self,
        scorers: Sequence[Scorer],
        policy: PolicyConfig = OPEN,
        decode: DecodeConfig | None = None,
        retry: Sequence[str] = (),
        split: Sequence[Sequence[str]] | None = None,
    ) -> ChunkState:
        """Measure with fresh counts; `split` runs the stages in several workers."""
        self.rows.reads.clear()
        for scorer in scorers:
            assert isinstance(scorer, Counting)
            scorer.seen.clear()
        self.stages = stage_set(*scorers, decode=decode)
        self.policy = Policy(policy, self.stages.names)
        table = ScoreTable(locator_table(self.locators), self.stages.columns)
        if self.storage.exists(part_name(0)):
            table.load(self.storage.read_table(part_name(0)), self.stages.fingerprints, retry)
        state = ChunkState.start(0, table, self.locators)
        for mine in split or [self.stages.names]:
            ChunkScorer(self.stages, mine, self.policy, self.rows, decode or DecodeConfig()).run(state)
        self.storage.write_table(part_name(0), table.to_table({"fingerprints": self.stages.fingerprints}))
        return state

    def table(self) -> pa.Table:
        return read_scores(self.storage, 0, self.stages)

    def reasons(self) -> list[str | None]:
        return self.policy.decide(self.table()).reason.tolist()

    def seen(self, scorer: Counting) -> list[int]:
        """Rows that a scorer was asked for."""
        numbers = {row.id: number for number, row in enumerate(self.locators)}
        return [numbers[name] for name in scorer.seen]


def scorers() -> tuple[MeanScorer, VectorScorer, BrightnessScorer, BlueScorer]:
    return MeanScorer(), VectorScorer(), BrightnessScorer(), BlueScorer()


def test_a_row_stops_at_the_first_stage_that_drops_it(tmp_path: Path) -> None:
    data = [
        shade(100), shade(100, size=(20, 48)), shade(5, 5, 5), shade(200), shade(100, 100, 250), b"<html>", b"",
        Payload(None, Reason.READ_ERROR, "gone"),
    ]  # fmt: skip
    chunk = Chunk(tmp_path, data)
    person, vector, bright, blue = scorers()
    policy = limits(
        too_small=Limit(min=32), too_dark=Limit(min=0.1), person_score=Limit(max=0.5), text_overlay=Limit(max=0.5)
    )
    state = chunk.run([person, vector, bright, blue], policy)
    assert chunk.reasons() == [
        None, "too_small", "too_dark", "person_score", "text_overlay", "not_an_image", "empty", "read_error",
    ]  # fmt: skip
    assert state.alive.tolist() == [True] + [False] * 7
    assert chunk.seen(person) == [0, 3, 4]
    assert chunk.seen(vector) == [0, 4]
    assert chunk.seen(bright) == [0, 4]
    assert chunk.seen(blue) == [0, 4]
    assert chunk.rows.reads == list(range(8))
    table = chunk.table()
    assert table.column("scored_screen").to_pylist() == [True, False, True, True, True, False, False, False]
    assert table.column("phash").is_valid().to_pylist() == [True, False, True, True, True, False, False, False]
    # Bytes and hash are known of all that could be read.
    assert table.column("bytes").to_pylist() == [*(len(item) for item in data[:7] if isinstance(item, bytes)), None]
    assert table.column("problem_stage").to_pylist() == [None] * 5 + ["header", "header", "read"]
    assert table.column("problem_detail").to_pylist()[7] == "gone"
    assert not missing_scores(table, chunk.policy)


def test_each_row_is_read_and_decoded_once_for_all_stages(tmp_path: Path) -> None:
    chunk = Chunk(tmp_path, [shade(value) for value in (10, 20, 30)])
    state = chunk.run(scorers())
    assert chunk.rows.reads == [0, 1, 2]
    assert state.dirty
    assert state.pixels == {}


def test_what_is_scored_is_not_read_again(tmp_path: Path) -> None:
    chunk = Chunk(tmp_path, [shade(10), shade(20), b"broken", Payload(None, Reason.MISSING)])
    kinds = scorers()
    chunk.run(kinds, limits(person_score=Limit(min=0.05)))
    before = chunk.table()
    state = chunk.run(kinds, limits(person_score=Limit(min=0.05)))
    assert chunk.rows.reads == []
    assert not state.dirty
    assert not any(scorer.seen for scorer in kinds)
    assert chunk.table().equals(before)
    # Tightening and rewording a policy touches nothing either.
    state = chunk.run(kinds, limits(person_score=Limit(min=0.07), too_small=Limit(min=100)))
    assert (chunk.rows.reads, state.dirty) == ([], False)
    assert chunk.reasons() == ["too_small", "too_small", "not_an_image", "missing"]


def test_a_relaxed_limit_measures_only_the_rows_let_through(tmp_path: Path) -> None:
    chunk = Chunk(tmp_path, [shade(value) for value in (50, 100, 150, 200, 250)])
    person, vector, bright, blue = kinds = scorers()
    chunk.run(kinds, limits(person_score=Limit(max=0.5)))
    assert chunk.seen(vector) == [0, 1]
    chunk.run(kinds, limits(person_score=Limit(max=0.8)))
    assert chunk.rows.reads == [2, 3]
    assert chunk.seen(person) == []
    assert chunk.seen(vector) == chunk.seen(bright) == chunk.seen(blue) == [2, 3]
    assert chunk.reasons() == [None] * 4 + ["person_score"]
    # The same as if it had been so from the start.
    fresh = Chunk(tmp_path / "fresh", chunk.rows.data)
    fresh.run(kinds, limits(person_score=Limit(max=0.8)))
    assert fresh.table().equals(chunk.table())


def test_relaxing_the_header_measures_from_there(tmp_path: Path) -> None:
    chunk = Chunk(tmp_path, [shade(50), shade(60, size=(30, 30)), shade(70, size=(20, 20))])
    person, *_ = kinds = scorers()
    chunk.run(kinds, limits(too_small=Limit(min=32)))
    chunk.run(kinds, limits(too_small=Limit(min=25)))
    assert chunk.rows.reads == [1]
    assert chunk.seen(person) == [1]
    assert chunk.table().column("scored_screen").to_pylist() == [True, True, False]
    assert not missing_scores(chunk.table(), chunk.policy)


def test_scorers_of_columns_cause_no_read(tmp_path: Path) -> None:
    chunk = Chunk(tmp_path, [shade(50), shade(250)])
    chunk.run([MeanScorer()])
    bright = BrightnessScorer()
    chunk.run([MeanScorer(), bright])
    assert chunk.rows.reads == []
    assert chunk.seen(bright) == [0, 1]
    # "read" and "realism" are dependants of person, which is unchanged.
    chunk.run([MeanScorer(), bright, ScoreReader()], limits(low_aesthetic=Limit(min=4)))
    assert chunk.rows.reads == []


def test_a_changed_model_measures_that_stage_and_its_dependants_again(tmp_path: Path) -> None:
    chunk = Chunk(tmp_path, [shade(50), shade(100), shade(5, 5, 5)])
    policy = limits(too_dark=Limit(min=0.1))
    chunk.run([MeanScorer(), VectorScorer(), BrightnessScorer(), ScoreReader(), BlueScorer()], policy)
    before = chunk.table()
    person, vector, bright, reader, blue = kinds = (
        MeanScorer(model="two"), VectorScorer(), BrightnessScorer(), ScoreReader(), BlueScorer(),
    )  # fmt: skip
    chunk.run(kinds, policy)
    # Decoded again, and only the rows that are alive.
    assert chunk.rows.reads == [0, 1]
    assert chunk.seen(person) == chunk.seen(reader) == [0, 1]
    assert chunk.seen(vector) == chunk.seen(bright) == chunk.seen(blue) == []
    assert chunk.table().equals(before)


def test_a_changed_decode_policy_measures_all_but_the_listing_again(tmp_path: Path) -> None:
    chunk = Chunk(tmp_path, [shade(50), b"broken"], ['{"caption":"a"}', '{"caption":"noai"}'])
    caption = CaptionScorer()
    chunk.run([MeanScorer(), caption])
    person = MeanScorer()
    chunk.run([person, caption], decode=DecodeConfig(work_side=32))
    assert chunk.rows.reads == [0, 1]
    assert chunk.seen(person) == [0]
    assert chunk.seen(caption) == []
    # What was refused is asked again under the new policy, and refused again.
    assert chunk.reasons() == [None, "not_an_image"]


def test_a_new_scorer_is_measured_on_rows_that_failed_later_as_well(tmp_path: Path) -> None:
    ids = [row.id for row in locators(3)]
    chunk = Chunk(tmp_path, [shade(50), shade(100), shade(150)])
    chunk.run([BlueScorer(bad=(ids[1],))])
    assert chunk.reasons() == [None, "scorer_failed", None]
    kinds = [MeanScorer(), BlueScorer(bad=(ids[1],))]
    chunk.run(kinds)
    fresh = Chunk(tmp_path / "fresh", chunk.rows.data)
    fresh.run(kinds)
    assert chunk.table().equals(fresh.table())
    assert chunk.table().column("person_count").to_pylist() == [1, 1, 1]


def test_a_scorer_that_raises_costs_its_row_only(tmp_path: Path) -> None:
    ids = [row.id for row in locators(5)]
    chunk = Chunk(tmp_path, [shade(value) for value in range(10, 60, 10)])
    person, blue = MeanScorer(bad=(ids[1], ids[3]), batch_size=4), BlueScorer()
    state = chunk.run([person, blue])
    assert chunk.reasons() == [None, "scorer_failed", None, "scorer_failed", None]
    assert chunk.seen(blue) == [0, 2, 4]
    table = chunk.table()
    assert table.column("problem_stage").to_pylist() == [None, "person", None, "person", None]
    assert "cannot score" in table.column("problem_detail").to_pylist()[1]
    assert table.column("person_score").is_null().to_pylist() == [False, True, False, True, False]
    assert state.alive.tolist() == [True, False, True, False, True]
    # Not tried again by itself, and tried again when asked to.
    again = MeanScorer(bad=(ids[1], ids[3]))
    chunk.run([again, blue])
    assert again.seen == []
    mended = MeanScorer(bad=(ids[1], ids[3]))
    mended.fail = lambda ids: None  # type: ignore[method-assign]
    chunk.run([mended, blue], retry=["scorer_failed"])
    assert chunk.seen(mended) == chunk.seen(blue) == [1, 3]
    assert chunk.rows.reads == [1, 3]
    assert chunk.reasons() == [None] * 5


def test_a_row_that_cannot_be_read_later_on_gets_that_reason(tmp_path: Path) -> None:
    chunk = Chunk(tmp_path, [shade(50), shade(60), shade(70), shade(80)])
    chunk.run([MeanScorer()])
    chunk.rows.data[1] = Payload(None, Reason.MISSING, "deleted")
    chunk.rows.data[2] = b"another file now"
    vector = VectorScorer()
    chunk.run([MeanScorer(), vector])
    assert chunk.reasons() == [None, "missing", "not_an_image", None]
    assert chunk.seen(vector) == [0, 3]
    table = chunk.table()
    assert table.column("problem_stage").to_pylist() == [None, "embedding", "embedding", None]
    assert table.column("problem_detail").to_pylist()[1] == "deleted"
    assert table.column("person_count").to_pylist() == [1] * 4
    assert not missing_scores(table, chunk.policy)
    state = chunk.run([MeanScorer(), vector])
    assert (chunk.rows.reads, state.dirty) == ([], False)


def test_a_picture_that_cannot_be_decoded_is_a_problem_of_the_screen(tmp_path: Path) -> None:
    whole = encode(picture(1))
    chunk = Chunk(tmp_path, [whole, whole[: len(whole) // 2]])
    chunk.run([MeanScorer()])
    assert chunk.reasons() == [None, "truncated"]
    assert chunk.table().column("problem_stage").to_pylist() == [None, "screen"]
    assert chunk.table().column("width").to_pylist() == [160, 160]


def test_problems_of_the_listing_are_never_read(tmp_path: Path) -> None:
    chunk = Chunk(tmp_path, [shade(50), shade(60)])
    stages = stage_set(MeanScorer())
    table = ScoreTable(locator_table(chunk.locators), stages.columns)
    table.fail(1, "read", Reason.BAD_CONTAINER, "no tar")
    state = ChunkState.start(0, table, chunk.locators)
    ChunkScorer(stages, stages.names, Policy(OPEN, stages.names), chunk.rows, DecodeConfig()).run(state)
    assert chunk.rows.reads == [0]
    assert table.columns["problem"] == [None, "bad_container"]


def test_what_reading_learned_is_kept_for_every_row(tmp_path: Path) -> None:
    columns = {"http_status": 200, "final_url": "u", "read_attempts": 2, "read_error": None}
    chunk = Chunk(
        tmp_path,
        [Payload(shade(50), columns=columns), Payload(None, Reason.HTTP_ERROR, "404", {**columns, "http_status": 404})],
    )
    chunk.run([])
    assert chunk.table().column("http_status").to_pylist() == [200, 404]
    assert chunk.table().column("read_attempts").to_pylist() == [2, 2]


# Pixels


def test_pixels_live_from_the_screen_to_the_last_stage_that_needs_them(tmp_path: Path) -> None:
    chunk = Chunk(tmp_path, [shade(50), shade(200)])
    held: list[int] = []

    class Watching(BlueScorer):
        def measure(self, batch: Any) -> Any:
            held.append(len(state.pixels))
            return super().measure(batch)

    person, blue = MeanScorer(), Watching()
    stages = stage_set(person, blue)
    policy = Policy(limits(person_score=Limit(max=0.5)), stages.names)
    state = ChunkState.start(0, ScoreTable(locator_table(chunk.locators), stages.columns), chunk.locators)
    first = ChunkScorer(stages, ["read", "header", "screen"], policy, chunk.rows, DecodeConfig())
    first.run(state)
    assert sorted(state.pixels) == [0, 1]
    ChunkScorer(stages, ["person"], policy, chunk.rows, DecodeConfig()).run(state)
    assert sorted(state.pixels) == [0]  # the other one was dropped
    ChunkScorer(stages, ["text_overlay"], policy, chunk.rows, DecodeConfig()).run(state)
    assert held == [1]
    assert state.pixels == {}
    assert chunk.rows.reads == [0, 1]


@pytest.mark.parametrize("kinds", [[], [BrightnessScorer()]])
def test_pixels_that_no_stage_needs_are_never_held(tmp_path: Path, kinds: list[Scorer]) -> None:
    chunk = Chunk(tmp_path, [shade(value) for value in range(8)])
    most = 0

    class Counted(dict[int, Any]):
        def __setitem__(self, key: int, value: Any) -> None:
            nonlocal most
            super().__setitem__(key, value)
            most = max(most, len(self))

    stages = stage_set(*kinds)
    state = ChunkState.start(0, ScoreTable(locator_table(chunk.locators), stages.columns), chunk.locators)
    state.pixels = Counted()
    ChunkScorer(stages, stages.names, Policy(OPEN, stages.names), chunk.rows, DecodeConfig()).run(state)
    assert most == 0
    assert state.table.scored["screen"] == [True] * 8


def test_several_workers_give_the_same_as_one(tmp_path: Path) -> None:
    data = [*(shade(value) for value in (50, 130, 200)), b"broken", encode(picture(1)), encode(picture(2))[:900]]
    kinds = scorers()
    policy = limits(person_score=Limit(max=0.6))
    one = Chunk(tmp_path / "one", data)
    one.run(kinds, policy)
    two = Chunk(tmp_path / "two", data)
    two.run(kinds, policy, split=[["read", "header", "screen"], ["person", "embedding", "aesthetic"], ["text_overlay"]])
    assert two.table().equals(one.table())
    assert two.rows.reads == one.rows.reads


# Careful mode


class Recording(NoWatch):
    careful = True

    def __init__(self) -> None:
        self.entered: list[int] = []

    def row(self, row: int) -> Any:
        self.entered.append(row)
        return super().row(row)


def test_careful_mode_goes_row_by_row_with_the_same_result(tmp_path: Path) -> None:
    data = [*(shade(value) for value in (50, 130, 200)), b"broken", Payload(None, Reason.MISSING)]
    kinds = scorers()
    policy = limits(person_score=Limit(max=0.6))
    chunk = Chunk(tmp_path, data)
    chunk.run(kinds, policy)
    stages = stage_set(*kinds)
    table = ScoreTable(locator_table(chunk.locators), stages.columns)
    rows, watch = Rows(data), Recording()
    state = ChunkState.start(0, table, chunk.locators)
    ChunkScorer(stages, stages.names, Policy(policy, stages.names), rows, DecodeConfig()).run(state, watch)
    assert table.to_table({"fingerprints": stages.fingerprints}).equals(chunk.storage.read_table(part_name(0)))
    assert rows.reads == [0, 1, 2, 3, 4]
    # Bytes of all rows, then three rows at person, two at each later stage.
    assert watch.entered == [0, 1, 2, 3, 4, 0, 1, 2, *[0, 1] * 3]


# In flight and in the ledger


# Numbers between the scores, and scores themselves, which are rounded to float32 on their way to the ledger.
NUMBER = st.floats(0, 1.2) | st.sampled_from([value / 255 for value in (0, 51, 77, 100, 128, 204, 255)])
LOWEST, HIGHEST = st.builds(lambda low: Limit(min=low), NUMBER), st.builds(lambda high: Limit(max=high), NUMBER)
BOTH = st.builds(lambda low, high: Limit(min=min(low, high), max=max(low, high)), NUMBER, NUMBER)
LIMIT = st.none() | LOWEST | HIGHEST | BOTH
PICTURES = [
    *(encode(picture(seed, 96, 64)) for seed in range(3)), shade(0, 0, 0), shade(255, 255, 255), shade(128, 128, 128),
    shade(51, 204, 77), encode(picture(5, 48, 80), 30), b"nonsense", encode(picture(6))[:700],
]  # fmt: skip


@given(
    st.fixed_dictionaries(
        {
            "too_small": st.none() | st.builds(Limit, min=st.sampled_from([48, 64, 65])),
            "aspect_ratio": st.none() | st.builds(Limit, max=st.sampled_from([1.3, 4 / 3, 1.5, 5 / 3])),
            "too_dark": LIMIT, "too_bright": LIMIT,
            "low_entropy": st.none() | NUMBER.map(lambda value: Limit(min=6 * value)),
            "blurred": st.none() | NUMBER.map(lambda value: Limit(min=100 * value)),
            "person_score": LIMIT,
            "low_aesthetic": st.none() | NUMBER.map(lambda value: Limit(min=8 * value)),
            "text_overlay": LIMIT,
        }
    )
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_what_is_dropped_in_flight_is_what_the_ledger_drops(
    tmp_path_factory: pytest.TempPathFactory, rules: dict[str, Limit | None]
) -> None:
    chunk = Chunk(tmp_path_factory.mktemp("chunk"), PICTURES)
    state = chunk.run(scorers(), OPEN.model_copy(update=rules))
    table = chunk.table()
    verdicts = chunk.policy.decide(table)
    assert verdicts.passed.tolist() == state.alive.tolist()
    assert not missing_scores(table, chunk.policy)
    # Measured up to the stage that dropped the row, and not beyond.
    for stage in chunk.stages.names[1:]:
        reached = verdicts.stage >= STAGES.index(stage)
        broken_before = np.array([at is not None and at != stage for at in table.column("problem_stage").to_pylist()])
        scored = np.array(table.column(f"scored_{stage}").to_pylist())
        assert (scored <= reached).all()
        assert (scored | broken_before | ~reached | (verdicts.stage == STAGES.index(stage))).all()


@given(st.lists(st.tuples(LIMIT, LIMIT), min_size=2, max_size=4))
@settings(max_examples=25, deadline=None)
def test_any_history_of_policies_ends_where_the_last_one_would_have(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[Limit | None, Limit | None]]
) -> None:
    folder = tmp_path_factory.mktemp("chunk")
    kinds = scorers()
    chunk = Chunk(folder / "many", PICTURES)
    for too_dark, person_score in history:
        chunk.run(kinds, limits(too_dark=too_dark, person_score=person_score))
    fresh = Chunk(folder / "one", PICTURES)
    fresh.run(kinds, limits(too_dark=history[-1][0], person_score=history[-1][1]))
    assert chunk.reasons() == fresh.reasons()
    kept = pa.array(fresh.policy.decide(fresh.table()).passed)
    assert chunk.table().filter(kept).equals(fresh.table().filter(kept))
