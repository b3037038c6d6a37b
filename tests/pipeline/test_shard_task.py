from pathlib import Path
from typing import Any, cast

from pipeline.shard_task import ShardTask
from pipeline.storage import Storage


def test_a_sidecar_has_no_nulls_and_the_types_of_the_corpus(tmp_path: Path) -> None:
    task = ShardTask(Storage(str(tmp_path)), cast(Any, None), ("width", "head_yaw", "absent"), "stamp", {"n": "mixed"})
    row = {"id": "i", "uri": "u", "member": "", "sha256": "s", "metadata": '{"n":5}', "width": 0, "head_yaw": None}
    assert task._sidecar(row) == {
        "id": "i",
        "uri": "u",
        "member": "",
        "sha256": "s",
        "metadata": {"n": "5"},
        "scores": {"width": 0},
    }
