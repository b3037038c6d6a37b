"""What is written changes only with the version of its format: a finished corpus is written anew by that alone.

A failure here means that the same inputs now give other bytes. Was that meant, raise the constant beside the writer
(`FORMAT`, `TAR_FORMAT`, ...), so that the corpora of users are written anew, and put the new values into `GOLDEN`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from curation.dataset_card import CardFacts, ModelFact, dataset_card
from curation.manifest import ManifestShard, build_manifest, manifest_bytes
from curation.parquet_files import open_parquet
from curation.records import Locator, Payload
from curation.sidecar import merged_types
from pipeline.export import CARD_FORMATS, SHARD_FORMATS
from pipeline.ledger import LEDGER_FORMATS
from pipeline.shard_task import STAGING, KeptTypes, ShardPlan, ShardTask
from pipeline.storage import Storage

GOLDEN: dict[str, tuple[int, str]] = {
    "tar": (1, "c3aea44c6233ba4f08a1422eec04270de86c4759d6b108037a946a3034b0b506"),
    "sidecar": (1, "f67e3777a8fcf252e5b3f3d16da0b525ffb56aa8f0e848fbb04d51307d76b66b"),
    "index": (1, "3475a6509b5d9472238a4aa99182faa2087da2bb5059cb7ac128af726144f47c"),
    "features": (1, "cc482d4b275fee58c50b40b42ff031d0b58a2f17038c723dfc35f6ab11f0e7d4"),
    "manifest": (2, "dd982386ebdbc1781c483169b887242bf2e5037085ddc3a9e936872878a95d0a"),
    "card": (2, "90cc5a7489fa8be80118d54aa7d1a7db8627750f175ea4abdafa00c17df4e7c9"),
    "parquet": (2, "151ff5ff70171002305bb120dad786935aaadd6178f0da1957511ff2a9f13e7c"),
}
"""Format -> its version, and the SHA-256 of what it gives for the corpus below."""

IMAGES = [b"\xff\xd8first", b"\xff\xd8second\xff\xd9" * 50]


class Images:
    """Reads the two images."""

    def read(self, chunk: int, rows: Sequence[int], locators: Sequence[Locator]) -> Iterator[Payload]:
        return iter([Payload(IMAGES[row]) for row in rows])


def ledger() -> pa.Table:
    digests = [hashlib.sha256(data).hexdigest() for data in IMAGES]
    return pa.table(
        {
            "id": ["a0", "b1"],
            "verdict": ["kept", "kept"],
            "uri": ["one.jpg", "zwei ü.jpg"],
            "member": pa.array([None, "m"], pa.string()),
            "offset": pa.array([None, 5], pa.int64()),
            "size": pa.array([7, 500], pa.int64()),
            "metadata": ['{"caption": "é", "n": 1.5}', None],
            "chunk": pa.array([0, 0], pa.int64()),
            "chunk_row": pa.array([0, 1], pa.int64()),
            "sha256": digests,
            "format": ["JPEG", "JPEG"],
            "width": pa.array([640, None], pa.int32()),
            "aesthetic": pa.array([0.25, 5.125], pa.float32()),
            "phash": pa.array([1, 2**63], pa.uint64()),
            "embedding": pa.array([np.ones(4, np.float16), None], pa.list_(pa.float16())),
        }
    )


FACTS = CardFacts(
    title="Golden", source_kind="folder", source_fingerprint="f", config_hash="c", revision="r", inputs=5, kept=2,
    dropped={"empty": 2, "no_person": 1}, shards=1, bytes=2048, image_bytes=507,
    thresholds={"policy": {"too_small": {"min": 64, "max": None}}}, models=[ModelFact("person", "m.onnx", "ab", 12)],
    licences={"mit": 1, None: 1}, extensions={"jpg": 2}, short_sides={"below 256": 2}, limits=["One."], contact="me",
)  # fmt: skip


def parquet_text(data: bytes) -> bytes:
    """A Parquet file without what differs between versions of pyarrow: schema, layout and values."""
    file = open_parquet(pa.BufferReader(data))
    groups = []
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        columns = [group.column(at) for at in range(group.num_columns)]
        groups.append(
            [group.num_rows, [[one.path_in_schema, one.compression, one.has_dictionary_page] for one in columns]]
        )
    schema = file.schema_arrow
    stated = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    text = [str(schema.remove_metadata()), stated, groups, file.read().to_pylist()]
    return json.dumps(text, sort_keys=True, default=str).encode()


@pytest.fixture
def written(tmp_path: Path) -> dict[str, bytes]:
    """Format -> bytes."""
    storage = Storage(tmp_path)
    storage.write_table("ledger/part-00000.parquet", ledger(), row_group_size=1)
    reader: Any = Images()
    types = merged_types([KeptTypes(storage)("ledger/part-00000.parquet")])
    task = ShardTask(storage, reader, ("width", "aesthetic", "not_there"), "stamp", types, {"screen": "s1"})
    entry = task(ShardPlan(0, (("ledger/part-00000.parquet", (0, 1)),)))
    tar = storage.read_bytes(f"{STAGING}/{entry.tar}")
    index = storage.read_table(f"{STAGING}/{entry.index}").to_pylist()[0]
    shard = ManifestShard("a.tar", "index/a.parquet", 2, 2048, 507, "s", 99, "i", {"jpg": 2}, "features/a", 1, "f")
    manifest = build_manifest(
        [shard], config_hash="c", formats={"tar": 1}, source_fingerprint="f", feature_fingerprints={"screen": "s1"}
    )
    assert entry.features is not None
    return {
        "tar": tar,
        "sidecar": tar[index["json_offset"] : index["json_offset"] + index["json_size"]],
        "index": parquet_text(storage.read_bytes(f"{STAGING}/{entry.index}")),
        "features": parquet_text(storage.read_bytes(f"{STAGING}/{entry.features}")),
        "parquet": parquet_text(storage.read_bytes("ledger/part-00000.parquet")),
        "manifest": manifest_bytes(manifest),
        "card": dataset_card(FACTS).encode(),
    }


def test_other_bytes_have_another_format_version(written: dict[str, bytes]) -> None:
    versions = {**SHARD_FORMATS, **CARD_FORMATS}
    found = {name: (versions[name], hashlib.sha256(data).hexdigest()) for name, data in written.items()}
    changed = [name for name in GOLDEN if found[name] != GOLDEN[name]]
    assert not changed, (
        f"the bytes of {', '.join(changed)} changed: bump FORMAT beside the writer, and put here: "
        f"{ {name: found[name] for name in changed} }"
    )
    assert set(versions) == set(GOLDEN)
    assert LEDGER_FORMATS["parquet"] == SHARD_FORMATS["parquet"]
