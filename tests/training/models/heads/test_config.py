"""A head that cannot work is refused when it is configured."""

from __future__ import annotations

import pytest

from training.models.heads import NormalHeadConfig, PointmapHeadConfig, PoseHeadConfig


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"in_channels": 0}, "in_channels is 0"),
        ({"out_channels": 2.0}, "out_channels is 2.0"),
        ({"deconv_channels": ()}, "deconv_channels is .*at least 1"),
        ({"deconv_channels": (8, -1)}, r"deconv_channels\[1\] is -1"),
        ({"conv_channels": [8]}, "conv_channels is .*tuple"),
        ({"deconv_kernel": 5}, "deconv_kernel is 5; 2, 3 and 4"),
        ({"conv_kernel": 2}, "conv_kernel is 2; give an odd size"),
    ],
)
def test_bad_deconvolution_heads(changes: dict[str, object], message: str) -> None:
    good: dict[str, object] = {"in_channels": 8, "deconv_channels": (8,), "conv_channels": (8,)}
    PoseHeadConfig(**good)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        PoseHeadConfig(**(good | changes))  # type: ignore[arg-type]


def test_bad_dense_heads() -> None:
    with pytest.raises(ValueError, match="upsample_channels is"):
        NormalHeadConfig(8, (), (8,))
    with pytest.raises(ValueError, match="conv_kernel is 4"):
        NormalHeadConfig(8, (8,), (8,), conv_kernel=4)


def test_a_grid_that_shrinks_to_one_value_is_refused() -> None:
    with pytest.raises(ValueError, match="grid 8x8 shrinks to 1x1"):
        PointmapHeadConfig(8, (8,), (8,), grid=(8, 8))
    with pytest.raises(ValueError, match="grid is 64"):
        PointmapHeadConfig(8, (8,), (8,), grid=64)  # type: ignore[arg-type]


@pytest.mark.parametrize(("grid", "expected"), [((64, 48), (8, 6)), ((16, 12), (2, 2)), ((9, 8), (2, 1))])
def test_the_scale_branch_halves_the_grid_three_times_rounding_up(
    grid: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert PointmapHeadConfig(8, (8,), (8,), grid=grid).scale_grid == expected
