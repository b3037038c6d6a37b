"""Steps of selection: many tasks, each of which publishes its result once and is never run again.

A task's record is written after everything else that it writes, so a record says that its files are whole. A step that
is complete has one record for all its tasks, and may then drop the files of the step before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pipeline.progress import RunProgress
from pipeline.storage import Storage
from pipeline.tasks import run_tasks

Item = TypeVar("Item")
Summary = dict[str, Any]


@dataclass(frozen=True)
class Steps:
    """Runs steps in the folder of one selection.

    Args:
        storage: that folder.
        progress: where progress is shown.
    """

    storage: Storage
    progress: RunProgress

    def run(
        self,
        name: str,
        label: str,
        task: Callable[[Item], Summary],
        items: Sequence[Item],
        num_cpus: float = 1.0,
        threads: int = 1,
    ) -> list[Summary]:
        """Call `task` on every item that has no record yet.

        Args:
            name: folder of the step.
            label: what the progress line says.
            task: picklable; returns a small JSON object.
            items: in a fixed order; item i keeps its number i in every run of this selection.

        Returns:
            What the tasks returned, in the order of the items.
        """
        complete = self.storage.read_json(f"{name}/{COMPLETE}")
        if complete is not None:
            records: list[Summary] = complete["tasks"]
            return records
        before = set(self.storage.names(f"{name}/{RECORDS}"))
        pending = [number for number in range(len(items)) if f"{task_name(number)}.json" not in before]
        recorded = _Recorded(self.storage, name, task)
        with self.progress.stage(label, len(items), "tasks", len(items) - len(pending), minor=True) as progress:
            work = [(number, items[number]) for number in pending]
            found: dict[int, Summary] = {}
            for position, record in run_tasks(recorded, work, num_cpus=num_cpus, threads=threads):
                found[pending[position]] = record
                progress.advance(1)
        records = [found[number] if number in found else self._record(name, number) for number in range(len(items))]
        self.storage.write_bytes(f"{name}/{COMPLETE}", json.dumps({"tasks": records}, sort_keys=True).encode())
        self.storage.remove(f"{name}/{RECORDS}")
        return records

    def _record(self, step: str, number: int) -> Summary:
        record: Summary = json.loads(self.storage.read_bytes(f"{step}/{RECORDS}/{task_name(number)}.json"))
        return record

    def drop(self, *names: str) -> None:
        """Remove the files of finished steps that nothing reads any more; their records stay."""
        for name in names:
            for entry in self.storage.names(name):
                if entry != COMPLETE:
                    self.storage.remove(f"{name}/{entry}")


COMPLETE = "complete.json"
RECORDS = "records"


def task_name(number: int) -> str:
    """The name that the files of a task carry."""
    return f"{number:06d}"


@dataclass(frozen=True)
class _Recorded:
    storage: Storage
    step: str
    task: Callable[[Any], Summary]

    def __call__(self, item: tuple[int, Any]) -> Summary:
        number, value = item
        record = json.dumps(self.task(value), sort_keys=True)
        self.storage.write_bytes(f"{self.step}/{RECORDS}/{task_name(number)}.json", record.encode())
        # As it will be read back: keys as text, no tuples.
        summary: Summary = json.loads(record)
        return summary
