"""The renderer of synthetic people: pictures a second, and where the time goes.

The goal: 10,000 pictures of 256 x 192 on two cores in minutes, so at most 50 ms of
CPU time a picture. The shares are those of the parts, run one by one on the same scenes; then the rate in `--workers`
processes.
"""

from __future__ import annotations

import multiprocessing as mp
import time
from collections.abc import Iterable
from itertools import pairwise

import cv2
import numpy as np

from eval.benchmarks.common import Figure, Report, note, parser
from pipeline.resources import limit_native_threads
from training.data.keys import generator
from training.data.people.background import paint_background
from training.data.people.config import PeopleConfig
from training.data.people.light import develop, sample_lights
from training.data.people.points import seen
from training.data.people.rays import first_hits, pixel_pairs
from training.data.people.rendering import build_scene, render

GOAL_MS = 50.0  # CPU time of one picture of 256 x 192 (ours)
GOAL_SIZE = (256, 192)


def shares(keys: Iterable[int], config: PeopleConfig) -> dict[str, float]:
    """CPU milliseconds a picture of the renderer's parts, each run alone on the same scenes."""
    total = {
        "scene and face points": 0.0,
        "ray-cast": 0.0,
        "keypoint visibility": 0.0,
        "background": 0.0,
        "sensor": 0.0,
    }
    height, width = config.size
    count = 0
    for key in keys:
        rng = generator(key)
        count += 1
        marks = [time.process_time()]
        scene = build_scene(rng, config)
        marks.append(time.process_time())
        k = scene.camera.intrinsics
        lines, line, row, column = pixel_pairs(scene.quadrics, k, config.size)
        first_hits(lines, line, row * width + column, (column - k[0, 2]) / k[0, 0], height * width)
        marks.append(time.process_time())
        for person, (points, slack) in enumerate(scene.points):
            seen(scene.quadrics, points @ scene.camera.turn.T + scene.camera.place, slack, person, k, config.size)
        marks.append(time.process_time())
        lights = sample_lights(rng, np.array([0.0, -1.0, 0.0]), np.array([0.0, 0.0, 3.0]))
        albedo, shading = paint_background(rng, scene.camera, lights, config.size, np.zeros((0, 2)))
        marks.append(time.process_time())
        develop(albedo * shading, rng, config.blur, config.noise)
        marks.append(time.process_time())
        for name, start, end in zip(total, marks[:-1], marks[1:], strict=True):
            total[name] += 1000 * (end - start)
    return {name: value / count for name, value in total.items()}


def _some(job: tuple[int, int, PeopleConfig]) -> None:
    limit_native_threads(1)
    cv2.setNumThreads(1)
    for key in range(job[0], job[1]):
        render(key, job[2])


def main() -> None:
    """Run the benchmark."""
    arguments = parser(__doc__)
    arguments.add_argument("--pictures", type=int, default=200)
    arguments.add_argument("--size", type=int, nargs=2, default=GOAL_SIZE, metavar=("HEIGHT", "WIDTH"))
    arguments.add_argument("--people", type=int, nargs=2, default=(1, 2), metavar=("FEWEST", "MOST"))
    options = arguments.parse_args()
    limit_native_threads(1)
    cv2.setNumThreads(1)
    report = Report(options.json)
    config = PeopleConfig(size=tuple(options.size), people=tuple(options.people))
    _some((0, 5, config))
    cpu, wall = time.process_time(), time.perf_counter()
    _some((0, options.pictures, config))
    cpu_ms = 1000 * (time.process_time() - cpu) / options.pictures
    rate = options.pictures / (time.perf_counter() - wall)
    parts = shares(range(0, options.pictures, 4), config)
    parts["texture, light, labels (the rest)"] = cpu_ms - sum(parts.values())
    goal = tuple(options.size) == GOAL_SIZE
    report(
        Figure(
            "render {} x {}, {} to {} people, 1 process".format(*config.size, *config.people),
            cpu_ms,
            "CPU ms a picture",
            limit=GOAL_MS if goal else None,
            ratio=cpu_ms / GOAL_MS if goal else None,
            goal=f"at most {GOAL_MS:.0f} ms" if goal else "",
            met=cpu_ms <= GOAL_MS if goal else None,
            detail={"pictures/s": rate, **{f"{name}, ms": value for name, value in parts.items()}},
        )
    )
    note(f"the same in {options.workers} processes")
    edges = np.linspace(0, options.pictures, options.workers + 1).astype(int).tolist()
    with mp.get_context("spawn").Pool(options.workers) as pool:
        pool.map(_some, [(0, 2, config)] * options.workers, chunksize=1)
        wall = time.perf_counter()
        pool.map(_some, [(a, b, config) for a, b in pairwise(edges)], chunksize=1)
        rate = options.pictures / (time.perf_counter() - wall)
    report(
        Figure(f"render in {options.workers} processes", rate, "pictures/s", detail={"10,000, min": 1e4 / rate / 60})
    )


if __name__ == "__main__":
    main()
