"""The checkpoints of a running run: when a rank writes, when all have, and what it goes on from."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pipeline.storage import Storage
from training.engine import checkpoint as checkpoints
from training.engine.checkpoint import Checkpoint, CheckpointError, Writer
from training.engine.config import TrainConfig
from training.engine.parallel import Parallel
from training.engine.state import RunState
from training.watch.stopwatch import Stopwatch

log = logging.getLogger(__name__)


class Keeper:
    """Saves and restores a run. Every rank calls every method, in the same order.

    Args:
        corpus: fingerprint of the data.
        stopwatch: times what the steps wait for.

    Attributes:
        newest: name of the newest checkpoint, on rank 0.
        passed_over: why newer checkpoints than the one resumed from were left out; "" where none was.
        before_publishing: called on every rank before a checkpoint is published: logs are made safe then.
    """

    def __init__(
        self, config: TrainConfig, storage: Storage, parallel: Parallel, corpus: str, stopwatch: Stopwatch
    ) -> None:
        self._config, self._storage, self._parallel = config, storage, parallel
        self._corpus, self._stopwatch = corpus, stopwatch
        self._writer = Writer(storage, parallel.rank, parallel.world, config.checkpoint.background)
        self.newest = ""
        self.passed_over = ""
        self.before_publishing: Callable[[], None] | None = None

    def resume(self, state: RunState) -> None:
        """Bring the model and `state` to the newest checkpoint that every rank can read; a damaged one is passed over.

        Raises:
            CheckpointError: there are checkpoints and none can be read, or they are of another model or other shards.
        """
        if self._parallel.rank == 0:
            checkpoints.remove_incomplete(self._storage)
        self._parallel.barrier()
        found: tuple[list[Any], dict[str, str]] = [], {}
        if self._parallel.rank == 0:
            cut = {
                name: f"{name} lacks files, or they are cut" for name in checkpoints.damaged_checkpoints(self._storage)
            }
            found = [(item.name, item.record) for item in checkpoints.complete_checkpoints(self._storage)], cut
        records, damaged = self._parallel.gather_objects(found)[0]
        for name, record in reversed(records):
            problem = self._load(Checkpoint(name, record), state)
            problems = [item for item in self._parallel.gather_objects(problem) if item is not None]
            if not problems:
                newer = [what for folder, what in sorted(damaged.items()) if folder > name]
                self.passed_over = "; ".join(newer)
                if newer and self._parallel.rank == 0:
                    log.warning("resumed from %s, because %s", name, self.passed_over)
                return
            damaged[name] = problems[0]
        if damaged:
            reasons = "; ".join(damaged[name] for name in sorted(damaged))
            raise CheckpointError(
                f"no checkpoint of this run can be read: {reasons}. Restore one, or begin again with --new."
            )

    def _load(self, checkpoint: Checkpoint, state: RunState) -> str | None:
        """Load it; returns what is damaged. That it is of another run is an error at once, on every rank."""
        saved = checkpoint.state
        if saved["corpus"] != self._corpus:
            raise CheckpointError(
                f"{checkpoint.name} was trained on other data, and places in their order would mean other samples: "
                "give the same, or begin a new run that starts from its weights"
            )
        pieces = self._parallel.pieces()
        checkpoints.check_names(checkpoint, pieces)
        try:
            checkpoints.load_pieces(self._storage, checkpoint, pieces)
            tensors = checkpoints.load_tensors(self._storage, checkpoint)
            for name in state.tensors:
                state.tensors[name] = tensors[name].to(self._parallel.device)
        except (CheckpointError, OSError, KeyError, ValueError) as error:
            return str(error)
        self._parallel.refresh()
        self._parallel.set_adam_step(int(saved["adam_step"]))
        state.guard.load_state_dict(saved["guard"])
        state.images_replaced = int(saved["images_replaced"])
        state.step = checkpoint.step
        self.newest = checkpoint.name
        return None

    def save(self, state: RunState) -> None:
        """Begin a checkpoint of the state as it is now; one that is pending is finished first."""
        self.finish()
        with self._stopwatch.part("checkpoint"):
            saved = {
                "adam_step": self._parallel.adam_step(),
                "position": state.step * self._config.batch.size,
                "guard": state.guard.state_dict(),
                "images_replaced": state.images_replaced,
                "identity": self._config.result_hash(),
                "corpus": self._corpus,
            }
            self._writer.begin(state.step, self._parallel.pieces(), saved, state.tensors)
        if not self._config.checkpoint.background:
            self.finish()

    @property
    def written(self) -> bool:
        """Whether a checkpoint is pending of which this rank's files are there."""
        return self._writer.pending is not None and self._writer.done

    def finish(self) -> None:
        """Wait for every rank's files of the pending checkpoint, and publish it."""
        if self._writer.pending is None:
            return
        with self._stopwatch.part("checkpoint"):
            self._writer.wait()
            self._parallel.barrier()
            self.publish()

    def publish(self) -> None:
        """All ranks have written: make it a checkpoint, and remove those that no rule keeps."""
        if self._writer.pending is None:
            return
        if self.before_publishing is not None:
            self.before_publishing()
        published = self._writer.publish()
        if published is not None:
            keep = self._config.checkpoint
            checkpoints.prune(self._storage, keep.keep_last, keep.keep_every, keep.keep_best, published.step)
            self.newest = published.name

    def close(self) -> None:
        """Wait for the thread that writes, if there is one; nothing is published."""
        self._writer.join()
