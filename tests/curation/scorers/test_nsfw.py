"""The NSFW head: the published layouts, the direction of the score, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from curation.records import Batch
from curation.scorers.base import BatchRunner, MissingWeightsError
from curation.scorers.embedding_efficientnet import EfficientNetEmbeddingConfig
from curation.scorers.embedding_openclip import OpenClipEmbeddingConfig
from curation.scorers.nsfw import NsfwConfig, NsfwScorer


class Normalisation(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.randn(width) * 0.1)
        self.register_buffer("variance", torch.rand(width) + 0.5)


class Detector(nn.Module):
    """LAION's CLIP-based-NSFW-Detector: stored normalisation, four layers with ReLU, sigmoid."""

    def __init__(self, width: int = 768) -> None:
        super().__init__()
        self.norm = Normalisation(width)
        self.linear_1, self.linear_2 = nn.Linear(width, 64), nn.Linear(64, 512)
        self.linear_3, self.linear_4 = nn.Linear(512, 256), nn.Linear(256, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (x - self.norm.mean) / self.norm.variance.sqrt()
        for layer in (self.linear_1, self.linear_2, self.linear_3):
            x = torch.relu(layer(x))
        return torch.sigmoid(self.linear_4(x))


@pytest.fixture
def detector() -> Detector:
    torch.manual_seed(0)
    return Detector().eval()


@pytest.fixture
def head(detector: Detector, tmp_path: Path) -> str:
    save_file(detector.state_dict(), tmp_path / "nsfw.safetensors")
    return str(tmp_path / "nsfw.safetensors")


def rows(width: int = 768, count: int = 5) -> list[Any]:
    vectors = np.random.default_rng(1).normal(size=(count, width))
    return list((vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16))


def batch(entries: list[Any]) -> Batch:
    return Batch([str(index) for index in range(len(entries))], [], {"embedding": entries})


def test_the_published_layout_gives_what_pytorch_gives(detector: Detector, head: str) -> None:
    entries = rows()
    scorer = NsfwScorer(NsfwConfig(path=head, batch_size=2))
    assert [item.name for item in scorer.check()] == ["nsfw.safetensors"]
    columns, errors = BatchRunner(scorer)(batch([*entries, None]))
    with torch.inference_mode():
        expected = detector(torch.tensor(np.array(entries, np.float32)))[:, 0].tolist()
    assert errors == {}
    assert columns["nsfw"][:-1] == pytest.approx(expected, abs=1e-6)
    assert columns["nsfw"][-1] is None


def test_a_head_of_safe_probability_is_turned_round(head: str) -> None:
    plain, turned = NsfwScorer(NsfwConfig(path=head)), NsfwScorer(NsfwConfig(path=head, inverted=True))
    for scorer in (plain, turned):
        scorer.setup()
    for a, b in zip(plain.score(batch(rows()))["nsfw"], turned.score(batch(rows()))["nsfw"], strict=True):
        assert a + b == pytest.approx(1)


@pytest.mark.parametrize(("bias", "expected"), [(1000.0, 1.0), (-1000.0, 0.0), (0.0, 0.5)])
def test_extreme_logits_stay_probabilities(tmp_path: Path, bias: float, expected: float) -> None:
    save_file({"weight": torch.zeros(1, 4), "bias": torch.tensor([bias])}, tmp_path / "h.safetensors")
    scorer = NsfwScorer(NsfwConfig(path=str(tmp_path / "h.safetensors")))
    scorer.setup()
    assert scorer.score(batch(rows(4, 1)))["nsfw"] == [pytest.approx(expected)]


def test_a_head_that_gives_a_probability_is_clipped_not_squashed(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(1, 4), "bias": torch.tensor([1.2])}, tmp_path / "h.safetensors")
    scorer = NsfwScorer(NsfwConfig(path=str(tmp_path / "h.safetensors"), sigmoid=False))
    scorer.setup()
    assert scorer.score(batch(rows(4, 1)))["nsfw"] == [1.0]


def test_the_wrong_embedding_is_refused(head: str) -> None:
    scorer = NsfwScorer(NsfwConfig(path=head))
    scorer.check_embedding(OpenClipEmbeddingConfig())
    with pytest.raises(ValueError, match="takes embeddings of 768 values"):
        scorer.check_embedding(EfficientNetEmbeddingConfig())
    _, errors = BatchRunner(scorer)(batch(rows(512, 1)))
    assert "512 values" in errors[0]


def test_a_missing_head_says_what_where_and_how(tmp_path: Path) -> None:
    with pytest.raises(MissingWeightsError) as caught:
        NsfwScorer(NsfwConfig(path=str(tmp_path / "no.pth"))).check()
    for part in ("scorers.nsfw.path", str(tmp_path / "no.pth"), "CLIP-based-NSFW-Detector"):
        assert part in str(caught.value)


def test_another_head_changes_the_fingerprint(head: str, tmp_path: Path) -> None:
    scorer = NsfwScorer(NsfwConfig(path=head))
    before = scorer.model_fingerprint(scorer.check())
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    (copy / "nsfw.safetensors").write_bytes(Path(head).read_bytes())
    moved = NsfwScorer(NsfwConfig(path=str(copy / "nsfw.safetensors")))
    assert moved.model_fingerprint(moved.check()) == before
    save_file({name: value + 1 for name, value in Detector().state_dict().items()}, head)
    assert scorer.model_fingerprint(scorer.check()) != before
