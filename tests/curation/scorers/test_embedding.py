"""Embeddings: the right features, the same bits in any batch, and honest errors about open_clip's weights."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from safetensors.torch import save_file

from curation.records import Batch
from curation.scorers.base import BatchRunner, MissingWeightsError, ResourceConfig
from curation.scorers.embedding import AnyEmbeddingConfig, build, embedding_width
from curation.scorers.embedding_efficientnet import (
    EfficientNetEmbedding,
    EfficientNetEmbeddingConfig,
    weights_file,
)
from curation.scorers.embedding_openclip import OpenClipEmbedding, OpenClipEmbeddingConfig
from curation.scorers.openclip_model import preprocess
from curation.scorers.vectors import embedding_columns
from curation.scorers.weights import UnsafeWeightsError, load_tensors

open_clip = pytest.importorskip("open_clip")
data = pytest.importorskip("skimage.data")

SMALL_CLIP = {
    "embed_dim": 32,
    "vision_cfg": {"image_size": 64, "layers": 2, "width": 64, "head_width": 32, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}


@pytest.fixture(scope="module", autouse=True)
def two_threads_at_most() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def lite() -> EfficientNetEmbedding:
    scorer = EfficientNetEmbedding(EfficientNetEmbeddingConfig())
    scorer.setup()
    return scorer


@pytest.fixture(scope="module")
def pictures() -> list[npt.NDArray[np.uint8]]:
    random = np.random.default_rng(0)
    noise = [random.integers(0, 256, (40 + 30 * k, 300 - 20 * k, 3), dtype=np.uint8) for k in range(5)]
    return [data.chelsea(), data.coffee(), data.astronaut(), *noise]


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder as open_clip saves it, with random weights."""
    folder = tmp_path_factory.mktemp("clip")
    config = {"model_cfg": SMALL_CLIP, "preprocess_cfg": {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4]}}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    model = open_clip.create_model(f"local-dir:{folder}")
    save_file(
        {name: value.contiguous() for name, value in model.state_dict().items()}, folder / "open_clip_model.safetensors"
    )
    return folder


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def batch(pictures: list[npt.NDArray[np.uint8]]) -> Batch:
    return Batch([str(index) for index in range(len(pictures))], pictures, {})


def bits(columns: dict[str, Any]) -> list[bytes]:
    return [np.asarray(row, np.float16).tobytes() for row in columns["embedding"]]


# EfficientNet-Lite0


@pytest.mark.parametrize(
    ("picture", "classes"),
    [
        ("chelsea", {281: "tabby", 282: "tiger cat", 285: "Egyptian cat"}),
        ("coffee", {967: "espresso", 968: "cup", 504: "coffee mug"}),
        ("rocket", {657: "missile", 744: "projectile"}),
    ],
)
def test_the_features_classify_known_pictures(
    lite: EfficientNetEmbedding, picture: str, classes: dict[int, str]
) -> None:
    """Wrong scaling, channel order or cropping would show here: the package's own classifier is applied on top."""
    columns = lite.score(batch([getattr(data, picture)()]))
    features = np.asarray(columns["embedding"][0], np.float32) * columns["embedding_norm"][0]
    tensors = load_tensors(weights_file())
    logits = tensors["_fc.weight"].numpy() @ features + tensors["_fc.bias"].numpy()
    top5 = set(np.argsort(logits)[::-1][:5].tolist())
    assert set(list(classes)[:2]) <= top5
    assert int(np.argmax(logits)) in classes


def test_folding_batch_norms_keeps_the_function(lite: EfficientNetEmbedding) -> None:
    from efficientnet_lite_pytorch import EfficientNet

    plain = EfficientNet.from_name("efficientnet-lite0").eval()
    plain.load_state_dict(load_tensors(weights_file()), strict=True)
    images = torch.rand(1, 3, 224, 224) * 2 - 1
    with torch.inference_mode():
        torch.testing.assert_close(
            lite._network.extract_features(images), plain.extract_features(images), atol=2e-4, rtol=2e-4
        )


def test_a_picture_has_the_same_bits_in_any_batch_and_place(
    lite: EfficientNetEmbedding, pictures: list[npt.NDArray[np.uint8]]
) -> None:
    expected = [bits(lite.score(batch([picture])))[0] for picture in pictures]
    for size in range(2, 9):
        assert bits(lite.score(batch(pictures[:size]))) == expected[:size]
    assert bits(lite.score(batch(pictures[::-1]))) == expected[::-1]
    for size in (1, 3, 5, 8):
        scorer = EfficientNetEmbedding(EfficientNetEmbeddingConfig(batch_size=size))
        columns, errors = BatchRunner(scorer)(batch(pictures))
        assert errors == {}
        assert bits(columns) == expected


def test_two_cpus_give_the_same_bits_as_one(lite: EfficientNetEmbedding, pictures: list[npt.NDArray[np.uint8]]) -> None:
    expected = lite.score(batch(pictures[:4]))
    torch.set_num_threads(2)
    scorer = EfficientNetEmbedding(EfficientNetEmbeddingConfig(resources=ResourceConfig(num_cpus=2)))
    scorer.setup()
    assert bits(scorer.score(batch(pictures[:4]))) == bits(expected)
    assert torch.get_num_threads() == 2  # other scorers of the worker keep theirs
    torch.set_num_threads(1)


def test_the_columns_are_what_the_contract_says(
    lite: EfficientNetEmbedding, pictures: list[npt.NDArray[np.uint8]]
) -> None:
    columns = lite.score(batch(pictures))
    assert columns.keys() == lite.columns.keys()
    table = pa.table({name: pa.array(values, lite.columns[name]) for name, values in columns.items()})
    vectors = np.array(table["embedding"].to_pylist())
    assert vectors.shape == (len(pictures), 1280) == (len(pictures), embedding_width(lite.config))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
    assert min(table["embedding_norm"].to_pylist()) > 0


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (223, 225), (224, 224)])
def test_any_size_of_picture_has_an_embedding(lite: EfficientNetEmbedding, shape: tuple[int, int]) -> None:
    columns = lite.score(batch([np.full((*shape, 3), 200, np.uint8)]))
    assert np.isfinite(np.asarray(columns["embedding"][0], np.float32)).all()


def test_a_resized_copy_is_nearer_than_another_picture(
    lite: EfficientNetEmbedding, pictures: list[npt.NDArray[np.uint8]]
) -> None:
    cat = pictures[0]
    rows = lite.score(batch([cat, np.ascontiguousarray(cat[::2, ::2]), pictures[1]]))["embedding"]
    a, copy, other = (np.asarray(row, np.float32) for row in rows)
    assert a @ copy > 0.85
    assert a @ other < 0.5


def test_the_weights_are_recorded_without_loading(lite: EfficientNetEmbedding) -> None:
    (weights,) = EfficientNetEmbedding(EfficientNetEmbeddingConfig()).check()
    assert weights.name == "efficientnet-lite0-57934424.pth"
    assert weights.sha256.startswith("57934424")  # the name's number is the head of the content's hash


def test_zero_features_stay_zero_and_infinite_ones_are_an_error() -> None:
    columns = embedding_columns(np.zeros((1, 4)))
    assert columns["embedding_norm"] == [0]
    assert np.asarray(columns["embedding"][0]).tolist() == [0, 0, 0, 0]
    with pytest.raises(ValueError, match="infinite"):
        embedding_columns(np.array([[1.0, np.inf]]))


def test_the_kind_chooses_the_scorer() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(AnyEmbeddingConfig)
    assert isinstance(build(adapter.validate_python({"kind": "efficientnet_lite0"})), EfficientNetEmbedding)
    assert isinstance(build(adapter.validate_python({"kind": "open_clip"})), OpenClipEmbedding)
    with pytest.raises(ValidationError, match="efficientnet_lite0"):
        adapter.validate_python({"kind": "resnet"})


# open_clip


def test_open_clip_gives_what_its_own_transform_and_model_give(
    clip_folder: Path, pictures: list[npt.NDArray[np.uint8]]
) -> None:
    from PIL import Image

    scorer = OpenClipEmbedding(OpenClipEmbeddingConfig(model=f"local-dir:{clip_folder}", device="cpu"))
    scorer.setup()
    columns = scorer.score(batch(pictures))
    model, transform = open_clip.create_model_from_pretrained(f"local-dir:{clip_folder}")
    model.eval()
    with torch.inference_mode():
        expected = [model.encode_image(transform(Image.fromarray(picture))[None])[0].numpy() for picture in pictures]
    for row, norm, features in zip(columns["embedding"], columns["embedding_norm"], expected, strict=True):
        mine = np.asarray(row, np.float32)
        assert mine @ features / np.linalg.norm(features) > 0.9995
        assert norm == pytest.approx(np.linalg.norm(features), rel=0.02)


@pytest.mark.parametrize("mode", ["shortest", "longest", "squash"])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_resizing_agrees_with_the_library(mode: str, interpolation: str) -> None:
    from open_clip.transform import PreprocessCfg, image_transform_v2
    from PIL import Image

    settings = {"size": 64, "interpolation": interpolation, "resize_mode": mode, "fill_color": 0}
    reference = image_transform_v2(PreprocessCfg(mean=(0, 0, 0), std=(1, 1, 1), **settings), is_train=False)
    for picture in (data.chelsea(), data.astronaut()[:, :201].copy(), data.coffee()[:50, :40].copy()):
        expected = reference(Image.fromarray(picture)).numpy() * 255
        mine = preprocess(picture, settings, "cpu").numpy().astype(np.float32)
        assert mine.shape == (3, 64, 64)
        # One pixel of rounding may move the crop of the longer side; the picture stays the same.
        assert np.abs(mine - expected).mean() < 1.5


def test_open_clip_has_the_same_bits_in_any_batch(clip_folder: Path, pictures: list[npt.NDArray[np.uint8]]) -> None:
    expected = None
    for size in (1, 2, 3, 5, 8):
        config = OpenClipEmbeddingConfig(model=f"local-dir:{clip_folder}", device="cpu", batch_size=size)
        columns, errors = BatchRunner(OpenClipEmbedding(config))(batch(pictures))
        assert errors == {}
        expected = expected or bits(columns)
        assert bits(columns) == expected


def test_the_padded_batch_of_a_gpu_gives_every_row_its_own_embedding(
    clip_folder: Path, pictures: list[npt.NDArray[np.uint8]]
) -> None:
    """The path that a GPU takes, run on the CPU: full, partial and padded calls."""
    scorer = OpenClipEmbedding(OpenClipEmbeddingConfig(model=f"local-dir:{clip_folder}", device="cpu"))
    scorer.setup()
    expected = np.array(scorer.score(batch(pictures))["embedding"], np.float32)
    scorer._device, scorer._padded = "cpu:0", 3  # not "cpu", so that the batched path is taken
    padded = np.array(
        [row for start in (0, 3, 6) for row in scorer.score(batch(pictures[start : start + 3]))["embedding"]],
        np.float32,
    )
    np.testing.assert_allclose(padded, expected, atol=2e-3)


def test_out_of_memory_halves_the_padded_batch_too(
    clip_folder: Path, pictures: list[npt.NDArray[np.uint8]], monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = OpenClipEmbedding(OpenClipEmbeddingConfig(model=f"local-dir:{clip_folder}", device="cpu", batch_size=8))
    scorer.setup()
    scorer._device, scorer._padded = "cpu:0", 8
    tower, sizes = scorer._tower, []

    def small_memory(images: torch.Tensor) -> torch.Tensor:
        sizes.append(len(images))
        if len(images) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return tower(images)

    scorer._tower = small_memory
    monkeypatch.setattr(scorer, "setup", lambda: None)
    runner = BatchRunner(scorer)
    columns, errors = runner(batch(pictures))
    assert errors == {}
    assert all(row is not None for row in columns["embedding"])
    assert sizes == [8, 4, 2, 2, 2, 2]
    assert runner.batch_size == 2


def test_half_precision_stays_near(clip_folder: Path, pictures: list[npt.NDArray[np.uint8]]) -> None:
    rows = []
    for precision in ("fp32", "bf16"):
        config = OpenClipEmbeddingConfig(model=f"local-dir:{clip_folder}", device="cpu", precision=precision)
        scorer = OpenClipEmbedding(config)
        scorer.setup()
        rows.append(np.array(scorer.score(batch(pictures[:3]))["embedding"], np.float32))
    assert ((rows[0] * rows[1]).sum(axis=1) > 0.99).all()


@pytest.mark.filterwarnings("error", "ignore::ResourceWarning")  # unclosed files are other tests' garbage
def test_read_only_pixels_from_shared_memory_are_fine(clip_folder: Path, lite: EfficientNetEmbedding) -> None:
    scorer = OpenClipEmbedding(OpenClipEmbeddingConfig(model=f"local-dir:{clip_folder}", device="cpu"))
    scorer.setup()
    picture = data.chelsea().copy()
    frozen = picture.copy()
    frozen.flags.writeable = False
    for one in (scorer, lite):
        assert bits(one.score(batch([frozen]))) == bits(one.score(batch([picture])))


def test_only_the_image_tower_is_kept(clip_folder: Path) -> None:
    scorer = OpenClipEmbedding(OpenClipEmbeddingConfig(model=f"local-dir:{clip_folder}", device="cpu"))
    scorer.setup()
    names = {name for name, _ in scorer._tower.named_parameters()}
    assert not any("token" in name or "text" in name for name in names)


def test_weights_and_configuration_are_hashed(clip_folder: Path) -> None:
    scorer = OpenClipEmbedding(OpenClipEmbeddingConfig(model=f"local-dir:{clip_folder}"))
    assert [item.name for item in scorer.check()] == ["open_clip_model.safetensors", "open_clip_config.json"]
    assert embedding_width(scorer.config) == 32


def test_a_moved_folder_has_the_same_identity_and_another_precision_another(clip_folder: Path) -> None:
    here = OpenClipEmbeddingConfig(model=f"local-dir:{clip_folder}")
    there = OpenClipEmbeddingConfig(model="local-dir:/elsewhere", device="cpu", cache_dir="/cache")
    assert here.identity() == there.identity()
    assert here.identity() != OpenClipEmbeddingConfig(model=f"local-dir:{clip_folder}", precision="bf16").identity()
    file = OpenClipEmbeddingConfig(model="ViT-S-32", pretrained="/a/w.safetensors")
    assert file.identity() == OpenClipEmbeddingConfig(model="ViT-S-32", pretrained="/b/w.safetensors").identity()
    assert file.identity() != OpenClipEmbeddingConfig(model="ViT-B-32", pretrained="/b/w.safetensors").identity()


def test_a_worker_with_other_weights_stops(clip_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in clip_folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    scorer = OpenClipEmbedding(OpenClipEmbeddingConfig(model=f"local-dir:{copy}", device="cpu"))
    scorer.check()
    tensors = {name: value + 1 for name, value in load_tensors(copy / "open_clip_model.safetensors").items()}
    save_file(tensors, copy / "open_clip_model.safetensors")
    with pytest.raises(MissingWeightsError, match="the same file on every node"):
        pickle.loads(pickle.dumps(scorer)).setup()


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".bin"])
def test_a_checkpoint_file_loads_strictly(clip_folder: Path, tmp_path: Path, suffix: str) -> None:
    """A registered architecture with a file: it loads where the tensors fit, and says so where they do not."""
    open_clip.add_model_config(_registered(tmp_path))
    tensors = load_tensors(clip_folder / "open_clip_model.safetensors")
    file = tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(tensors, file)
    else:
        torch.save({"state_dict": tensors}, file)
    config = OpenClipEmbeddingConfig(model="populace-test-clip", pretrained=str(file), device="cpu")
    scorer = OpenClipEmbedding(config)
    assert [item.name for item in scorer.check()] == [file.name]
    scorer.setup()
    assert len(scorer.score(batch([data.chelsea()]))["embedding"][0]) == 32
    wrong = OpenClipEmbedding(OpenClipEmbeddingConfig(model="ViT-S-32", pretrained=str(file), device="cpu"))
    with pytest.raises(ValueError, match=r"does not fit open_clip's ViT-S-32"):
        wrong.setup()


def test_a_malicious_checkpoint_does_not_run(tmp_path: Path) -> None:
    class Malicious:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "it-ran"),)

    torch.save({"state_dict": {"visual.proj": Malicious()}}, tmp_path / "w.pt")
    scorer = OpenClipEmbedding(
        OpenClipEmbeddingConfig(model="ViT-S-32", pretrained=str(tmp_path / "w.pt"), device="cpu")
    )
    scorer.check()
    with pytest.raises(UnsafeWeightsError, match="more than tensors"):
        scorer.setup()
    assert not (tmp_path / "it-ran").exists()


@pytest.mark.usefixtures("offline")
def test_a_tag_that_is_not_in_the_cache_says_what_where_and_how(tmp_path: Path) -> None:
    scorer = OpenClipEmbedding(OpenClipEmbeddingConfig(cache_dir=str(tmp_path)))
    with pytest.raises(MissingWeightsError) as caught:
        scorer.check()
    message = str(caught.value)
    for part in (
        "ViT-L-14-quickgelu",
        "tag openai",
        "open_clip_model.safetensors",
        "timm/vit_large_patch14_clip_224.openai",
        str(tmp_path),
        "HF_HUB_OFFLINE is set",
        "hf download",
    ):
        assert part in message


@pytest.mark.usefixtures("offline")
def test_a_tag_in_the_cache_is_found_and_safetensors_come_first(tmp_path: Path) -> None:
    repository = tmp_path / "models--timm--vit_large_patch14_clip_224.openai"
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    (snapshot / "open_clip_pytorch_model.bin").write_bytes(b"a pickle")
    scorer = OpenClipEmbedding(OpenClipEmbeddingConfig(cache_dir=str(tmp_path)))
    assert [item.name for item in scorer.check()] == ["open_clip_pytorch_model.bin"]
    (snapshot / "open_clip_model.safetensors").write_bytes(b"tensors")
    assert [item.name for item in scorer.check()] == ["open_clip_model.safetensors"]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"model": "ViT-L-41"}, ValueError, "near names: .*ViT-L-14"),
        ({"pretrained": "nonsense"}, ValueError, "tags: .*openai"),
        ({"pretrained": "./no/such.safetensors"}, MissingWeightsError, "nothing is there"),
        ({"model": "local-dir:/no/such/folder"}, MissingWeightsError, "open_clip_config.json"),
    ],
)
def test_a_wrong_name_is_explained(settings: dict[str, str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        OpenClipEmbedding(OpenClipEmbeddingConfig(**settings)).check()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_cuda_without_a_gpu_is_explained(clip_folder: Path) -> None:
    scorer = OpenClipEmbedding(OpenClipEmbeddingConfig(model=f"local-dir:{clip_folder}", device="cuda"))
    with pytest.raises(ValueError, match="PyTorch sees no GPU"):
        scorer.setup()


def _registered(folder: Path) -> Path:
    path = folder / "populace-test-clip.json"
    path.write_text(json.dumps(SMALL_CLIP))
    return path
