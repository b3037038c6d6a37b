"""The study of fine-tuning at the smallest scale: everything real, a few steps."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from eval.studies import finetuning
from eval.studies.finetuning import PEOPLE, PRETRAINING, TASKS, export_people, recipe
from training.data.config import CorpusConfig, DataConfig
from training.data.corpus import open_corpus
from training.finetuning.pictures import SyntheticConfig, SyntheticPeople, open_pictures
from training.models import create, save_weights


@pytest.mark.parametrize("task", TASKS)
def test_starts_differ_in_the_weights_only(task: str) -> None:
    scratch, other = recipe(task, 7, 1, None), recipe(task, 7, 1, Path("backbone.safetensors"))
    assert (scratch.steps, scratch.seed, scratch.checkpoint.every) == (7, 1, 7)
    assert scratch.optimiser.warmup < 7
    assert other.model.initial_weights == "backbone.safetensors"
    assert scratch == other.model_copy(update={"model": scratch.model})
    assert scratch.model == other.model.model_copy(update={"initial_weights": None})


def test_pictures_of_pretraining_are_nobody_elses(tmp_path: Path) -> None:
    corpus = open_corpus(DataConfig(corpora=(CorpusConfig(path=str(export_people(tmp_path / "s", 3))),), workers=0))
    assert len(corpus) == 3
    sides = open_pictures(SyntheticConfig(train=2, held_out=2, people=PEOPLE))
    ids = {pictures[index].id for pictures in (*sides, SyntheticPeople(PEOPLE, PRETRAINING, 2)) for index in (0, 1)}
    assert len(ids) == 6


def test_a_run_prints_what_every_start_gives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Pretrains, starts from that, from a given file and from nothing; the untrained figure is of random weights."""
    small, sides = recipe("pose", 2, 0, None).model_dump(), (64, 48)
    small |= {"size": sides, "workers": 0, "batch": {"size": 2, "micro": 2}}
    small["model"]["overrides"] = {"width": 48, "depth": 3, "heads": 3}
    small["data"] = {"train": 6, "held_out": 3, "people": {"size": sides, "people": (1, 1)}}
    monkeypatch.setattr(finetuning, "RECIPES", tmp_path)
    for task in ("pose", "albedo"):
        small["task"] = {"kind": task}
        (tmp_path / f"finetune-tiny-{task}.yaml").write_text(json.dumps({"finetune": small}))
    backbone = create("tiny", width=48, depth=3, heads=3, image_size=sides)
    given = save_weights(backbone, tmp_path / "given.safetensors")
    arguments = f"--tasks pose albedo --steps 2 --objectives mae --pretrained {given} --seeds 0"
    arguments += f" --pretrain-steps 2 --pretrain-batch 4 --pretrain-pictures 8 --json {tmp_path / 'all.json'}"
    before = torch.get_num_threads()
    monkeypatch.setattr(sys, "argv", ["finetuning", *arguments.split()])
    finetuning.main()
    torch.set_num_threads(before)
    outcomes = json.loads((tmp_path / "all.json").read_text())
    starts = ("scratch", "mae", "given.safetensors")
    assert [(item["task"], item["start"]) for item in outcomes] == [(t, s) for t in ("pose", "albedo") for s in starts]
    albedo = {item["start"]: item for item in outcomes if item["task"] == "albedo"}
    assert (
        len({item["untrained"] for item in albedo.values()}) == len({item["trained"] for item in albedo.values()}) == 3
    )
    assert {item["mean_predictor"] for item in albedo.values()} == {albedo["mae"]["mean_predictor"]}
    row = [f"{albedo['scratch']['untrained']:.4g}", f"{albedo['scratch']['mean_predictor']:.4g}"]
    row += [f"{albedo[start]['trained']:.4g}" for start in starts]
    printed = capsys.readouterr().out
    assert "| task | figure | steps | untrained | mean predictor | scratch | mae | given.safetensors |" in printed
    assert f"| albedo | mae | 2 | {' | '.join(row)} |" in printed
