"""The study of objectives at the smallest scale: everything real, a few steps."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from eval.probe.config import ProbeConfig
from eval.studies import objectives
from eval.studies.objectives import Budget, pretrain_config
from training.data.config import CorpusConfig, DataConfig
from training.data.corpus import open_corpus


def test_objectives_differ_in_the_weights_of_the_loss_only(tmp_path: Path) -> None:
    runs = {name: pretrain_config(tmp_path, name, 0, Budget()) for name in ("joint", "mae", "cl")}
    kinds = {name: (run.trains_reconstruction, run.trains_distillation) for name, run in runs.items()}
    assert kinds == {"joint": (True, True), "mae": (True, False), "cl": (False, True)}
    rest = []
    for run in runs.values():
        identity = run.identity()
        for section in ("reconstruction", "distillation", "koleo"):
            identity[section] = {key: value for key, value in identity[section].items() if key != "weight"}
        rest.append(identity)
    assert rest[0] == rest[1] == rest[2]


def test_pictures_of_pretraining_are_not_those_of_the_probe(tmp_path: Path) -> None:
    corpus = open_corpus(
        DataConfig(corpora=(CorpusConfig(path=str(objectives.export_people(tmp_path / "s", 5))),), workers=0)
    )
    assert len(corpus) == 5
    assert len({objectives.PRETRAINING, objectives.TRAINING, objectives.HELD_OUT}) == 3


def test_a_run_prints_every_objective_and_its_spread(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(objectives, "SOFTMAX", ProbeConfig(method="softmax", steps=4, warmup=1))
    arguments = (
        "--steps 3 --batch 4 --pictures 12 --probe-train 6 --probe-test 4 --seeds 0 1 --objectives mae joint random"
    )
    before = torch.get_num_threads()
    monkeypatch.setattr(sys, "argv", ["objectives", *arguments.split(), "--json", str(tmp_path / "all.json")])
    objectives.main()
    torch.set_num_threads(before)
    outcomes = json.loads((tmp_path / "all.json").read_text())
    # Two probes of student and teacher of two objectives, and of the random encoder, with two seeds.
    assert len(outcomes) == 2 * 2 * (2 + 2 + 1)
    printed = capsys.readouterr().out
    for method in ("ridge", "softmax"):
        of = [o["miou"] for o in outcomes if (o["objective"], o["part"], o["method"]) == ("mae", "teacher", method)]
        assert f"| mae | teacher | {method} | {sum(of) / 2:.3f} | {min(of):.3f}..{max(of):.3f} |" in printed
    pairs = [(o["miou"], o["final"]) for o in outcomes if (o["objective"], o["part"]) == ("joint", "student")]
    assert all(final["loss/reconstruction"] > 0 and final["loss/distillation"] > 0 for _, final in pairs)
    assert {o["seconds"] for o in outcomes if o["objective"] == "random"} == {0.0}
