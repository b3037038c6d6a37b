"""Checkpoints of a run are probed with the weights they hold, and the best are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from eval.probe.checkpoints import Probed, checkpoint_backbone, probe_checkpoint, probe_run
from eval.probe.config import ProbeConfig
from eval.probe.labelled import Labelled
from eval.probe.probe import linear_probe
from pipeline.storage import Storage
from tests.fixtures.probing import coloured
from training.engine.checkpoint import CheckpointError, Writer, complete_checkpoints, prune
from training.engine.shards import whole_piece
from training.models.backbone import Backbone
from training.models.config import BackboneConfig

CONFIG = BackboneConfig(width=16, depth=1, heads=2, ffn_width=16, image_size=(32, 32), full_kv_blocks=1)


def _pictures(count: int, seed: int) -> Labelled:
    small = coloured(count, seed)
    return Labelled(
        small.images.repeat_interleave(4, 2).repeat_interleave(4, 3),
        small.labels.repeat_interleave(4, 1).repeat_interleave(4, 2),
        small.classes,
    )


TRAIN, TEST = _pictures(12, 1), _pictures(8, 2)


def _save(storage: Storage, step: int, teacher: Backbone, student: Backbone) -> None:
    writer = Writer(storage, 0, 1, background=False)
    pieces = [
        whole_piece(f"{part}/backbone.{name}", parameter)
        for part, backbone in (("teacher", teacher), ("student", student))
        for name, parameter in backbone.named_parameters()
    ]
    writer.begin(step, pieces, {}, {})
    writer.publish()


def _backbone(seed: int, scale: float = 1.0) -> Backbone:
    torch.manual_seed(seed)
    backbone = Backbone(CONFIG)
    with torch.no_grad():
        backbone.patch_embed.projection.weight.mul_(scale)
    return backbone


def test_the_weights_are_those_of_the_part_asked_for(tmp_path: Path) -> None:
    storage, teacher, student = Storage(tmp_path), _backbone(1), _backbone(2)
    _save(storage, 1, teacher, student)
    (checkpoint,) = complete_checkpoints(storage)
    state = torch.get_rng_state()
    for part, expected in (("teacher", teacher), ("student", student)):
        found = checkpoint_backbone(storage, checkpoint, CONFIG, part)  # type: ignore[arg-type]
        for name, value in expected.state_dict().items():
            torch.testing.assert_close(found.state_dict()[name], value, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(CheckpointError, match="tensors of the teacher differ, such as"):
        checkpoint_backbone(storage, checkpoint, CONFIG.replace(width=32))


def test_scores_are_written_once_and_decide_what_is_kept(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    # Without a patch projection all patches are alike: nothing can be read out of them.
    teachers = {1: _backbone(1), 2: _backbone(2, scale=0.0), 3: _backbone(3, scale=0.0)}
    for step, teacher in teachers.items():
        _save(storage, step, teacher, teacher)
    told: list[Probed] = []
    found = probe_run(storage, CONFIG, TRAIN, TEST, told=told.append)
    assert found == told
    assert [item.step for item in found] == [1, 2, 3]
    for item, teacher in zip(found, teachers.values(), strict=True):
        assert item.record["metrics"] == linear_probe(teacher, TRAIN, TEST)
        record = json.loads((tmp_path / f"checkpoints/step-{item.step:09d}/probe.json").read_text())
        assert record["score"] == item.score == item.record["metrics"]["miou"]
    assert found[0].score > found[1].score + 0.3
    assert prune(storage, keep_last=1, keep_every=None, keep_best=1) == ["checkpoints/step-000000002"]
    assert [item.step for item in probe_run(storage, CONFIG, TRAIN, TEST)] == [1, 3]


def test_what_is_known_is_not_probed_again_but_for_other_settings(tmp_path: Path) -> None:
    storage, teacher = Storage(tmp_path), _backbone(1)
    _save(storage, 1, teacher, _backbone(2))
    (checkpoint,) = complete_checkpoints(storage)
    first = probe_checkpoint(storage, checkpoint, CONFIG, TRAIN, TEST)
    path = tmp_path / checkpoint.name / "probe.json"
    written = path.stat().st_mtime_ns
    assert probe_checkpoint(storage, checkpoint, CONFIG, TRAIN, TEST) == first
    assert path.stat().st_mtime_ns == written
    others = [
        probe_checkpoint(storage, checkpoint, CONFIG, TRAIN, TEST, ProbeConfig(l2=10.0)),
        probe_checkpoint(storage, checkpoint, CONFIG, TRAIN, TEST, part="student"),
        probe_checkpoint(storage, checkpoint, CONFIG, TEST, TRAIN),
    ]
    assert len({item.record["probe"] for item in [first, *others]}) == 4


def test_a_checkpoint_that_the_run_removed_is_passed_over(tmp_path: Path) -> None:
    storage, teacher = Storage(tmp_path), _backbone(1)
    for step in (1, 2):
        _save(storage, step, teacher, teacher)

    def run_goes_on(probed: Probed) -> None:
        storage.remove("checkpoints/step-000000002")

    assert [item.step for item in probe_run(storage, CONFIG, TRAIN, TEST, told=run_goes_on)] == [1]
    assert storage.names("checkpoints") == ["step-000000001"]
