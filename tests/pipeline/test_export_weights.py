"""`populace export-weights`: what comes out is the network of the checkpoint, in files that other code loads."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import timm
import torch
import transformers
import yaml
from safetensors.torch import load_file
from torch import Tensor

from pipeline.cli import main
from pipeline.export_weights import export_weights
from pipeline.storage import Storage
from tests.fixtures.pretraining import make_corpus, pretrain_config, settings, trainer
from training.engine.checkpoint import complete_checkpoints
from training.models import create, load_weights
from training.pretraining.model import PretrainModel

pytestmark = pytest.mark.usefixtures("one_thread")

Captured = pytest.CaptureFixture[str]
MODEL = {
    "backbone": "tiny",
    "overrides": {"width": 48, "depth": 5, "heads": 4, "ffn_width": 64, "image_size": [64, 48]},
}
"""Its middle block has grouped keys and values."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints of steps 2 and 4. Not to be changed."""
    output = tmp_path_factory.mktemp("export") / "run"
    make_corpus(output / "shards")
    changes = {"steps": 4, "model": MODEL, "checkpoint": {"every": 2}}
    recipe = output.parent / "run.yaml"
    recipe.write_text(yaml.safe_dump({"output": str(output), "pretrain": settings(None, **changes)}))
    assert main(["pretrain", str(recipe), "--quiet"]) == 0
    return output


def resumed(run: Path) -> PretrainModel:
    """The model as training itself resumes it."""
    config = pretrain_config(run / "shards", steps=4, model=MODEL, checkpoint={"every": 2})
    made = trainer(config, run / "pretrain")
    assert made.run().steps == 4  # nothing is left to do: it loads the newest checkpoint
    return made.parallel.model


def images() -> Tensor:
    return torch.randn(2, 3, 64, 48, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("which", ["teacher", "student"])
def test_the_file_loads_strictly_and_gives_the_same_features(
    run: Path, tmp_path: Path, capsys: Captured, which: str
) -> None:
    target = tmp_path / "weights.safetensors"
    assert main(["export-weights", str(run), "--which", which, "--output", str(target)]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    model = create("tiny", **MODEL["overrides"])
    load_weights(model, target, strict=True)
    network = resumed(run)
    backbone = (network.teacher if which == "teacher" else network.student).backbone
    with torch.no_grad():
        (got,), (expected,) = model(images()), backbone(images())
    assert torch.equal(got, expected)


def test_teacher_and_student_differ_and_the_teacher_is_the_default(run: Path, tmp_path: Path) -> None:
    paths = {name: export_weights(str(run), name, output=str(tmp_path / f"{name}.safetensors")).path
             for name in ("teacher", "student")}  # fmt: skip
    default = export_weights(str(run), output=str(tmp_path / "default.safetensors")).path
    assert default.read_bytes() == paths["teacher"].read_bytes()
    teacher, student = load_file(paths["teacher"]), load_file(paths["student"])
    assert teacher.keys() == student.keys()
    assert any(not torch.equal(teacher[name], student[name]) for name in teacher)


def test_timm_takes_its_format(run: Path, tmp_path: Path) -> None:
    exported = export_weights(str(run), "student", "timm", output=str(tmp_path / "weights.safetensors"))
    theirs = timm.create_model(
        "vit_base_patch16_sapiens2", img_size=(64, 48), embed_dim=48, depth=5, num_heads=4,
        num_kv_heads=(4, 4, 2, 4, 4), mlp_ratio=64 / 48,
    )  # fmt: skip
    theirs.load_state_dict(load_file(exported.path), strict=True)
    with torch.no_grad():
        (expected,) = resumed(run).student.backbone(images())
        got = theirs.eval().forward_features(images())
    # timm does RoPE in float32; ours has the released numerics, which round queries and keys to bfloat16.
    torch.testing.assert_close(got, expected, rtol=0, atol=0.05 * float(expected.abs().max()))


def test_transformers_takes_its_format(run: Path, tmp_path: Path) -> None:
    exported = export_weights(str(run), "teacher", "transformers", output=str(tmp_path / "folder"))
    theirs, info = transformers.Sapiens2Model.from_pretrained(exported.path, output_loading_info=True)
    assert not any(info.values()), info
    with torch.no_grad():
        (expected,) = resumed(run).teacher.backbone(images())
        got = theirs(images()).last_hidden_state
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-3 * float(expected.abs().max()))


def test_bfloat16_halves_the_file(run: Path, tmp_path: Path) -> None:
    whole = export_weights(str(run), output=str(tmp_path / "a.safetensors")).path
    half = export_weights(str(run), output=str(tmp_path / "b.safetensors"), dtype="bfloat16").path
    assert {tensor.dtype for tensor in load_file(half).values()} == {torch.bfloat16}
    for name, tensor in load_file(half).items():
        assert torch.equal(tensor, load_file(whole)[name].bfloat16())


def test_an_earlier_step_and_the_folder_itself(run: Path, tmp_path: Path) -> None:
    early = export_weights(str(run), step=2, output=str(tmp_path / "a.safetensors"))
    assert early.checkpoint == "checkpoints/step-000000002"
    late = export_weights(str(run / "pretrain"), output=str(tmp_path / "b.safetensors"))
    assert early.path.read_bytes() != late.path.read_bytes()


def test_without_a_path_it_goes_into_the_run(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    exported = export_weights(str(copy), format="transformers")
    assert exported.path == copy / "pretrain/exports/teacher-step-000000004-transformers-float32"
    assert json.loads((exported.path / "config.json").read_bytes())["model_type"] == "sapiens2"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--step", "3"], "has no complete checkpoint of step 3; it has those of steps 2, 4"),
        (["--format", "transformers", "--output", "w.safetensors"], "transformers reads a folder"),
        (["--output", "weights.pth"], "weights are not pickled"),
    ],
)
def test_what_cannot_be_exported_is_exit_2(run: Path, capsys: Captured, arguments: list[str], expected: str) -> None:
    assert main(["export-weights", str(run), *arguments]) == 2
    assert expected in capsys.readouterr().err


def test_a_folder_without_checkpoints_is_exit_2(tmp_path: Path, capsys: Captured) -> None:
    assert main(["export-weights", str(tmp_path)]) == 2
    assert "holds no checkpoint" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_exit_1(run: Path, tmp_path: Path, capsys: Captured) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    (folder,) = [path for path in (copy / "pretrain/checkpoints").iterdir() if path.name.endswith("4")]
    file = folder / "rank-00000-of-00001.safetensors"
    data = bytearray(file.read_bytes())
    first = 8 + int.from_bytes(data[:8], "little")
    data[first:] = bytes(len(data) - first)
    file.write_bytes(data)
    assert [item.step for item in complete_checkpoints(Storage(copy / "pretrain"))] == [2, 4]
    assert main(["export-weights", str(copy)]) == 1
    assert "is damaged" in capsys.readouterr().err
    assert not os.path.exists(copy / "pretrain/exports")
