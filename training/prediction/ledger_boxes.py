"""People that curation found, for pose on the shards that it exported: no detector has to run again.

A run directory has them in its ledger, up to `person_columns.MAX_BOXES` of a picture. Shards without one beside them
(copied, or merged of several runs) have what `export.sidecar` put into the JSON of each sample: `person_boxes`, else
the largest person only (`person_box`, the default).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.manifest import MANIFEST_NAME, read_index
from training.prediction.boxes import Boxes

if TYPE_CHECKING:
    from pipeline.storage import Storage

SHARDS = "shards"
"""`pipeline.export.SHARDS`; reading pictures must not need Ray, which the pipeline imports."""


def shards_of(path: str | Path) -> Path:
    """The folder of shards in a run directory; other paths stay as they are."""
    root = Path(path)
    inside = root / SHARDS
    return inside if not (root / MANIFEST_NAME).is_file() and (inside / MANIFEST_NAME).is_file() else root


class LedgerBoxes:
    """A picture of exported shards, by its key -> the people that curation found.

    Attributes:
        origin: for people: where the boxes come from.
        fingerprint: of the boxes.
        detections: true: the boxes have a detector's scores.

    Args:
        folder: a run directory, or a folder of shards.

    Raises:
        ValueError: no such folder, or nothing there says where people are.
    """

    detections = True
    ids: Mapping[str, int | str] = {}

    def __init__(self, folder: str | Path) -> None:
        from pipeline.ledger import LEDGER, ledger_record
        from pipeline.storage import Storage

        self._shards = shards_of(folder)
        if not (self._shards / MANIFEST_NAME).is_file():
            raise ValueError(
                f"{folder} holds no exported shards ({MANIFEST_NAME}): boxes of the ledger are for the output of "
                "`populace curate`; give boxes in a COCO file, or a detector"
            )
        self._index = read_index(self._shards)
        self._places = {key: place for place, key in enumerate(self._index.column("key").to_pylist())}
        run = Storage(str(self._shards.parent))
        record = ledger_record(run) if self._shards.name == SHARDS and run.exists(LEDGER) else None
        self._rows: dict[str, int] | None = None
        if record is not None:
            self._read(run)
            self.origin, self.fingerprint = f"the ledger of {run.root}", str(record["sha256"])
            return
        self.origin = f"the samples' JSON in {self._shards}"
        self.fingerprint = hashlib.sha256((self._shards / MANIFEST_NAME).read_bytes()).hexdigest()
        if not self._has_boxes():
            raise ValueError(
                f"{self._shards} has no boxes of people in its samples' JSON, and no ledger beside it: export with "
                "person_boxes in export.sidecar, or give the run directory, boxes in a COCO file, or a detector"
            )

    def _has_boxes(self) -> bool:
        """Whether the first sample that can be read has boxes, or may have: damaged ones are told one by one later."""
        for place in range(len(self._index)):
            try:
                return bool({"person_boxes", "person_box"} & self._scores(place).keys())
            except ValueError:
                continue
        return True

    def _read(self, run: Storage) -> None:
        """Boxes of the kept rows, as one Arrow column."""
        from pipeline.ledger import ledger_parts
        from pipeline.storage import UNREADABLE

        columns = ["id", "verdict", "person_boxes"]
        tables = []
        for name in ledger_parts(run):
            try:
                table = run.read_table(name, columns)
            except UNREADABLE as error:
                raise ValueError(f"{run.path(name)} is damaged ({error}): run `populace curate` again") from None
            if "person_boxes" not in table.column_names:
                raise ValueError(
                    f"{run.path(name)} has no column person_boxes: curate with a person scorer, or give boxes in a "
                    "COCO file, or a detector"
                )
            tables.append(table.filter(pc.equal(table.column("verdict"), "kept")))
        table = pa.concat_tables(tables).combine_chunks()
        self._boxes = table.column("person_boxes").combine_chunks()
        self._rows = {id_: row for row, id_ in enumerate(table.column("id").to_pylist())}

    def __call__(self, name: str) -> Boxes | None:
        """People of a picture; none of them where curation found nobody, None where it did not look.

        Args:
            name: key of the sample, with or without an extension.

        Raises:
            ValueError: the sample's JSON is damaged.
        """
        place = self._places.get(name.partition(".")[0])
        if place is None:
            return None
        if self._rows is None:
            scores = self._scores(place)
            try:
                return _boxes(scores)
            except (ValueError, TypeError) as error:
                raise ValueError(f"the boxes of sample {name} are damaged: {error}: export the shards again") from None
        row = self._rows.get(self._index.column("id")[place].as_py())
        return None if row is None else _boxes({"person_boxes": self._boxes[row].as_py()})

    def image_id(self, name: str) -> int | str | None:
        """None: pictures of a corpus have no numbers."""
        return None

    def size(self, name: str) -> tuple[int, int] | None:
        """None: boxes were measured on the very pictures that were exported."""
        return None

    def _scores(self, place: int) -> dict[str, Any]:
        """The scores in a sample's JSON."""
        row = self._index.slice(place, 1).to_pylist()[0]
        path = self._shards / f"{row['shard']}.tar"
        try:
            with open(path, "rb") as file:
                file.seek(row["json_offset"])
                found = json.loads(file.read(row["json_size"]))
            return dict(found.get("scores") or {})
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"{path}: the JSON of sample {row['key']} is not readable: {error}") from None


def _boxes(scores: Mapping[str, Any]) -> Boxes | None:
    """Columns of `person_columns` -> boxes; None where they were not measured."""
    flat = scores.get("person_boxes")
    if flat is not None:
        rows = np.asarray(flat, np.float32).reshape(-1, 5)
        return Boxes(rows[:, :4], rows[:, 4])
    if scores.get("person_box") is not None:
        return Boxes(np.asarray([scores["person_box"]], np.float32), np.ones(1, np.float32))
    if scores.get("person_count") == 0:
        return Boxes(np.zeros((0, 4), np.float32), np.zeros(0, np.float32))
    return None
