"""Frames: the affine maps between a picture's pixels and the pixels that a network sees.

A `Frame` is one 2x3 matrix from picture pixels to frame pixels with both sizes. Whatever is done to a picture (crop,
resize, padding, rotation, mirroring) is composed into one frame first and applied once, so that image, masks, dense
targets, keypoints, boxes and the camera move together and the way back is exact.

Pixel coordinates are those of centres: (0, 0) is the centre of the top left pixel, a picture covers -0.5..W-0.5. Only
boxes are in edges of pixels, as in `Picture`: a picture covers 0..W.

| what | how |
|---|---|
| `crop_around(box, size, source, ...)` | top-down crop of a person, with rotation, scale, shift, mirroring |
| `letterbox(source, size)` | the whole picture, aspect kept, centred, padded |
| `stretch(source, size)` | the whole picture, aspect lost |
| `crop(source, box)` | a rectangle of the picture, pixel by pixel |
| `rotate(source, degrees)`, `mirror(source)`, `identity(source)` | what they say, size kept |
| `Frame.then(other)`, `.inverse()`, `.mirrored()` | compositions |
| `Frame.points`, `.points_back`, `.keypoints`, `.boxes` | move coordinates |
| `Frame.intrinsics(k)`, `.rotation(k)` | the moved camera, and how it turns 3-D points and normals |
| `training.tasks.warp` | the same on pixels: `warp`, `warp_labels`, `warp_normals`, `warp_points`, `move`, `restore` |
| `training.tasks.random_frames` | frames drawn for training |

The camera. A picture of the 3-D point p is the pixel K p. With A the frame's matrix, A K = K' Q, where K' is upper
triangular with a positive diagonal and Q is orthogonal (RQ decomposition). So the frame is a picture by the camera K'
of a world turned by Q: points and normals become Q p. Q is a reflection (x negated) in a mirrored frame, a turn about
the optical axis in a rotated one, and the identity otherwise. Depths z never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Size = tuple[int, int]  # height, width

PADDING = 1.25  # a person's box is enlarged by this (released configuration, fact 6.4)


@dataclass(frozen=True, eq=False)
class Frame:
    """An affine map from picture pixels to frame pixels, with the size of both.

    Args:
        matrix: float64 [2, 3]: (u', v') = matrix @ (u, v, 1), centres of pixels.
        size: (height, width) of the frame in pixels.
        source: (height, width) of the picture in pixels.

    Raises:
        ValueError: another shape, values that are not finite, a matrix without inverse, sizes below 1.
    """

    matrix: npt.NDArray[np.float64]
    size: Size
    source: Size

    def __post_init__(self) -> None:
        matrix = np.array(self.matrix, np.float64)
        if matrix.shape != (2, 3) or not np.isfinite(matrix).all():
            raise ValueError(f"the matrix of a frame is {matrix.tolist()}: give 2 x 3 finite numbers")
        if abs(np.linalg.det(matrix[:, :2])) < 1e-12:
            raise ValueError(f"the matrix {matrix.tolist()} flattens the picture: it needs an inverse")
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "size", _size(self.size, "size"))
        object.__setattr__(self, "source", _size(self.source, "source"))

    @property
    def flipped(self) -> bool:
        """Whether the frame shows a mirror image."""
        return bool(np.linalg.det(self.matrix[:, :2]) < 0)

    @property
    def scale(self) -> float:
        """Frame pixels per picture pixel, the geometric mean of both axes."""
        return float(np.sqrt(abs(np.linalg.det(self.matrix[:, :2]))))

    @property
    def axis_aligned(self) -> bool:
        """Whether rows stay rows (no rotation)."""
        return bool(np.abs(self.matrix[[0, 1], [1, 0]]).max() < 1e-12 * np.abs(self.matrix[:, :2]).max())

    def inverse(self) -> Frame:
        """The frame from frame pixels back to picture pixels."""
        linear = np.linalg.inv(self.matrix[:, :2])
        return Frame(np.column_stack((linear, -linear @ self.matrix[:, 2])), self.source, self.size)

    def then(self, other: Frame) -> Frame:
        """This frame followed by another one, whose pictures are frames of this size."""
        if other.source != self.size:
            raise ValueError(f"a frame of {self.size} (height, width) cannot be followed by one for {other.source}")
        linear = other.matrix[:, :2]
        return Frame(
            np.column_stack((linear @ self.matrix[:, :2], linear @ self.matrix[:, 2] + other.matrix[:, 2])),
            other.size,
            self.source,
        )

    def mirrored(self) -> Frame:
        """The frame seen in a mirror: u becomes width - 1 - u. Twice is the frame itself."""
        return self.then(mirror(self.size))

    def points(self, points: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Move points [..., 2] (x, y) from picture to frame pixels; float64 of the same shape."""
        values = np.asarray(points, np.float64)
        if values.shape[-1:] != (2,):
            raise ValueError(f"points is {values.shape}: give [..., 2], x and y in pixels")
        return np.asarray(values @ self.matrix[:, :2].T + self.matrix[:, 2])

    def points_back(self, points: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Move points [..., 2] from frame to picture pixels; float64 of the same shape."""
        return self.inverse().points(points)

    def keypoints(self, keypoints: Floats, flip: Sequence[int] | npt.NDArray[np.integer] | None = None) -> Floats:
        """Move keypoints [..., K, 3] (x, y, visibility) to frame pixels, dtype kept.

        Args:
            keypoints: COCO's: visibility 0 not labelled, 1 occluded, 2 visible.
            flip: [K], the index of each keypoint's mirror image; needed for a mirrored frame, else not used.

        Returns:
            [..., K, 3]; a keypoint that is not labelled or leaves the frame is (0, 0, 0).
        """
        keypoints = np.asarray(keypoints)
        if keypoints.ndim < 2 or keypoints.shape[-1] != 3:
            raise ValueError(f"keypoints is {keypoints.shape}: give [..., K, 3], x, y and visibility")
        if self.flipped:
            if flip is None or len(flip) != keypoints.shape[-2]:
                raise ValueError(
                    f"the frame is mirrored and has {keypoints.shape[-2]} keypoints, but the flip permutation is "
                    f"{'missing' if flip is None else f'of {len(flip)}'}: give that of their KeypointSet"
                )
            keypoints = keypoints[..., np.asarray(flip), :]
        moved = self.points(keypoints[..., :2])
        kept = (keypoints[..., 2] > 0) & self.contains(moved)
        return np.where(kept[..., None], np.concatenate((moved, keypoints[..., 2:]), -1), 0).astype(keypoints.dtype)

    def contains(self, points: Floats) -> npt.NDArray[np.bool_]:
        """Whether points [..., 2] in frame pixels are on a pixel of the frame: bool [...]."""
        height, width = self.size
        return np.asarray(((points >= -0.5) & (points < np.array((width - 0.5, height - 0.5)))).all(-1))

    def boxes(self, boxes: npt.ArrayLike, clip: bool = False) -> npt.NDArray[np.float32]:
        """Move boxes [..., 4] (x0, y0, x1, y1) to the extent of their corners.

        Args:
            boxes: EDGES of pixels, as in `Picture`: the whole picture is (0, 0, W, H), half a pixel off centres.
            clip: cut to the frame.

        Returns:
            float32 [..., 4].
        """
        values = np.asarray(boxes, np.float64)
        if values.shape[-1:] != (4,):
            raise ValueError(f"boxes is {values.shape}: give [..., 4], x0, y0, x1, y1 in pixels")
        corners = self.points(values[..., [0, 1, 2, 1, 2, 3, 0, 3]].reshape(*values.shape[:-1], 4, 2) - 0.5) + 0.5
        result = np.concatenate((corners.min(-2), corners.max(-2)), -1)
        if clip:
            height, width = self.size
            result = np.clip(result, 0, np.array((width, height, width, height)))
        return result.astype(np.float32)

    def intrinsics(self, intrinsics: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """The camera of the frame, K' of the module's docstring: float64 [3, 3], upper triangular, focals positive."""
        return self._camera(intrinsics)[0]

    def rotation(self, intrinsics: npt.ArrayLike | None = None) -> npt.NDArray[np.float64]:
        """How 3-D points and normals turn: Q of the module's docstring, float64 [3, 3], orthogonal.

        Args:
            intrinsics: the picture's camera [3, 3]; None: one of square pixels.
        """
        return self._camera(np.eye(3) if intrinsics is None else intrinsics)[1]

    def _camera(self, intrinsics: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        camera = np.asarray(intrinsics, np.float64)
        if camera.shape != (3, 3) or not np.allclose(camera[2], (0, 0, 1)) or abs(np.linalg.det(camera)) < 1e-12:
            raise ValueError(
                f"intrinsics is {camera.tolist()}: give [[fx, skew, cx], [0, fy, cy], [0, 0, 1]] in pixels"
            )
        product = self.matrix @ camera
        (first, second), centre = product[:, :2], product[:, 2]
        focal_y = np.linalg.norm(second)
        row_y = second / focal_y
        row_x = np.array((row_y[1], -row_y[0]))
        if first @ row_x < 0:
            row_x = -row_x
        skew = first @ row_y
        skew = 0.0 if abs(skew) < 1e-12 * focal_y else skew  # of a rotation, rounding alone is no skew
        moved = np.array(((first @ row_x, skew, centre[0]), (0, focal_y, centre[1]), (0, 0, 1)))
        turn = np.eye(3)
        turn[:2, :2] = row_x, row_y
        return moved, turn


def _size(size: Sequence[int], name: str) -> Size:
    if len(size) != 2 or min(size) < 1 or any(int(side) != side for side in size):
        raise ValueError(f"{name} is {tuple(size)}: give (height, width) in whole pixels, at least 1")
    return int(size[0]), int(size[1])


def identity(source: Size) -> Frame:
    """The picture as it is."""
    return Frame(np.eye(2, 3), source, source)


def mirror(source: Size) -> Frame:
    """The picture mirrored: u becomes width - 1 - u."""
    return Frame(np.array(((-1.0, 0, source[1] - 1), (0, 1, 0))), source, source)


def rotate(source: Size, degrees: float) -> Frame:
    """The picture turned about its centre, clockwise as seen for positive angles; corners are cut off."""
    angle = np.deg2rad(degrees)
    linear = np.array(((np.cos(angle), -np.sin(angle)), (np.sin(angle), np.cos(angle))))
    centre = (np.array(source[::-1]) - 1) / 2
    return Frame(np.column_stack((linear, centre - linear @ centre)), source, source)


def crop(source: Size, box: Sequence[int]) -> Frame:
    """A rectangle (left, top, width, height) in whole pixels; it may reach beyond the picture."""
    left, top, width, height = (int(value) for value in box)
    return Frame(np.array(((1.0, 0, -left), (0, 1, -top))), (height, width), source)


def stretch(source: Size, size: Size) -> Frame:
    """The whole picture resized to `size`, as any resize does it: borders of pixels meet, u' + 0.5 = s (u + 0.5)."""
    return _resized(source, size, (0, 0), size)


def letterbox(source: Size, size: Size, rounding: Literal["round", "truncate"] = "round") -> Frame:
    """The whole picture in the middle of the frame, as large as fits, its aspect kept to whole pixels.

    Args:
        source, size: (height, width) of picture and frame.
        rounding: of the resized picture's size to whole pixels: the released training rounds, its inference truncates.
    """
    source, size = _size(source, "source"), _size(size, "size")
    factor = min(size[0] / source[0], size[1] / source[1])
    # The guard keeps 768 * (1024 / 768) from being truncated to 1023.
    resized = [
        min(side, max(1, round(length * factor) if rounding == "round" else int(length * factor + 1e-9)))
        for length, side in zip(source, size, strict=True)
    ]
    corner = ((size[0] - resized[0]) // 2, (size[1] - resized[1]) // 2)
    return _resized(source, (resized[0], resized[1]), corner, size)


def _resized(source: Size, resized: Size, corner: tuple[int, int], size: Size) -> Frame:
    scale_y, scale_x = resized[0] / source[0], resized[1] / source[1]
    matrix = ((scale_x, 0, (scale_x - 1) / 2 + corner[1]), (0, scale_y, (scale_y - 1) / 2 + corner[0]))
    return Frame(np.array(matrix), size, source)


def crop_around(
    box: npt.ArrayLike,
    size: Size,
    source: Size,
    *,
    padding: float = PADDING,
    rotation: float = 0.0,
    scale: float = 1.0,
    shift: tuple[float, float] = (0.0, 0.0),
    flip: bool = False,
) -> Frame:
    """The top-down crop of a person, unbiased (UDP): it spans the distance of the frame's outermost pixel centres.

    Args:
        box: [4], x0, y0, x1, y1, EDGES of picture pixels as in `Picture`. It is enlarged by `padding`, then its short
            side is grown to the frame's aspect (fact 6.4).
        size, source: (height, width) of frame and picture.
        padding: factor on the box (released configuration: 1.25).
        rotation: degrees about the box's centre, clockwise as seen.
        scale: factor on the enlarged box; above 1 shows more around the person.
        shift: (x, y) of the centre, as shares of the padded box before `scale`.
        flip: mirror the frame at the end.

    Raises:
        ValueError: an empty box.
    """
    corners = np.asarray(box, np.float64)
    if corners.shape != (4,) or not np.isfinite(corners).all() or (corners[2:] <= corners[:2]).any():
        raise ValueError(f"box is {corners.tolist()}: give x0, y0, x1, y1 in pixels with x0 < x1 and y0 < y1")
    height, width = _size(size, "size")
    if min(height, width) < 2:
        raise ValueError(f"size is {size}: a crop needs at least 2 pixels each way")
    padded = (corners[2:] - corners[:2]) * padding
    centre = (corners[:2] + corners[2:] - 1) / 2 + np.asarray(shift) * padded
    extent = padded * scale
    extent = np.maximum(extent, extent[::-1] * np.array((width / height, height / width)))
    middle = np.array((width - 1, height - 1)) / 2
    angle = np.deg2rad(rotation)
    turn = np.array(((np.cos(angle), -np.sin(angle)), (np.sin(angle), np.cos(angle))))
    linear = (2 * middle / extent)[:, None] * turn
    frame = Frame(np.column_stack((linear, middle - linear @ centre)), (height, width), source)
    return frame.mirrored() if flip else frame
