"""Synthetic people with exact labels: articulated bodies of analytic shapes, ray-cast without a mesh or a download.

| file | what it does |
|---|---|
| `config.py` | the `PeopleConfig` section |
| `shapes.py`, `quadrics.py`, `rays.py` | ellipsoids, tapered capsules and rings; exact first hits of rays |
| `frames.py`, `poses.py`, `skeleton.py` | rotations; joint angles within limits; the joints of one person |
| `looks.py`, `materials.py` | proportions, colours and clothes of a person; textures |
| `body.py`, `dress.py`, `head.py`, `wear.py` | the shapes of one person |
| `face_points.py`, `points.py` | where the 308 keypoints lie, and which of them are seen |
| `stage.py`, `light.py`, `background.py` | camera and places, lights and sensor, what is behind |
| `rendering.py` | `render(key, config)`: a `Picture` that is a function of its arguments alone |
| `sheet.py` | contact sheets, to look at |

Known limits: no cast shadows but soft ones under feet, no specular light, no transparency, one ray a pixel (labels are
those of pixel centres; the picture's edges are softened by the lens blur only). Clothes follow limbs and do not hang.
"""

from training.data.people.config import PeopleConfig
from training.data.people.rendering import Rendering, render, render_linear

__all__ = ["PeopleConfig", "Rendering", "render", "render_linear"]
