"""Reading files of tensors: what is whole is read, what is damaged or hostile is refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from training.models.tensor_files import WeightsError, open_tensors


class Hostile:
    """Unpickling it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.write_text, (self.path, "ran")


def write_shards(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    save_file({"a": torch.ones(2)}, folder / "one.safetensors")
    save_file({"b": torch.zeros(3)}, folder / "two.safetensors")
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_shapes_and_dtypes_are_known_before_reading(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2, 3, dtype=torch.bfloat16), "b": torch.tensor(4)}, tmp_path / "x.safetensors")
    with open_tensors(tmp_path / "x.safetensors") as stored:
        assert stored.tensors["a"].shape == (2, 3)
        assert stored.tensors["a"].dtype == torch.bfloat16
        assert stored.tensors["b"].dtype == torch.int64
        assert torch.equal(stored.tensors["a"].read(), torch.ones(2, 3, dtype=torch.bfloat16))


def test_shards_by_folder_and_by_index(tmp_path: Path) -> None:
    write_shards(tmp_path)
    for path in (tmp_path, tmp_path / "model.safetensors.index.json", tmp_path / "model.safetensors"):
        with open_tensors(path) as stored:
            assert torch.equal(stored.tensors["b"].read(), torch.zeros(3)), path


def test_a_folder_with_one_file_of_any_name(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "sapiens2_0.1b_pretrain.safetensors")
    with open_tensors(tmp_path) as stored:
        assert list(stored.tensors) == ["a"]
    save_file({"a": torch.ones(2)}, tmp_path / "other.safetensors")
    with (
        pytest.raises(WeightsError, match=r"other\.safetensors, sapiens2_0\.1b_pretrain\.safetensors: name one"),
        open_tensors(tmp_path),
    ):
        pass


@pytest.mark.parametrize("file", ["../one.safetensors", "/etc/passwd", "sub/one.safetensors", "one.bin", 3])
def test_an_index_stays_in_its_folder(tmp_path: Path, file: object) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "one.safetensors")
    folder = tmp_path / "model"
    write_shards(folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": file}}))
    with pytest.raises(WeightsError, match="same folder"), open_tensors(folder):
        pass


def test_incomplete_shards(tmp_path: Path) -> None:
    write_shards(tmp_path)
    save_file({"c": torch.zeros(3)}, tmp_path / "two.safetensors")
    with pytest.raises(WeightsError, match=r"two\.safetensors holds b, but it does not"), open_tensors(tmp_path):
        pass
    (tmp_path / "two.safetensors").unlink()
    with pytest.raises(WeightsError, match="download is not complete"), open_tensors(tmp_path):
        pass


def test_a_cut_off_file(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    save_file({"a": torch.ones(1000)}, file)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(WeightsError, match="not a whole safetensors file"), open_tensors(file):
        pass


def test_plain_pickles_are_read(tmp_path: Path) -> None:
    for content in ({"a": torch.ones(2)}, {"state_dict": {"a": torch.ones(2)}, "epoch": 3}):
        torch.save(content, tmp_path / "x.pth")
        with open_tensors(tmp_path / "x.pth") as stored:
            assert stored.pickled
            assert torch.equal(stored.tensors["a"].read(), torch.ones(2))


def test_hostile_pickles_do_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for name, write in (
        ("a.pth", lambda path: torch.save({"a": torch.ones(2), "b": Hostile(mark)}, path)),
        ("b.bin", lambda path: path.write_bytes(pickle.dumps(Hostile(mark)))),
    ):
        write(tmp_path / name)
        with pytest.raises(WeightsError, match="never loaded"), open_tensors(tmp_path / name):
            pass
    assert not mark.exists()
    pickle.loads(pickle.dumps(Hostile(mark)))
    assert mark.exists()  # it would have run


@pytest.mark.parametrize("content", [[torch.ones(2)], {"a": 3}, {}])
def test_pickles_of_something_else(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "x.pth")
    with pytest.raises(WeightsError, match="not a dictionary from names to tensors"), open_tensors(tmp_path / "x.pth"):
        pass


def test_what_is_not_there(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "no.safetensors", "there is no file"),
        (tmp_path / "no", "there is no file or folder"),
        (tmp_path, "without model.safetensors"),
    ):
        with pytest.raises(WeightsError, match=message), open_tensors(path):
            pass
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(WeightsError, match="pickle"), open_tensors(tmp_path):
        pass
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(WeightsError, match="it is a run: `populace export-weights`"), open_tensors(tmp_path):
        pass
    (tmp_path / "weights.onnx").write_bytes(b"x")
    with pytest.raises(WeightsError, match=r"not a \.safetensors file"), open_tensors(tmp_path / "weights.onnx"):
        pass
