"""Keypoints as heatmaps and back, without quantisation: UDP encoding, sub-pixel decoding, flip test.

A keypoint at frame pixel x is at x (w - 1) / (W - 1) of a heatmap w wide, whose outermost pixel centres are those of
the frame (UDP, Huang et al. 2020; fact 6.3).

Decoders:

- `dark`: the released one (fact 6.3; DARK, Zhang et al. 2020): blur, logarithm, one Newton step from the maximum. Its
  blur takes what is outside of the map as 0, which pulls keypoints near the border inwards, by pixels.
- `fit`: ours: a parabola through the logarithms of the window around the maximum, by least squares with the heatmap's
  squares as weights. The window is moved inwards at the border, so that there is no bias there. The default: it is
  the more exact one with noise, too, and on a CPU the quicker one.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Size = tuple[int, int]  # height, width
Decoder = Literal["dark", "fit"]

RELEASED_SIGMA = 6.0  # pixels of a heatmap 256 high (released configuration, fact 6.3)
RELEASED_HEIGHT = 256
RELEASED_KERNEL = 11  # width of DARK's blur for that sigma (released configuration)

_WINDOW = 3.0  # sigmas around a keypoint beyond which a heatmap is 0 (released)
_FLOOR, _CEILING = 1e-3, 50.0  # of values whose logarithm is taken (released)
_EPS = 1.1920929e-07  # on the diagonal of DARK's Hessian: of float32 (released)


def default_sigma(size: Size) -> float:
    """Standard deviation of a keypoint in pixels of a heatmap of this size: 6 at a height of 256 (released)."""
    return RELEASED_SIGMA * size[0] / RELEASED_HEIGHT


def default_kernel(size: Size) -> int:
    """Width of DARK's blur for a heatmap of this size: 11 at a height of 256 (released), odd and at least 3."""
    return max(3, 2 * round((RELEASED_KERNEL - 1) / 2 * size[0] / RELEASED_HEIGHT) + 1)


def to_heatmap(points: Tensor, frame: Size, size: Size) -> Tensor:
    """Points [..., 2] (x, y) from frame pixels to heatmap pixels, both (height, width)."""
    return points * points.new_tensor([(size[1] - 1) / (frame[1] - 1), (size[0] - 1) / (frame[0] - 1)])


def to_frame(points: Tensor, frame: Size, size: Size) -> Tensor:
    """Points [..., 2] (x, y) from heatmap pixels to frame pixels: the inverse of `to_heatmap`."""
    return points * points.new_tensor([(frame[1] - 1) / (size[1] - 1), (frame[0] - 1) / (size[0] - 1)])


def encode(points: Tensor, visible: Tensor, size: Size, sigma: float | None = None) -> tuple[Tensor, Tensor]:
    """Heatmaps of keypoints: unit-peak Gaussians, cut to a square window of 3 sigma (fact 6.3).

    Args:
        points: float [..., 2], x and y in heatmap pixels.
        visible: [...], numbers or bool; below 0.5 there is no target.
        size: (h, w) of the heatmaps.
        sigma: in heatmap pixels; None: `default_sigma`.

    Returns:
        heatmaps float [..., h, w] in 0..1, 0 everywhere where the weight is 0, and weights float [...], 0 or 1: 0 for a
        keypoint that is not visible or whose window misses the map.
    """
    if points.shape[-1:] != (2,) or points.shape[:-1] != visible.shape or not points.is_floating_point():
        raise ValueError(f"points is {tuple(points.shape)}, visible {tuple(visible.shape)}: give [..., 2] and [...]")
    sigma = default_sigma(size) if sigma is None else sigma
    if sigma <= 0:
        raise ValueError(f"sigma is {sigma}: give a positive number of heatmap pixels")
    radius = math.floor(_WINDOW * sigma)  # whole pixels: a window that touches the map has a pixel in it
    centres = torch.floor(points + 0.5)
    limits = points.new_tensor([size[1], size[0]])
    inside = ((centres + radius >= 0) & (centres - radius < limits)).all(-1)
    weights = (inside & (visible >= 0.5)).to(points.dtype)

    def profile(axis: int, length: int) -> Tensor:
        grid = torch.arange(length, device=points.device, dtype=points.dtype)
        distance = grid - points[..., axis, None]
        window = (grid - centres[..., axis, None]).abs() <= radius
        return torch.exp(distance.square() * (-0.5 / sigma**2)) * window

    rows = profile(1, size[0]) * weights[..., None]
    return rows[..., :, None] * profile(0, size[1])[..., None, :], weights


def decode(
    heatmaps: Tensor, decoder: Decoder = "fit", sigma: float | None = None, kernel: int | None = None
) -> tuple[Tensor, Tensor]:
    """Keypoints of heatmaps.

    Args:
        heatmaps: float [..., h, w]. Half precision is decoded in float32.
        decoder: see the module's docstring.
        sigma: of the Gaussians, for `fit`; None: `default_sigma`.
        kernel: odd width of the blur, for `dark`; None: `default_kernel`.

    Returns:
        points float32 [..., 2], x and y in heatmap pixels, -1 where a map has nothing above 0, and scores float32
        [...], the maximum of each map.

    Raises:
        ValueError: an unknown decoder, an even kernel, maps below 3 x 3.
    """
    if heatmaps.ndim < 2 or min(heatmaps.shape[-2:]) < 3:
        raise ValueError(f"heatmaps is {tuple(heatmaps.shape)}: give [..., h, w] of at least 3 x 3")
    height, width = heatmaps.shape[-2:]
    flat = heatmaps.detach().float().reshape(-1, height, width)
    scores, places = flat.flatten(1).max(1)
    peaks = torch.stack((places % width, places // width), -1)
    if decoder == "dark":
        kernel = default_kernel((height, width)) if kernel is None else kernel
        if kernel < 1 or kernel % 2 == 0:
            raise ValueError(f"kernel is {kernel}: give an odd number of heatmap pixels")
        points = _dark(flat, peaks, scores, kernel)
    elif decoder == "fit":
        points = _fit(flat, peaks, default_sigma((height, width)) if sigma is None else sigma)
    else:
        raise ValueError(f"decoder is {decoder!r}: use 'dark' or 'fit'")
    points = torch.where((scores > 0)[:, None], points, -1.0)
    return points.reshape(*heatmaps.shape[:-2], 2), scores.reshape(heatmaps.shape[:-2])


def _dark(maps: Tensor, peaks: Tensor, scores: Tensor, kernel: int) -> Tensor:
    """DARK on maps [N, h, w] with maxima at peaks [N, 2] (x, y): [N, 2].

    The blur is needed all over the map only for its maximum, the Newton step only around the peak.
    """
    height, width = maps.shape[1:]
    radius = kernel // 2
    deviation = 0.3 * ((kernel - 1) * 0.5 - 1) + 0.8  # OpenCV's rule, 2.0 for 11 (fact 6.3)
    offsets = torch.arange(radius + 1, device=maps.device, dtype=maps.dtype)
    taps = torch.exp(-0.5 * (offsets / deviation).square())
    taps = taps / (2 * taps.sum() - taps[0])
    blurred = maps
    for axis, padding in ((2, (radius, radius)), (1, (0, 0, radius, radius))):
        # Shifted copies are added up: on a CPU, a small part of the time of a convolution.
        padded, length = F.pad(blurred, padding), maps.shape[axis]
        blurred = blurred * taps[0]
        for offset in range(1, radius + 1):
            blurred.addcmul_(padded.narrow(axis, radius - offset, length), taps[offset])
            blurred.addcmul_(padded.narrow(axis, radius + offset, length), taps[offset])
    scale = scores / blurred.flatten(1).amax(1).clamp(min=torch.finfo(maps.dtype).tiny)
    x, y = peaks.unbind(-1)
    around = torch.arange(-1, 2, device=maps.device)
    rows = (y[:, None] + around).clamp(0, height - 1)  # the edge is repeated
    columns = (x[:, None] + around).clamp(0, width - 1)
    values = blurred[torch.arange(len(maps), device=maps.device)[:, None, None], rows[:, :, None], columns[:, None]]
    log = (values * scale[:, None, None]).clamp(_FLOOR, _CEILING).log()
    gradient = torch.stack((log[:, 1, 2] - log[:, 1, 0], log[:, 2, 1] - log[:, 0, 1]), -1) / 2
    xx = log[:, 1, 2] - 2 * log[:, 1, 1] + log[:, 1, 0] + _EPS
    yy = log[:, 2, 1] - 2 * log[:, 1, 1] + log[:, 0, 1] + _EPS
    xy = (
        log[:, 2, 2] - log[:, 1, 2] - log[:, 2, 1] + 2 * log[:, 1, 1] - log[:, 1, 0] - log[:, 0, 1] + log[:, 0, 0]
    ) / 2
    determinant = xx * yy - xy * xy
    step = torch.stack((yy * gradient[:, 0] - xy * gradient[:, 1], xx * gradient[:, 1] - xy * gradient[:, 0]), -1)
    # A flat neighbourhood has no Newton step; the peak itself is the answer.
    step = torch.where(determinant.abs()[:, None] > 1e-20, step / determinant[:, None], 0.0)
    return peaks - step


def _fit(maps: Tensor, peaks: Tensor, sigma: float) -> Tensor:
    """The top of log p = c + b.d + d.A.d / 2, fitted around peaks [N, 2] (x, y) of maps [N, h, w]: [N, 2]."""
    height, width = maps.shape[1:]
    radius = max(1, min(round(sigma), (min(height, width) - 1) // 2))
    limits = peaks.new_tensor([width - 1 - radius, height - 1 - radius])
    middle = torch.minimum(peaks.clamp(min=radius), limits)
    offsets = torch.arange(-radius, radius + 1, device=maps.device)
    rows, columns = middle[:, 1, None] + offsets, middle[:, 0, None] + offsets
    values = maps[torch.arange(len(maps), device=maps.device)[:, None, None], rows[:, :, None], columns[:, None]]
    values = values.flatten(1).double()
    values = values / values.amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    weights = values.clamp(min=0).square()
    # Offsets in units of the radius, so that the normal equations are well-conditioned.
    unit = offsets.double() / radius
    dy, dx = (grid.flatten() for grid in torch.meshgrid(unit, unit, indexing="ij"))
    basis = torch.stack((torch.ones_like(dx), dx, dy, dx * dx / 2, dx * dy, dy * dy / 2), -1)
    normal = torch.einsum("nw,wi,wj->nij", weights, basis, basis)
    normal = normal + 1e-12 * torch.eye(6, device=maps.device, dtype=normal.dtype)
    right = torch.einsum("nw,wi->ni", weights * values.clamp(min=1e-6).log(), basis)
    _, bx, by, xx, xy, yy = torch.linalg.solve(normal, right).unbind(-1)
    determinant = xx * yy - xy * xy
    top = -torch.stack((yy * bx - xy * by, xx * by - xy * bx), -1) / determinant[:, None]
    # Only a parabola that opens downwards has a top; it must not be far from the peak.
    good = (xx < 0) & (determinant > 0) & torch.isfinite(top).all(-1)
    points = middle + top * radius
    good &= ((points - peaks).abs() <= 1 + 2 * sigma).all(-1)
    return torch.where(good[:, None], points, peaks.double()).float()


def flip_heatmaps(heatmaps: Tensor, flip: Tensor) -> Tensor:
    """Heatmaps [..., K, h, w] of a mirrored frame as those of the frame: columns reversed, left and right exchanged.

    It is its own inverse. In UDP's scale it is exact: the outermost pixel centres are mapped to one another.
    """
    if heatmaps.ndim < 3 or heatmaps.shape[-3] != len(flip):
        raise ValueError(f"heatmaps is {tuple(heatmaps.shape)}: give [..., {len(flip)}, h, w]")
    return heatmaps.flip(-1).index_select(-3, flip.to(heatmaps.device))


def average_flipped(heatmaps: Tensor, mirrored: Tensor, flip: Tensor) -> Tensor:
    """The flip test: mean of the heatmaps [..., K, h, w] of frames and those of the mirrored frames."""
    return (heatmaps + flip_heatmaps(mirrored, flip)) / 2
