"""Class shares of patches against loops, and an encoder that is left as it was."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.probe.features import class_shares, feature_maps, frozen, predictions, rows
from eval.probe.labelled import IGNORE
from training.models.backbone import Backbone
from training.models.config import BackboneConfig


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 4), st.integers(1, 3), st.integers(1, 3))
def test_shares_are_counts(seed: int, classes: int, height: int, width: int) -> None:
    labels = np.random.default_rng(seed).choice([*range(classes), IGNORE], (2, 2 * height, 3 * width)).astype(np.uint8)
    shares, labelled = class_shares(torch.from_numpy(labels), classes, (2, 3))
    for image, row, column in np.ndindex(2, 2, 3):
        patch = labels[image, row * height : (row + 1) * height, column * width : (column + 1) * width]
        known = patch[patch != IGNORE]
        expected = [np.mean(known == c) if known.size else 0.0 for c in range(classes)]
        np.testing.assert_allclose(shares[image, :, row, column], expected, atol=1e-6)
        np.testing.assert_allclose(labelled[image, row, column], known.size / patch.size, atol=1e-6)


def test_rows_are_in_the_order_of_patches() -> None:
    maps = torch.arange(2 * 3 * 4 * 5).view(2, 3, 4, 5)
    assert rows(maps)[1 * 20 + 2 * 5 + 3].tolist() == maps[1, :, 2, 3].tolist()


def test_predictions_interpolate_logits() -> None:
    logits = torch.zeros(1, 2, 1, 2)
    logits[0, 1, 0] = torch.tensor([-1.0, 2.0])
    # At pixel centres between two patches of 4: -1 outside, then -0.625, 0.125, 0.875, 1.625, then 2.
    assert predictions(logits, (4, 8))[0, 0].tolist() == [0, 0, 0, 1, 1, 1, 1, 1]


def test_features_are_the_frozen_encoders() -> None:
    config = BackboneConfig(width=16, depth=1, heads=2, ffn_width=16, image_size=(32, 32), full_kv_blocks=1)
    backbone = Backbone(config).train()
    images = torch.randint(0, 256, (3, 3, 32, 48), dtype=torch.uint8)
    with frozen(backbone):
        assert not backbone.training
        maps = list(feature_maps(backbone, images, 2, torch.device("cpu")))
    assert backbone.training
    assert [tuple(part.shape) for part in maps] == [(2, 16, 2, 3), (1, 16, 2, 3)]
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    normalised = (images.float() / 255 - mean[:, None, None]) / std[:, None, None]
    expected = backbone(normalised)[0][:, config.front_tokens :]
    torch.testing.assert_close(torch.cat(maps).flatten(2).mT, expected.detach(), atol=1e-4, rtol=0)
    assert not maps[0].requires_grad
