"""`populace predict` from the command line: weights of runs and files, people of the ledger, errors in one line."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pipeline.cli import main
from pipeline.export_weights import export_weights
from tests.fixtures import finetuning
from tests.fixtures.exports import export, picture
from tests.fixtures.ledgers import write_ledger
from training.models.checkpoints import save_weights
from training.models.zoo import create
from training.prediction import Predictor
from training.tasks.pose import PoseConfig

pytestmark = pytest.mark.usefixtures("one_thread")

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def pose_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that fine-tuned three keypoints of its own; its best checkpoint is kept beside the last."""
    folder = tmp_path_factory.mktemp("pose")
    points = folder / "points.yaml"
    points.write_text(
        "name: points\nnames: [nose, left_wrist, right_wrist]\nflip_pairs: [[left_wrist, right_wrist]]\nsigmas: 0.05\n"
    )
    settings = finetuning.settings("pose", steps=2, checkpoint={"every": 1}, optimiser={"warmup": 0})
    settings["task"]["pose"] |= {"keypoints": str(points), "min_keypoints": 1, "padding": 1.1}
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({"output": str(folder / "run"), "finetune": settings}))
    assert main(["finetune", str(recipe), "--quiet"]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pictures and a text that calls itself one."""
    folder = tmp_path_factory.mktemp("photos") / "photos"
    folder.mkdir()
    for number in range(2):
        (folder / f"{number}.jpg").write_bytes(picture(number, (96, 72)))
    (folder / "text.jpg").write_text("<html>")
    return folder


def predicted(capsys: Captured, *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["predict", *arguments, "--json", "--quiet"]) == 0
    found = capsys.readouterr()
    record: dict[str, Any] = json.loads(found.out)
    return record


def test_a_run_needs_nothing_given_again_and_equals_its_exported_file(
    pose_run: Path, photos: Path, tmp_path: Path, capsys: Captured
) -> None:
    output = tmp_path / "out"
    record = predicted(capsys, "pose", "--weights", str(pose_run), "--input", str(photos), "--output", str(output))
    assert record["weights"].startswith(str(pose_run / "finetune-pose/checkpoints/"))
    assert (record["predicted"], record["skipped"], record["people"], record["bad"]) == (2, 0, 2, {"not_an_image": 1})
    weights = export_weights(str(pose_run), task="pose", output=str(tmp_path / "w.safetensors")).path
    config = PoseConfig(keypoints=str(pose_run.parent / "points.yaml"), padding=1.1)
    predictor = Predictor.load("pose", weights, size=(64, 48), device="cpu", task_config=config)
    (wanted,) = predictor(photos / "0.jpg")
    entry = json.loads((output / "results.json").read_bytes())[0]
    triples = np.array(entry["keypoints"]).reshape(-1, 3)
    np.testing.assert_allclose(triples[:, :2], wanted.keypoints[0], atol=0.05)
    assert json.loads((output / "images.json").read_bytes())["categories"][0]["keypoints"][1] == "left_wrist"
    again = predicted(capsys, "pose", "--weights", str(pose_run), "--input", str(photos), "--output", str(output))
    assert (again["predicted"], again["skipped"]) == (0, 2)
    # A file of weights alone does not say what its keypoints are called.
    arguments = ["pose", "--weights", str(weights), "--input", str(photos / "0.jpg"), "--size", "64x48"]
    assert "give task_config" in refused(capsys, *arguments, "--output", str(tmp_path / "file"))
    points = str(pose_run.parent / "points.yaml")
    record = predicted(capsys, *arguments, "--keypoints", points, "--output", str(tmp_path / "file"))
    assert record["predicted"] == 1
    # A moved keypoint file is given anew; another size than trained works.
    arguments = ["pose", "--weights", str(pose_run / "finetune-pose"), "--input", str(photos), "--keypoints", points]
    record = predicted(capsys, *arguments, "--size", "96x64", "--checkpoint", "2", "--output", str(tmp_path / "other"))
    assert record["weights"].endswith("step-000000002")
    run = json.loads((tmp_path / "other/run.json").read_bytes())
    assert (run["size"], run["task_config"]["padding"]) == ([96, 64], 1.1)


def test_people_are_those_that_curation_found(pose_run: Path, tmp_path: Path, capsys: Captured) -> None:
    corpus = tmp_path / "corpus"
    scores = [[4.0, 2.0, 30.0, 40.0, 0.9, 1.0, 1.0, 9.0, 9.0, 0.1], [], None]
    write_ledger(corpus, export(corpus / "shards", [3], size=(48, 40)), scores)
    arguments = ["pose", "--weights", str(pose_run), "--input", str(corpus)]
    output = tmp_path / "out"
    record = predicted(capsys, *arguments, "--boxes-from-ledger", "--output", str(output))
    assert (record["predicted"], record["people"]) == (3, 2), "one above the threshold, nobody, the whole picture"
    entries = json.loads((output / "results.json").read_bytes())
    assert [(entry["file_name"], entry["bbox"]) for entry in entries] == [
        ("k0.jpg", [4, 2, 26, 38]),
        ("k2.jpg", [0, 0, 40, 48]),
    ]
    assert "boxes differ" in refused(capsys, *arguments, "--output", str(output))
    assert "give boxes in a COCO file" in refused(
        capsys, "pose", "--weights", str(pose_run), "--input", str(tmp_path), "--boxes-from-ledger",
        "--output", str(tmp_path.parent / "o"),
    )  # fmt: skip


def test_boxes_of_a_detector_are_told_with_what_is_left_out(
    pose_run: Path, photos: Path, tmp_path: Path, capsys: Captured
) -> None:
    images = [{"id": number, "file_name": f"{number}.jpg", "width": 72, "height": 96} for number in range(2)]
    rows = [
        {"image_id": number, "category_id": kind, "bbox": [3, 4, 40, 60], "score": score}
        for number, kind, score in ((0, 0, 0.9), (1, 0, 0.1), (1, 2, 0.9), (7, 0, 0.9))
    ]
    names = [{"id": 0, "name": "person"}, {"id": 2, "name": "dog"}]
    boxes = tmp_path / "boxes.json"
    boxes.write_text(json.dumps({"images": images, "annotations": rows, "categories": names}))
    base = ["pose", "--weights", str(pose_run), "--input", str(photos), "--boxes", str(boxes), "--output"]
    capsys.readouterr()
    assert main(["predict", *base, str(tmp_path / "out")]) == 0
    said = " ".join(capsys.readouterr().err.split())
    left_out = "left out: 1 of other categories: 2 dog (1); 1 of images not listed"
    assert f"boxes 2 on 2 images, category 0 person; {left_out}" in said
    assert "warning: given boxes of a low score, or overlapped by a better one, left out: 1 (predictor.min" in said
    record = predicted(capsys, *base, str(tmp_path / "dog"), "--box-category", "dog")
    assert (record["people"], record["weak"]) == (1, 0)
    left = {"of other categories": 3}
    assert record["boxes"] == {"category": "2 dog", "taken": 1, "left_out": left}
    assert json.loads((tmp_path / "dog/run.json").read_bytes())["box_category"] == "2 dog"
    assert "box_category differ" in refused(capsys, *base, str(tmp_path / "dog"))
    assert "there is no category 'cat': the categories and their numbers of entries are 0 person (3), 2 dog (1)" in (
        refused(capsys, *base, str(tmp_path / "cat"), "--box-category", "cat")
    )
    for row in rows:
        row["score"] = 0.1
    boxes.write_text(json.dumps({"images": images, "annotations": rows, "categories": names}))
    assert main(["predict", *base, str(tmp_path / "weak"), "--quiet"]) == 1
    assert "nobody was predicted: all given boxes were left out (0 lie off" in capsys.readouterr().err
    for image in images:
        image["width"] = 144
    boxes.write_text(json.dumps({"images": images, "annotations": rows, "categories": names}))
    assert main(["predict", *base, str(tmp_path / "size"), "--quiet"]) == 1
    said = capsys.readouterr().err
    assert "warning: pictures passed over as box_size: 2, as 0: is 72 x 96 pixels upright, its boxes were" in said
    assert "no picture could be predicted: 2 box_size, 1 not_an_image" in said


def test_masks_that_cannot_be_used_are_told(photos: Path, tmp_path: Path, capsys: Captured) -> None:
    save_weights(create("tiny_normal"), tmp_path / "normal.safetensors")
    (tmp_path / "masks").mkdir()
    soft = np.full((96, 72), 60, np.uint8)
    soft[20:50] = 250
    np.save(tmp_path / "masks/0.npy", soft)
    (tmp_path / "masks/1.png").write_bytes(b"\x89PNG")
    base = ["normal", "--weights", str(tmp_path / "normal.safetensors"), "--input", str(photos), "--size", "64x48"]
    base += ["--masks", str(tmp_path / "masks"), "--output"]
    capsys.readouterr()
    for name, more, rows in (("out", [], 30), ("low", ["--mask-threshold", "0.1"], 96)):
        assert main(["predict", *base, str(tmp_path / name), "--quiet", *more]) == 0
        said = capsys.readouterr()
        assert "warning: pictures passed over as bad_mask: 1, as 1: mask" in said.err
        assert "1 bad_mask, 1 not_an_image" in said.out
        normals = np.load(tmp_path / name / "normals/0.npy")
        assert (np.abs(normals).sum(-1) > 0).sum() == rows * 72
    assert "from 0 to below 1" in refused(capsys, *base, str(tmp_path / "o"), "--mask-threshold", "128")


def test_every_setting_reaches_the_files(photos: Path, tmp_path: Path, capsys: Captured) -> None:
    for task in ("normal", "seg"):
        save_weights(create(f"tiny_{task}"), tmp_path / f"{task}.safetensors")
    config = tmp_path / "c.yaml"
    config.write_text("predictor: {interpolation: nearest}\noutputs: {thumbnail: 64, gallery: 7}\n")
    output = tmp_path / "out"
    arguments = ["normal", "--weights", str(tmp_path / "normal.safetensors"), "--input", str(photos / "0.jpg")]
    record = predicted(
        capsys, *arguments, str(photos / "1.jpg"), "--output", str(output), "--config", str(config), "--size", "64x48",
        "--flip", "--dtype", "bfloat16", "--batch-size", "1", "--limit", "1", "--max-side", "64", "--normals", "png",
        "--no-overlays", "--gallery", "0", "--device", "cpu", "--seg-weights", str(tmp_path / "seg.safetensors"),
    )  # fmt: skip
    assert record["predicted"] == 1
    assert sorted(item.name for item in output.iterdir()) == ["normals", "run.json", "summary.json"]
    assert [item.name for item in (output / "normals").iterdir()] == ["0.png"]
    run = json.loads((output / "run.json").read_bytes())
    assert (run["size"], run["max_side"], run["foreground"]["task"]) == ([64, 48], 64, "seg")
    settings = run["predictor"]
    assert (settings["flip"], settings["dtype"], settings["interpolation"]) == (True, "bfloat16", "nearest")
    config.write_text("outputs: {thumbnial: 64}\n")
    assert "outputs.thumbnial: Extra inputs" in refused(
        capsys, *arguments, "--output", str(output), "--config", str(config)
    )


def refused(capsys: Captured, *arguments: str) -> str:
    capsys.readouterr()
    assert main(["predict", *arguments, "--quiet"]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.count("\n") == 1
    return found.err


def test_errors_are_one_line(pose_run: Path, photos: Path, tmp_path: Path, capsys: Captured) -> None:
    run, source, output = str(pose_run), str(photos), str(tmp_path / "out")
    pose = ["pose", "--weights", run, "--output", output, "--input"]
    for arguments, message in (
        (["seg", "--weights", run, "--output", output, "--input", source], "has pose"),
        (["seg", "--weights", "no.safetensors", "--output", output, "--input", source], "no.safetensors"),
        ([*pose, "nowhere"], "does not exist"),
        ([*pose, source, source], "give one folder"),
        ([*pose, source, "--device", "gpu"], "--device is 'gpu'"),
        ([*pose, source, "--checkpoint", "9"], "it has those of steps 1, 2"),
        ([*pose, source, "--box-category", "1"], "--box-category goes with --boxes"),
        ([*pose, source, "--mask-threshold", "0.5"], "--mask-threshold goes with --masks"),
        ([*pose, source, "--masks", source], "is for normal, pointmap, albedo"),
        ([*pose, source, "--normals", "exr"], "pose writes no normals: --normals is for normal"),
        ([*pose, source, "--size", "60x48"], "multiple"),
        ([*pose, source, "--boxes", str(photos / "text.jpg")], "not readable as JSON"),
        ([*pose, source, "--output", str(photos / "inside")], "lies in the input"),
        (["normal", "--weights", run, "--output", output, "--input", source, "--boxes", "b"], "is for pose"),
    ):
        assert message in refused(capsys, *arguments), arguments
    assert not (tmp_path / "out").exists()


def test_it_fails_where_no_picture_can_be_predicted(
    pose_run: Path, photos: Path, tmp_path: Path, capsys: Captured
) -> None:
    arguments = ["--input", str(photos / "text.jpg"), "--output", str(tmp_path / "out"), "--quiet"]
    assert main(["predict", "pose", "--weights", str(pose_run), *arguments]) == 1
    assert "no picture could be predicted: 1 not_an_image" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "hint"), [(errno.ENOSPC, "free some space"), (errno.EROFS, "the file system takes")]
)
def test_a_place_that_takes_no_more_is_one_line(
    pose_run: Path,
    photos: Path,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    hint: str,
) -> None:
    real = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.suffix == ".part" and path.parent.name == "overlays":
            raise OSError(number, os.strerror(number))
        return real(path, data)

    command = ["predict", "pose", "--weights", str(pose_run), "--input", str(photos), "--output", str(tmp_path / "out")]
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        assert main([*command, "--quiet"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    line, tail = captured.err.splitlines()
    assert line.startswith(f"error: {os.strerror(number)}: {tmp_path}/out/overlays/0.jpg ({hint}")
    log = Path(line.rpartition(" (log: ")[2].removesuffix(")"))
    assert "Traceback" in log.read_text()
    log.unlink()
    assert tail == "The same command continues where it stopped."
    assert predicted(capsys, *command[1:])["predicted"] == 2
