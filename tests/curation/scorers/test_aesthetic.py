"""Aesthetic scores: the LAION head computes what PyTorch computes, and photographic quality moves the right way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from safetensors.torch import save_file
from torch import nn

from curation.records import Batch
from curation.scorers.aesthetic import (
    QUALITY_COLUMNS,
    AnyAestheticConfig,
    LaionAesthetic,
    LaionAestheticConfig,
    PhotographicAesthetic,
    PhotographicConfig,
    build,
    photographic_quality,
)
from curation.scorers.base import BatchRunner, MissingWeightsError
from curation.scorers.embedding_efficientnet import EfficientNetEmbeddingConfig
from curation.scorers.embedding_openclip import OpenClipEmbeddingConfig
from curation.scorers.heads import load_head
from curation.scorers.screen import ScreenConfig, measure_pixels

GOOD = {
    "sharpness": 400.0,
    "brightness": 0.45,
    "contrast": 0.25,
    "entropy": 7.4,
    "dark_share": 0.02,
    "bright_share": 0.01,
    "colourfulness": 45.0,
}


def published_mlp(width: int = 768) -> nn.Sequential:
    """The layers of "improved-aesthetic-predictor", with its dropouts, so that the keys are the published ones."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(width, 1024),
        nn.Dropout(0.2),
        nn.Linear(1024, 128),
        nn.Dropout(0.2),
        nn.Linear(128, 64),
        nn.Dropout(0.1),
        nn.Linear(64, 16),
        nn.Linear(16, 1),
    ).eval()


def save(module: nn.Module, path: Path, prefix: str = "layers.") -> Path:
    tensors = {prefix + name: value.contiguous() for name, value in module.state_dict().items()}
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save(tensors, path)
    return path


def embeddings(width: int = 768, rows: int = 6) -> list[Any]:
    vectors = np.random.default_rng(0).normal(size=(rows, width))
    return list((vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16))


def batch(rows: list[Any]) -> Batch:
    return Batch([str(index) for index in range(len(rows))], [], {"embedding": rows})


@pytest.mark.parametrize("name", ["head.safetensors", "head.pth"])
def test_the_published_layout_gives_what_pytorch_gives(tmp_path: Path, name: str) -> None:
    module, rows = published_mlp(), embeddings()
    scorer = LaionAesthetic(LaionAestheticConfig(path=str(save(module, tmp_path / name))))
    assert [item.name for item in scorer.check()] == [name]
    columns, errors = BatchRunner(scorer)(batch([*rows, None]))
    with torch.inference_mode():
        expected = module(torch.tensor(np.array(rows, np.float32)))[:, 0].tolist()
    assert errors == {}
    assert columns["aesthetic"][:-1] == pytest.approx(expected, abs=1e-5)
    assert columns["aesthetic"][-1] is None


def test_relu_between_the_layers(tmp_path: Path) -> None:
    torch.manual_seed(2)
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 1))
    rows = embeddings(8)
    scorer = LaionAesthetic(LaionAestheticConfig(path=str(save(module, tmp_path / "h.pth")), activation="relu"))
    scorer.setup()
    with torch.inference_mode():
        expected = module(torch.tensor(np.array(rows, np.float32)))[:, 0].tolist()
    assert scorer.score(batch(rows))["aesthetic"] == pytest.approx(expected, abs=1e-5)


def test_a_linear_head(tmp_path: Path) -> None:
    module = nn.Linear(768, 1)
    scorer = LaionAesthetic(LaionAestheticConfig(path=str(save(module, tmp_path / "sa_0_4_vit_l_14_linear.pth", ""))))
    scorer.setup()
    rows = embeddings()
    with torch.inference_mode():
        expected = module(torch.tensor(np.array(rows, np.float32)))[:, 0].tolist()
    assert scorer.score(batch(rows))["aesthetic"] == pytest.approx(expected, abs=1e-5)


def test_layers_are_ordered_by_number_not_by_text(tmp_path: Path) -> None:
    """`layers.10` comes after `layers.2`."""
    torch.manual_seed(3)
    first, last = nn.Linear(4, 4), nn.Linear(4, 1)
    tensors = {"layers.10.weight": last.weight, "layers.10.bias": last.bias, "layers.2.weight": first.weight}
    save_file({name: value.detach().clone() for name, value in tensors.items()}, tmp_path / "h.safetensors")
    head = load_head(tmp_path / "h.safetensors")
    vector = np.arange(4.0)
    with torch.inference_mode():
        expected = last(torch.nn.functional.linear(torch.arange(4.0), first.weight)).item()
    assert float(head(vector)[0]) == pytest.approx(expected, abs=1e-5)


def test_a_row_does_not_depend_on_its_neighbours(tmp_path: Path) -> None:
    rows = embeddings(rows=9)
    config = {"path": str(save(published_mlp(), tmp_path / "h.pth"))}
    results = {
        size: BatchRunner(LaionAesthetic(LaionAestheticConfig(batch_size=size, **config)))(batch(rows))[0]["aesthetic"]
        for size in (1, 2, 5, 9)
    }
    assert all(result == results[1] for result in results.values())


def test_the_wrong_embedding_is_refused(tmp_path: Path) -> None:
    scorer = LaionAesthetic(LaionAestheticConfig(path=str(save(published_mlp(), tmp_path / "h.pth"))))
    with pytest.raises(ValueError, match=r"takes embeddings of 768 values.*makes 1280"):
        scorer.check_embedding(EfficientNetEmbeddingConfig())
    with pytest.raises(ValueError, match=r"makes 512"):
        scorer.check_embedding(OpenClipEmbeddingConfig(model="ViT-B-32"))
    scorer.check_embedding(OpenClipEmbeddingConfig())
    columns, errors = BatchRunner(scorer)(batch([embeddings()[0], embeddings(1280)[0]]))
    assert columns["aesthetic"][0] is not None
    assert columns["aesthetic"][1] is None
    assert "1280 values and this scorer's weights take 768" in errors[1]


def test_a_missing_head_says_what_where_and_how(tmp_path: Path) -> None:
    with pytest.raises(MissingWeightsError) as caught:
        LaionAesthetic(LaionAestheticConfig(path=str(tmp_path / "no.pth"))).check()
    for part in ("scorers.aesthetic.path", str(tmp_path / "no.pth"), "improved-aesthetic-predictor", "photographic"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "tensors",
    [
        {"layers.0.weight": (4, 8), "layers.1.weight": (1, 5)},
        {"layers.0.weight": (2, 8)},
        {"layers.0.bias": (8,)},
        {"layers.0.weight": (1, 8), "layers.0.bias": (3,)},
    ],
)
def test_tensors_that_are_no_head_are_refused(tmp_path: Path, tensors: dict[str, tuple[int, ...]]) -> None:
    save_file({name: torch.zeros(shape) for name, shape in tensors.items()}, tmp_path / "h.safetensors")
    with pytest.raises(ValueError, match="not a chain of linear layers"):
        load_head(tmp_path / "h.safetensors")


def test_the_path_is_not_part_of_the_identity() -> None:
    assert LaionAestheticConfig(path="/a/h.pth").identity() == LaionAestheticConfig(path="/b/h.pth").identity()
    relu = LaionAestheticConfig(path="/a/h.pth", activation="relu")
    assert relu.identity() != LaionAestheticConfig(path="/a/h.pth").identity()


def test_the_kind_chooses_the_scorer() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(AnyAestheticConfig)
    assert isinstance(build(adapter.validate_python({"kind": "photographic"})), PhotographicAesthetic)
    assert isinstance(build(adapter.validate_python({"kind": "laion"})), LaionAesthetic)


# Photographic quality


def test_the_formula() -> None:
    assert photographic_quality(**GOOD) == pytest.approx(
        (400 / 440) ** 0.35
        * (7.4 / 8) ** 0.2
        * (0.25 / 0.31) ** 0.15
        * 0.97**0.15
        * (1 - 0.1**3) ** 0.1
        * (55 / 65) ** 0.05
    )


@given(
    sharpness=st.floats(0, 20000),
    brightness=st.floats(0, 1),
    contrast=st.floats(0, 0.5),
    entropy=st.floats(0, 8),
    dark_share=st.floats(0, 0.5),
    bright_share=st.floats(0, 0.5),
    colourfulness=st.floats(0, 200),
    more=st.floats(0, 1),
)
def test_quality_is_monotone_and_between_0_and_1(more: float, **columns: float) -> None:
    quality = photographic_quality(**columns)
    assert 0 <= quality <= 1
    tolerance = 1e-12
    for name, top in {"sharpness": 20000, "contrast": 0.5, "entropy": 8, "colourfulness": 200}.items():
        better = columns | {name: columns[name] + more * (top - columns[name])}
        assert photographic_quality(**better) >= quality - tolerance
    for name in ("dark_share", "bright_share"):
        worse = columns | {name: columns[name] + more * (0.5 - columns[name])}
        assert photographic_quality(**worse) <= quality + tolerance
    nearer = columns | {"brightness": columns["brightness"] + more * (0.5 - columns["brightness"])}
    assert photographic_quality(**nearer) >= quality - tolerance


def test_damage_to_a_photograph_lowers_its_quality() -> None:
    cv2 = pytest.importorskip("cv2")
    picture = pytest.importorskip("skimage.data").astronaut()

    def quality(pixels: Any) -> float:
        columns = measure_pixels(pixels, ScreenConfig())
        return photographic_quality(**{name: columns[name] for name in QUALITY_COLUMNS})

    original = quality(picture)
    assert original > 0.85
    blurred = [quality(cv2.GaussianBlur(picture, (0, 0), sigma)) for sigma in (1, 2, 4)]
    darker = [quality((picture * gain).astype(np.uint8)) for gain in (0.5, 0.25, 0.1)]
    over = quality(np.clip(picture.astype(int) * 3, 0, 255).astype(np.uint8))
    flat = quality((picture * 0.2 + 100).astype(np.uint8))
    assert [original, *blurred] == sorted([original, *blurred], reverse=True)
    assert [original, *darker] == sorted([original, *darker], reverse=True)
    assert blurred[1] < 0.6
    assert darker[2] < 0.4
    assert over < original - 0.1
    assert flat < original - 0.2
    assert quality(np.full((64, 64, 3), 120, np.uint8)) == 0


def test_rows_with_a_missing_column_have_no_quality() -> None:
    scorer = PhotographicAesthetic(PhotographicConfig())
    columns = {name: [GOOD[name], GOOD[name]] for name in QUALITY_COLUMNS}
    columns["entropy"] = [None, GOOD["entropy"]]  # type: ignore[list-item]
    values = scorer.score(Batch(["a", "b"], [], columns))["aesthetic"]
    assert values == [None, photographic_quality(**GOOD)]
