"""The 308 keypoints of a person in space, and which of them a camera sees."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from training.data.people.body import Painter
from training.data.people.face_points import EAR_FIRST, EAR_LAYOUT, EAR_OFFSET, eye_points, front_layout
from training.data.people.frames import MIRROR
from training.data.people.head import EAR, EYE, NOSE_TIP, draw_face, eye_frame
from training.data.people.looks import Look
from training.data.people.quadrics import Quadrics, assemble
from training.data.people.rays import ray_hits
from training.data.people.shapes import Array, Frame, Shapes
from training.data.people.skeleton import Skeleton

KEYPOINTS = 308
_FAR = 10.0  # metres from a head to the views in which face points are put on it: nearly parallel rays
# Turns of the views: from the front, and from the left (to its right is the back of the head).
_FRONT = np.diag([1.0, -1.0, -1.0])
_LEFT = np.array([[0.0, 0.0, -1.0], [0.0, -1.0, 0.0], [-1.0, 0.0, 0.0]])
# How much nearer than a keypoint a surface may be that still shows it, metres at 1.7 m of height. Joints lie inside of
# the body: the thickness of what is around them, and of clothes.
_SURFACE, _EYEBALL = 0.004, 0.0009
_JOINTS = {5: 0.09, 7: 0.065, 9: 0.16, 11: 0.085, 13: 0.065, 15: 0.035, 16: 0.035, 17: 0.05, 62: 0.05}
_JOINTS |= {63: 0.03, 65: 0.03, 67: 0.03, 69: 0.1}
_FINGER, _KNUCKLE = 0.0135, 0.026
RIGHT = {5: 6, 7: 8, 9: 10, 11: 12, 13: 14, 15: 18, 16: 19, 17: 20, 62: 41, 63: 64, 65: 66, 67: 68}


def _put_on(face: Shapes, turn: Array, spots: Array) -> Array:
    """Points [n, 3] of the head's frame where rays of a far view meet its shapes.

    Args:
        face: the head's shapes in the frame of the head.
        turn: the view's axes.
        spots: float64 [n, 2], the view's x and y at the head's middle.
    """
    quadrics = assemble(face, turn, np.array([0.0, 0.0, _FAR]))
    u, v = spots.T / (_FAR - 0.08)
    shape, depth = ray_hits(quadrics, u, v)
    if (shape < 0).any():
        raise RuntimeError(f"face keypoints off the head, at {spots[shape < 0].tolist()}: the layout is wrong")
    seen = np.stack([u * depth, v * depth, depth - _FAR], axis=1)
    return seen @ turn


def face_keypoints(look: Look, head: Frame) -> tuple[npt.NDArray[np.int64], Array]:
    """Ids [n] and points [n, 3] of eyes, ears, nose and the 238 face points, on the surfaces of the head's features."""
    face = Shapes()
    painter = Painter(face, 0, look)
    plain = Frame(np.eye(3), np.zeros(3))
    draw_face(painter, plain)
    ids, spots = front_layout(look)
    ids += [0, 1, 2]
    spots = np.concatenate([spots, [NOSE_TIP[:2], EYE[:2], EYE[:2] * (-1, 1)]])
    front = _put_on(face, _FRONT, spots * (1, -1))
    centre, half = np.array(EAR[0]), np.array(EAR[1])
    layout = np.array(EAR_LAYOUT) * (half[2], half[1]) + (centre[2], centre[1])
    ear = _put_on(face, _LEFT, -layout)
    left = list(range(EAR_FIRST, EAR_FIRST + len(EAR_LAYOUT)))
    all_ids = [*ids, *left, *(number + EAR_OFFSET for number in left), 3, 4]
    tragus = ear[237 - EAR_FIRST]
    points = [
        head.at(front),
        head.at(ear),
        head.at(ear @ MIRROR),
        head.at(tragus[None]),
        head.at((tragus @ MIRROR)[None]),
    ]
    for side in (0, 1):
        numbers, local = eye_points(side)
        all_ids += numbers
        points.append(eye_frame(head, look, side).at(local))
    return np.array(all_ids), np.concatenate(points)


def body_keypoints(look: Look, body: Skeleton) -> tuple[Array, Array]:
    """Points [308, 3], metres, world; and how much nearer a surface may be that shows them [308], metres."""
    points = np.full((KEYPOINTS, 3), np.nan)
    slack = np.full(KEYPOINTS, _SURFACE)
    ids, face = face_keypoints(look, body.head)
    points[ids] = face
    slack[272:308] = _EYEBALL
    lift = body.chest.turn @ np.array([0.0, 0.052, 0.0])
    for number, side in enumerate(body.sides):
        places = {
            5: side.arm.place,
            7: side.forearm.place,
            9: side.thigh.place,
            11: side.shin.place,
            13: side.foot.place,
            15: side.foot.at((-0.02, -0.058, 0.16)),
            16: side.foot.at((0.033, -0.062, 0.12)),
            17: side.foot.at((0.0, -0.048, -0.055)),
            62: side.hand.place,
            63: side.forearm.at((0.0, 0.004, -0.035 * look.girth)),
            65: side.forearm.at((0.0, -0.004, 0.034 * look.girth)),
            67: side.arm.place + lift,
        }
        for left, place in places.items():
            index = left if number == 0 else RIGHT[left]
            points[index], slack[index] = place, _JOINTS[left]
        first = 42 if number == 0 else 21
        fingers = side.hand.at(side.fingers[:, ::-1].reshape(20, 3))
        points[first : first + 20] = fingers
        slack[first : first + 20] = np.where(np.arange(20) % 4 == 3, _KNUCKLE, _FINGER)
    points[69], slack[69] = body.chest.at((0.0, 0.43, 0.02)), _JOINTS[69]
    return points, slack * (look.height / 1.7)


def seen(
    quadrics: Quadrics, points: Array, slack: Array, person: int, intrinsics: Array, size: tuple[int, int]
) -> npt.NDArray[np.float32]:
    """Keypoints as a picture has them.

    Args:
        quadrics: everything in the scene.
        points: float64 [K, 3], camera coordinates.
        slack: float64 [K], metres.
        person: whose points they are.
        intrinsics: [3, 3].
        size: height and width of the picture.

    Returns:
        float32 [K, 3]: x, y in pixels and v: 2 where the first surface on the ray is the person's own and within the
        slack of the point, else 1; all 0 outside of the picture or behind the camera.
    """
    height, width = size
    z = points[:, 2]
    ahead = z > 1e-6
    u, v = points[:, 0] / np.where(ahead, z, 1.0), points[:, 1] / np.where(ahead, z, 1.0)
    x, y = u * intrinsics[0, 0] + intrinsics[0, 2], v * intrinsics[1, 1] + intrinsics[1, 2]
    inside = ahead & (x >= -0.5) & (x < width - 0.5) & (y >= -0.5) & (y < height - 0.5)
    found = np.zeros((len(points), 3), np.float32)
    rows = np.flatnonzero(inside)
    shape, depth = ray_hits(quadrics, u[rows], v[rows])
    own = (shape >= 0) & (quadrics.tags[1][shape] == person) if quadrics.count else np.zeros(len(rows), bool)
    clear = own & (np.abs(depth - z[rows]) <= slack[rows])
    found[rows, 0], found[rows, 1] = x[rows], y[rows]
    found[rows, 2] = np.where(clear, 2.0, 1.0)
    return found
