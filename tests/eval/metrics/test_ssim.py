from __future__ import annotations

import numpy as np
import pytest
from skimage.metrics import structural_similarity

from eval.metrics.ssim import ssim_sums


@pytest.mark.parametrize("data_range", [1.0, 255.0])
def test_a_rectangle_is_what_scikit_image_says_of_it(data_range: float) -> None:
    random = np.random.Generator(np.random.Philox(key=1))
    a, b = random.random((2, 40, 34, 3)) * data_range
    mask = np.zeros((40, 34), dtype=bool)
    mask[3:30, 8:34] = True
    inside = (slice(3, 30), slice(8, 34))
    ssim = structural_similarity(
        a[inside], b[inside], data_range=data_range, channel_axis=2, gaussian_weights=True, sigma=1.5,
        use_sample_covariance=False,
    )  # fmt: skip
    (total, windows), (soft, soft_windows) = ssim_sums(a.transpose(2, 0, 1), b.transpose(2, 0, 1), mask, data_range)
    assert windows == (27 - 10) * (26 - 10)
    assert total / windows == pytest.approx(ssim, abs=1e-12)
    assert windows < soft_windows <= mask.sum()
    assert -soft_windows <= soft <= soft_windows


def test_an_empty_mask_has_no_windows() -> None:
    picture = np.zeros((3, 20, 20))
    assert ssim_sums(picture, picture, np.zeros((20, 20), dtype=bool)) == ((0.0, 0), (0.0, 0))
