"""One chunk through the scorers: no Ray here, so that every rule about rows can be tested alone.

A row is measured stage by stage until one drops it. What was measured before under the same model is not measured
again: a row is decoded only when a stage that needs its pixels has not seen it yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from curation.decode import DecodeConfig, Header, Problem, decode, read_header
from curation.policy import Policy
from curation.reasons import Reason
from curation.records import Batch, Locator, Payload, Pixels
from curation.scorers.base import BatchRunner
from pipeline.scores import ScoreTable
from pipeline.stages import Stage, StageSet

LEAST_SLICE = 32
"""Rows that go through all stages together: at least this many, and a whole batch of every scorer of pixels."""


@dataclass
class ChunkState:
    """A chunk on its way through the operators.

    Attributes:
        alive: bool [n], rows that no stage has dropped so far.
        pixels: working pictures of rows that a later stage still needs, by row.
        dirty: True when something was measured, so that the part must be written.
    """

    chunk: int
    table: ScoreTable
    locators: list[Locator]
    alive: npt.NDArray[np.bool_]
    pixels: dict[int, Pixels] = field(default_factory=dict)
    dirty: bool = False

    @classmethod
    def start(cls, chunk: int, table: ScoreTable, locators: list[Locator]) -> ChunkState:
        """A chunk before its first stage."""
        alive = np.array([problem is None for problem in table.columns["problem"]], dtype=bool)
        return cls(chunk, table, locators, alive)


class Watch(Protocol):
    """Told which row is being handled, so that one that kills its process can be found (`pipeline/attempts.py`)."""

    @property
    def careful(self) -> bool:
        """True when rows must be handled one by one."""

    def row(self, row: int) -> AbstractContextManager[None]:
        """Entered while a row is handled."""


class NoWatch:
    """Watches nothing."""

    careful = False

    def row(self, row: int) -> AbstractContextManager[None]:
        """Nothing."""
        return nullcontext()


class ReadRows(Protocol):
    """Reads rows of a chunk; see `pipeline.fetch.Reader`."""

    def read(self, chunk: int, rows: Sequence[int], locators: Sequence[Locator]) -> Iterator[Payload]:
        """Payloads in order."""


class ChunkScorer:
    """Runs some neighbouring stages over chunks.

    Args:
        stages: all stages of the run.
        mine: names of the stages that this worker runs.
        policy: drops rows between stages.
        reader: where bytes come from.
        decode_config: the decode policy.
    """

    def __init__(
        self, stages: StageSet, mine: Sequence[str], policy: Policy, reader: ReadRows, decode_config: DecodeConfig
    ) -> None:
        self.stages = stages
        self.mine = [stage for stage in stages if stage.name in mine]
        self.policy = policy
        self.reader = reader
        self.decode_config = decode_config
        sizes = [
            stage.scorer.config.batch_size for stage in self.mine if stage.scorer is not None and stage.needs_pixels
        ]
        self.slice_rows = max([LEAST_SLICE, *sizes])
        self.runners = {stage.name: BatchRunner(stage.scorer) for stage in self.mine if stage.scorer is not None}

    def run(self, state: ChunkState, watch: Watch | None = None) -> None:
        """Measure what is missing, in place.

        Slice by slice through all stages, so that few working pictures are held at once, and those are still in the
        cache when the next stage wants them.
        """
        rows = np.flatnonzero(state.alive).tolist()
        for start in range(0, len(rows), self.slice_rows):
            self._run_slice(state, rows[start : start + self.slice_rows], watch or NoWatch())

    def _run_slice(self, state: ChunkState, part: list[int], watch: Watch) -> None:
        for stage in self.mine:
            if stage.name == "header":
                self._apply_policy(state, stage, part)
                self._measure_bytes(state, part, watch)
            elif stage.scorer is not None:
                self._measure(state, stage, part, watch)
            self._apply_policy(state, stage, part)
            self._free_pixels(state, stage, part)

    def _apply_policy(self, state: ChunkState, stage: Stage, part: list[int]) -> None:
        table = state.table
        rows = [row for row in part if state.alive[row] and table.scored[stage.name][row]]
        columns = {rule.column for rule in self.policy.rules.get(stage.name, ())}
        if not rows or not columns:
            return
        failed = self.policy.failed(stage.name, table.arrays(columns, rows))
        state.alive[np.array(rows)[failed]] = False

    def _free_pixels(self, state: ChunkState, stage: Stage, part: list[int]) -> None:
        later = [item for item in self.stages.after(stage.name) if item.needs_pixels]
        for row in part:
            if row in state.pixels and (
                not state.alive[row] or all(state.table.scored[item.name][row] for item in later)
            ):
                del state.pixels[row]

    def _read(self, state: ChunkState, rows: Sequence[int]) -> Iterator[tuple[int, Payload]]:
        if rows:
            payloads = self.reader.read(state.chunk, rows, [state.locators[row] for row in rows])
            yield from zip(rows, payloads, strict=True)

    def _measure_bytes(self, state: ChunkState, part: list[int], watch: Watch) -> None:
        """Read, header and screen: one pass over the encoded bytes, which are not kept."""
        table = state.table
        scored_header, scored_screen = table.scored["header"], table.scored["screen"]
        rows = [row for row in part if state.alive[row] and not (scored_header[row] and scored_screen[row])]
        state.dirty |= bool(rows)
        # In careful mode each row is read inside its own watch: reading may be what kills the process.
        if watch.careful:
            for row in rows:
                with watch.row(row):
                    for _, payload in self._read(state, [row]):
                        self._measure_row(state, row, payload)
        else:
            for row, payload in self._read(state, rows):
                self._measure_row(state, row, payload)

    def _measure_row(self, state: ChunkState, row: int, payload: Payload) -> None:
        table = state.table
        table.set(row, payload.columns)
        if payload.data is None:
            self._fail(state, row, "screen" if table.scored["header"][row] else "read", _problem(payload))
            return
        header: Header | Problem
        if table.scored["header"][row]:
            header = read_header(payload.data, self.decode_config)
        else:
            columns, header = self.stages.header.measure(payload.data)
            table.set(row, columns)
            table.scored["header"][row] = True
            if not isinstance(header, Problem) and self.policy.row_fails("header", columns, table.types):
                state.alive[row] = False
                return
        if isinstance(header, Problem):
            self._fail(state, row, "header", header)
            return
        columns, pixels = self.stages.screen.measure(payload.data, header)
        table.set(row, columns)
        table.scored["screen"][row] = True
        if isinstance(pixels, Problem):
            self._fail(state, row, "screen", pixels)
        elif self.policy.row_fails("screen", columns, table.types):
            state.alive[row] = False
        elif any(item.needs_pixels and not table.scored[item.name][row] for item in self.stages.after("screen")):
            state.pixels[row] = pixels

    def _measure(self, state: ChunkState, stage: Stage, part: list[int], watch: Watch) -> None:
        table = state.table
        rows = [row for row in part if state.alive[row] and not table.scored[stage.name][row]]
        if not rows:
            return
        state.dirty = True
        if watch.careful:
            for row in rows:
                with watch.row(row):
                    self._score(state, stage, [row])
        else:
            self._score(state, stage, rows)

    def _score(self, state: ChunkState, stage: Stage, rows: list[int]) -> None:
        assert stage.scorer is not None
        table = state.table
        if stage.needs_pixels:
            self._load_pixels(state, stage, [row for row in rows if row not in state.pixels])
            rows = [row for row in rows if state.alive[row]]
            if not rows:
                return
        batch = Batch(
            ids=[table.columns["id"][row] for row in rows],
            pixels=[state.pixels[row] for row in rows] if stage.needs_pixels else [],
            columns={name: [table.columns[name][row] for row in rows] for name in stage.scorer.needs},
        )
        columns, errors = self.runners[stage.name](batch)
        for index, row in enumerate(rows):
            table.scored[stage.name][row] = True
            table.set(row, {name: values[index] for name, values in columns.items()})
            if index in errors:
                self._fail(state, row, stage.name, Problem(Reason.SCORER_FAILED, errors[index]))

    def _load_pixels(self, state: ChunkState, stage: Stage, rows: list[int]) -> None:
        """Decode again rows that were screened in an earlier run and that a stage now needs to see."""
        for row, payload in self._read(state, rows):
            if payload.data is None:
                self._fail(state, row, stage.name, _problem(payload))
                continue
            header = read_header(payload.data, self.decode_config)
            picture = (
                header
                if isinstance(header, Problem)
                else decode(payload.data, header, self.decode_config, self.decode_config.work_side)
            )
            if isinstance(picture, Problem):
                self._fail(state, row, stage.name, picture)
            else:
                state.pixels[row] = picture.pixels

    @staticmethod
    def _fail(state: ChunkState, row: int, stage: str, problem: Problem) -> None:
        state.table.fail(row, stage, problem.reason.value, problem.detail)
        state.alive[row] = False


def _problem(payload: Payload) -> Problem:
    return Problem(payload.reason or Reason.READ_ERROR, payload.detail or "")
