"""The screen pass on Ray against a bare loop: read, SHA-256, scaled decode to the same size, 32 x 32 hash.

Both sides take the same files with the same number of processes. The bare loop measures less: no check of the header's
claims, no sharpness, exposure, entropy and colour, no ledger part. Goal: at least 0.85 of its rate in steady state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from eval.benchmarks.annotating import screen_config, steady_annotate
from eval.benchmarks.common import Rate, Report, alternate, compare, parser, run_loop, scratch
from eval.benchmarks.pools import photographs, repeated

GOAL = 0.85
WORK_SIDE = 640


class BareScreen:
    """The least that any screen pass over JPEGs must do."""

    def setup(self) -> None:
        """Import."""
        import cv2  # noqa: F401
        import simplejpeg  # noqa: F401

    def __call__(self, items: Sequence[str]) -> dict[str, int]:
        """Read, hash and decode files."""
        for path in items:
            data = Path(path).read_bytes()
            hashlib.sha256(data).hexdigest()
            small_hash(data)
        return {"alive": len(items)}


def small_hash(data: bytes) -> int:
    """A 64-bit DCT hash of a JPEG decoded to a long side of `WORK_SIDE`, in the cheapest way known here."""
    import cv2
    import numpy as np
    import simplejpeg

    height, width = simplejpeg.decode_jpeg_header(data)[:2]
    long = max(height, width)
    size = (width, height)
    reduced = {}
    if long > WORK_SIDE:
        size = max(1, round(width * WORK_SIDE / long)), max(1, round(height * WORK_SIDE / long))
        # The largest power of two: other scales have no SIMD code in libjpeg-turbo and are slower.
        factor = next(f for f in (8, 4, 2, 1) if -(-width // f) >= size[0] and -(-height // f) >= size[1])
        reduced = {"min_height": -(-height // factor), "min_width": -(-width // factor)} if factor > 1 else {}
    pixels = simplejpeg.decode_jpeg(data, "RGB", **reduced)
    if (pixels.shape[1], pixels.shape[0]) != size:
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR)
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    small = cv2.resize(grey, (32, 32), interpolation=cv2.INTER_LINEAR)
    low = cv2.dct(small.astype(np.float32))[:8, :8].ravel()
    bits = low > np.median(low)
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def main() -> None:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--pictures", type=int, default=400, help="different photographs")
    arguments.add_argument("--repeat", type=int, default=8, help="times that each is taken")
    arguments.add_argument("--chunk-rows", type=int, default=256)
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    report = Report(options.json)
    pool = photographs(options.data / f"photographs-{options.pictures}", options.pictures, options.workers)
    pool = repeated(options.data / f"photographs-{options.pictures}x{options.repeat}", pool, options.repeat)
    files = sorted(str(path) for path in pool.glob("*.jpg"))

    def ours() -> Rate:
        with scratch(options.data) as folder:
            config = screen_config(pool, folder / "run", chunk_rows=options.chunk_rows)
            return steady_annotate(config, options.workers)

    sides = alternate(options.rounds, ours, lambda: run_loop(BareScreen(), files, options.workers))
    report(compare("screen pass", "images/s", sides[0], sides[1], GOAL))


if __name__ == "__main__":
    main()
