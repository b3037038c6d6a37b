"""Random weights of the tiny task models in released names, and pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import torch

from training.models.checkpoints import save_weights
from training.models.zoo import create

Image = npt.NDArray[np.uint8]


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Task -> a safetensors file of a tiny model, drawn once."""
    folder = tmp_path_factory.mktemp("weights")

    def of(task: str) -> Path:
        path = folder / f"{task}.safetensors"
        if not path.exists():
            with torch.random.fork_rng():
                torch.manual_seed(7)
                model = create(f"tiny_{task}")
                if task == "pointmap":  # a scale of about 1, as of a trained model
                    model.decode_head.scale_final_layer[-1].bias.data.fill_(1.0)
                    model.decode_head.conv_pointmap.bias.data[2] = 3.0
                save_weights(model, path)
        return path

    return of


@pytest.fixture(scope="session")
def photo() -> Callable[..., Image]:
    """(key, height, width) -> a smooth coloured picture."""

    def draw(key: int, height: int = 128, width: int = 96) -> Image:
        rng = np.random.Generator(np.random.Philox(key=key))
        small = rng.integers(0, 256, (6, 5, 3), dtype=np.uint8)
        return np.asarray(cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC), np.uint8)

    return draw


@pytest.fixture
def folder(tmp_path: Path, photo: Callable[..., Image]) -> Path:
    """Three good PNG files, one of them in a subfolder, a truncated one and a text that calls itself a JPEG."""
    root = tmp_path / "pictures"
    (root / "sub").mkdir(parents=True)
    for key, name in enumerate(("a.png", "b.png", "sub/c.png")):
        cv2.imwrite(str(root / name), photo(key)[..., ::-1])
    (root / "cut.png").write_bytes((root / "a.png").read_bytes()[:400])
    (root / "text.jpg").write_text("<html>not found</html>")
    return root
