"""Helpers of the dense tasks: masks that train, mirrored vectors, shapes that are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from training.tasks import frames
from training.tasks.dense_task import (
    DenseConfig,
    channels_first,
    check_output,
    check_single,
    mirrored_vectors,
    rejected_mask,
    turned_back,
)


@pytest.mark.parametrize(("count", "reason"), [(15, "min_pixels"), (16, None), (96, None), (97, "max_share")])
def test_masks_of_too_few_and_too_many_pixels_are_left_out(count: int, reason: str | None) -> None:
    mask = (np.arange(100) < count).reshape(10, 10)
    found = rejected_mask(mask, DenseConfig())
    assert (found is None) == (reason is None)
    assert reason is None or reason in str(found)


def test_mirroring_vectors_is_an_involution_that_negates_x() -> None:
    vectors = torch.arange(24.0).reshape(1, 3, 2, 4)
    mirrored = mirrored_vectors(vectors)
    assert mirrored[0, :, 1, 0].tolist() == [-7.0, 15.0, 23.0]
    assert bool((mirrored_vectors(mirrored) == vectors).all())


def test_turning_back_undoes_the_frame_in_half_precision_too() -> None:
    frame = frames.rotate((4, 4), 30).mirrored()
    rng = np.random.Generator(np.random.Philox(key=1))
    vectors = rng.normal(size=(4, 4, 3)).astype(np.float32)
    turned = channels_first((vectors @ frame.rotation().T).astype(np.float32))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = turned_back(turned, frame)
    torch.testing.assert_close(found, channels_first(vectors), rtol=0, atol=1e-5)


def test_outputs_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="29"):
        check_output(torch.zeros(1, 28, 2, 2), 29, "logits")
    with pytest.raises(ValueError, match=r"output\[i\]"):
        check_single(torch.zeros(2, 3, 2, 2), 3, "normals")
    assert check_single(torch.zeros(1, 3, 2, 2), 3, "normals").shape == (3, 2, 2)
