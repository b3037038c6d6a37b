"""The mean adult face: 3-D positions of the landmarks that 2-D detectors report.

Millimetres. The origin is the tip of the nose; x points to the subject's left, y down, z from the camera into the head.
So a face that looks straight into the camera has the identity rotation in OpenCV's camera axes (x right, y down, z
forward), and the subject's left is on the right of the picture.

The figures are ours: rounded means of women and men, put together from what anthropometric surveys of adults report
(the US Army's ANSUR; L. Farkas, Anthropometry of the Head and Face, 2nd ed., 1994; N. Dodgson, Variation and extrema of
human interpupillary distance, 2004). They are a rigid average, good to some millimetres, not a statistical face model.

| what | mm | rests on |
|---|---|---|
| between the pupils | 63 | interpupillary distance, mean 63 |
| width of the mouth | 52 | cheilion to cheilion, about 50 (women) and 54 (men) |
| pupils above the nose tip | 38 | nasion to subnasale about 53, less pupil under nasion 8, less tip over subnasale 7 |
| mouth below the nose tip | 27 | nasion to stomion about 73, less nasion to nose tip 46 |
| nose tip before the eyes | 36 | depths from the back of the head: nose tip about 220, eye surface about 184 |
| nose tip before the mouth's corners | 30 | nose protrusion from the subnasale about 20, plus the curve of the lips |
| between the ears | 142 | bitragion breadth about 140, plus the ear outside the tragion |
| ears below the pupils | 12 | heights from the crown: tragion about 130, corner of the eye about 118 |
| nose tip before the ears | 120 | depths from the back of the head: nose tip about 220, tragion about 100 |
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

RIGHT_EYE = (-31.5, -38.0, 36.0)
LEFT_EYE = (31.5, -38.0, 36.0)
NOSE_TIP = (0.0, 0.0, 0.0)
RIGHT_MOUTH = (-26.0, 27.0, 30.0)
LEFT_MOUTH = (26.0, 27.0, 30.0)
RIGHT_EAR = (-71.0, -26.0, 120.0)
LEFT_EAR = (71.0, -26.0, 120.0)

FACE_POINTS: dict[str, npt.NDArray[np.float64]] = {
    "face5": np.array([RIGHT_EYE, LEFT_EYE, NOSE_TIP, RIGHT_MOUTH, LEFT_MOUTH]),
    "coco17": np.array([NOSE_TIP, LEFT_EYE, RIGHT_EYE, LEFT_EAR, RIGHT_EAR]),
}
"""Layout (see `curation.scorers.person_columns`) -> float64 [5, 3]: the model points of its first five keypoints."""
