"""Realism: photographs score above drawings, and zero-shot prompts compute what open_clip computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from safetensors.torch import save_file

from curation.records import Batch
from curation.scorers.base import BatchRunner, MissingWeightsError
from curation.scorers.embedding_efficientnet import EfficientNetEmbedding, EfficientNetEmbeddingConfig, weights_file
from curation.scorers.embedding_openclip import OpenClipEmbedding, OpenClipEmbeddingConfig
from curation.scorers.realism import AnyRealismConfig, build
from curation.scorers.realism_clip import ClipPromptsConfig, ClipPromptsRealism
from curation.scorers.realism_imagenet import GRAPHIC_CLASSES, ImageNetClassesConfig, ImageNetClassesRealism

open_clip = pytest.importorskip("open_clip")
data = pytest.importorskip("skimage.data")
cv2 = pytest.importorskip("cv2")

Picture = npt.NDArray[np.uint8]


def embed(pictures: list[Picture]) -> dict[str, list[Any]]:
    columns, errors = BatchRunner(EfficientNetEmbedding(EfficientNetEmbeddingConfig()))(
        Batch([str(k) for k in range(len(pictures))], pictures, {})
    )
    assert errors == {}
    return columns


def columns_only(columns: dict[str, list[Any]]) -> Batch:
    return Batch([str(k) for k in range(len(columns["embedding"]))], [], columns)


def shapes(seed: int) -> Picture:
    """Flat shapes on a plain ground."""
    random = np.random.default_rng(seed)
    picture = np.full((480, 640, 3), random.integers(150, 255, 3), np.uint8)
    for _ in range(12):
        colour = tuple(int(value) for value in random.integers(0, 255, 3))
        if random.random() < 0.5:
            centre = tuple(int(value) for value in random.integers(0, 480, 2))
            cv2.circle(picture, centre, int(random.integers(20, 120)), colour, -1, cv2.LINE_AA)
        else:
            cv2.fillPoly(picture, [random.integers(0, 600, (5, 2)).astype(np.int32)], colour, cv2.LINE_AA)
    return picture


def cartoon(seed: int) -> Picture:
    """Three stick people on grass, with black outlines."""
    random = np.random.default_rng(seed)
    picture = np.full((480, 640, 3), (200, 230, 255), np.uint8)
    cv2.rectangle(picture, (0, 330), (640, 480), (90, 190, 90), -1)
    for k in range(3):
        x = int(120 + 200 * k + random.integers(-20, 20))
        cv2.circle(picture, (x, 150), 50, (255, 220, 190), -1, cv2.LINE_AA)
        cv2.circle(picture, (x, 150), 50, (0, 0, 0), 3, cv2.LINE_AA)
        for eye in (-18, 18):
            cv2.circle(picture, (x + eye, 140), 6, (0, 0, 0), -1)
            cv2.line(picture, (x + eye, 340), (x + eye, 440), (0, 0, 0), 6)
        cv2.ellipse(picture, (x, 165), (22, 14), 0, 0, 180, (0, 0, 0), 3, cv2.LINE_AA)
        shirt = tuple(int(value) for value in random.integers(0, 255, 3))
        cv2.rectangle(picture, (x - 45, 200), (x + 45, 340), shirt, -1)
        cv2.rectangle(picture, (x - 45, 200), (x + 45, 340), (0, 0, 0), 3)
    return picture


def page(seed: int) -> Picture:
    """Black words on white."""
    random = np.random.default_rng(seed)
    picture = np.full((640, 480, 3), 255, np.uint8)
    for y in range(40, 620, 24):
        words = ("".join(chr(97 + int(c)) for c in random.integers(0, 26, random.integers(3, 9))) for _ in range(6))
        cv2.putText(picture, " ".join(words), (20, y), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (0, 0, 0), 1, cv2.LINE_AA)
    return picture


def test_photographs_score_above_drawings() -> None:
    """Drawings of other seeds than those on which the classes were chosen; a threshold separates all of these."""
    grey = data.camera()
    photographs = [data.astronaut(), data.chelsea(), data.coffee(), data.rocket(), np.repeat(grey[..., None], 3, 2)]
    drawings = [shapes(k) for k in range(100, 104)] + [cartoon(k) for k in range(100, 103)] + [page(k) for k in (1, 2)]
    scorer = ImageNetClassesRealism(ImageNetClassesConfig())
    scorer.setup()
    result = scorer.score(columns_only(embed([*photographs, *drawings])))
    realism = result["realism"]
    assert min(realism[: len(photographs)]) > 0.95
    assert max(realism[len(photographs) :]) < 0.94
    assert np.median(realism[len(photographs) :]) < 0.8
    assert set(result["realism_graphic"]) <= set(GRAPHIC_CLASSES.values())
    assert result["realism_graphic"][-2:] == ["web site", "web site"]


def test_the_mass_is_that_of_the_packages_own_classifier() -> None:
    """Column arithmetic (embedding, norm, last layer) against the whole network in PyTorch."""
    from efficientnet_lite_pytorch import EfficientNet

    from curation.scorers.embedding_efficientnet import preprocess
    from curation.scorers.weights import load_tensors

    network = EfficientNet.from_name("efficientnet-lite0").eval()
    network.load_state_dict(load_tensors(weights_file()), strict=True)
    pictures = [cartoon(0), data.coffee()]
    with torch.inference_mode():
        images = torch.stack([torch.from_numpy(preprocess(picture)).permute(2, 0, 1) for picture in pictures])
        masses = network(images).softmax(dim=1)[:, list(GRAPHIC_CLASSES)].sum(dim=1)
    scorer = ImageNetClassesRealism(ImageNetClassesConfig())
    scorer.setup()
    realism = scorer.score(columns_only(embed(pictures)))["realism"]
    assert realism == pytest.approx((1 - masses).tolist(), abs=2e-3)  # the embedding is stored as float16


def test_rows_without_an_embedding_have_no_realism_and_the_wrong_width_is_an_error() -> None:
    vector = np.full(1280, 1280**-0.5, np.float16)
    columns = {"embedding": [vector, None, vector[:768]], "embedding_norm": [10.0, None, 10.0]}
    result, errors = BatchRunner(ImageNetClassesRealism(ImageNetClassesConfig()))(columns_only(columns))
    assert result["realism"][0] is not None
    assert result["realism"][1:] == [None, None]
    assert list(errors) == [2]
    assert "768 values and this scorer's weights take 1280" in errors[2]


def test_class_configuration() -> None:
    assert ImageNetClassesConfig(classes=(917, 916)).classes == (916, 917)
    for wrong in ((1,), ()):
        with pytest.raises(ValidationError, match="classes must be some of"):
            ImageNetClassesConfig(classes=wrong)


def test_class_realism_wants_the_embedded_embedding() -> None:
    scorer = ImageNetClassesRealism(ImageNetClassesConfig())
    scorer.check_embedding(EfficientNetEmbeddingConfig())
    with pytest.raises(ValueError, match=r"needs scorers\.embedding kind efficientnet_lite0, not open_clip"):
        scorer.check_embedding(OpenClipEmbeddingConfig())
    assert [item.name for item in scorer.check()] == ["efficientnet-lite0-57934424.pth"]


def test_the_kind_chooses_the_scorer() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(AnyRealismConfig)
    assert isinstance(build(adapter.validate_python({"kind": "imagenet_classes"})), ImageNetClassesRealism)
    assert isinstance(build(adapter.validate_python({"kind": "clip_prompts"})), ClipPromptsRealism)


# Zero-shot prompts


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clip")
    config = {
        "embed_dim": 32,
        "vision_cfg": {"image_size": 64, "layers": 2, "width": 64, "head_width": 32, "patch_size": 16},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
    }
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": {}}))
    torch.manual_seed(0)
    model = open_clip.create_model(f"local-dir:{folder}")
    tensors = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(tensors, folder / "open_clip_model.safetensors")
    return folder


def clip_scorer(folder: Path, **settings: Any) -> ClipPromptsRealism:
    scorer = ClipPromptsRealism(ClipPromptsConfig(model=f"local-dir:{folder}", **settings))
    scorer.setup()
    return scorer


def clip_embeddings(folder: Path) -> dict[str, Any]:
    scorer = OpenClipEmbedding(OpenClipEmbeddingConfig(model=f"local-dir:{folder}", device="cpu"))
    scorer.setup()
    return dict(scorer.score(Batch(["a", "b"], [data.chelsea(), cartoon(0)], {})))


def test_two_prompts_give_the_softmax_of_open_clip(clip_folder: Path) -> None:
    columns = clip_embeddings(clip_folder)
    result = clip_scorer(clip_folder, photo=("a photo",), graphic=("a drawing",)).score(columns_only(columns))
    model = open_clip.create_model(f"local-dir:{clip_folder}").eval()
    with torch.inference_mode():
        text = model.encode_text(open_clip.get_tokenizer(f"local-dir:{clip_folder}")(["a photo", "a drawing"]))
        text = torch.nn.functional.normalize(text, dim=1)
        image = torch.tensor(np.array(columns["embedding"], np.float32))
        expected = (model.logit_scale.exp() * image @ text.T).softmax(dim=1)[:, 0]
    assert result["realism"] == pytest.approx(expected.tolist(), abs=1e-4)
    assert result["realism_graphic"] == ["a drawing", "a drawing"]


def test_repeating_a_prompt_does_not_change_the_score(clip_folder: Path) -> None:
    batch = columns_only(clip_embeddings(clip_folder))
    once = clip_scorer(clip_folder, photo=("a photo",), graphic=("a drawing",)).score(batch)
    often = clip_scorer(clip_folder, photo=("a photo",) * 3, graphic=("a drawing",) * 7).score(batch)
    assert often["realism"] == pytest.approx(once["realism"], abs=1e-9)


def test_the_best_graphic_prompt_is_named(clip_folder: Path) -> None:
    """An embedding that is a prompt's own text feature is nearest to that prompt."""
    scorer = clip_scorer(clip_folder)
    photos = len(scorer.config.photo)
    vectors = [scorer._text[photos + 3].astype(np.float16), scorer._text[0].astype(np.float16), None]
    result = scorer.score(columns_only({"embedding": vectors}))
    assert result["realism_graphic"][0] == scorer.config.graphic[3]
    assert result["realism"][0] < 0.5 < result["realism"][1]
    assert (result["realism"][2], result["realism_graphic"][2]) == (None, None)


def test_prompts_and_weights_are_the_identity(clip_folder: Path) -> None:
    scorer = ClipPromptsRealism(ClipPromptsConfig(model=f"local-dir:{clip_folder}"))
    weights = scorer.check()
    assert [item.name for item in weights] == ["open_clip_model.safetensors", "open_clip_config.json"]
    other = ClipPromptsRealism(ClipPromptsConfig(model=f"local-dir:{clip_folder}", photo=("a selfie",)))
    assert scorer.model_fingerprint(weights) != other.model_fingerprint(weights)
    assert not scorer.needs_pixels


def test_text_and_image_features_must_be_of_one_model(clip_folder: Path) -> None:
    scorer = ClipPromptsRealism(ClipPromptsConfig())
    scorer.check_embedding(OpenClipEmbeddingConfig())
    for wrong in (OpenClipEmbeddingConfig(model="ViT-B-32"), EfficientNetEmbeddingConfig()):
        with pytest.raises(ValueError, match="must come from the same model"):
            scorer.check_embedding(wrong)
    vector = np.zeros(1280, np.float16)
    _, errors = BatchRunner(clip_scorer(clip_folder))(columns_only({"embedding": [vector]}))
    assert "1280 values" in errors[0]


def test_a_missing_model_is_explained(tmp_path: Path) -> None:
    with pytest.raises(MissingWeightsError, match=r"ViT-L-14-quickgelu.*HF_HUB_OFFLINE is set"):
        ClipPromptsRealism(ClipPromptsConfig(cache_dir=str(tmp_path))).check()


def test_prompt_lists_must_not_be_empty() -> None:
    with pytest.raises(ValidationError):
        ClipPromptsConfig(photo=())
