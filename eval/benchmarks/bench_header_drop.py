"""What a row costs that the header check drops.

Small JPEGs, every one below `policy.too_small`. The bare loop reads the file, opens it with Pillow (header only) and
takes the SHA-256. Two figures: the annotate pass in its steady state against that loop; and the whole of `curate`
(list, annotate, select, ledger, export), as the difference between two pool sizes, so that start-up does not count.
"""

from __future__ import annotations

import hashlib
import io
import statistics
from collections.abc import Sequence
from pathlib import Path

from eval.benchmarks.annotating import NO_POLICY, screen_config, steady_annotate
from eval.benchmarks.common import Figure, Rate, Report, alternate, compare, parser, run_loop, scratch
from eval.benchmarks.curate_once import curate_apart
from eval.benchmarks.pools import tiny_folder

POLICY = {**NO_POLICY, "too_small": {"min": 384}}


class BareHeader:
    """Read, header by Pillow, SHA-256; keeps what is large enough."""

    def setup(self) -> None:
        """Import Pillow's plugins."""
        from PIL import Image

        Image.init()

    def __call__(self, items: Sequence[str]) -> dict[str, int]:
        """Look at files."""
        from PIL import Image

        alive = 0
        for path in items:
            data = Path(path).read_bytes()
            hashlib.sha256(data).hexdigest()
            with Image.open(io.BytesIO(data)) as image:
                alive += min(image.size) >= POLICY["too_small"]["min"]
        return {"alive": alive}


def main() -> None:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--files", type=int, default=40_000)
    arguments.add_argument("--chunk-rows", type=int, default=256)
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    report = Report(options.json)
    pool = tiny_folder(options.data / f"tiny-{options.files}", options.files)
    files = sorted(str(path) for path in pool.glob("*.jpg"))

    def ours() -> Rate:
        with scratch(options.data) as folder:
            config = screen_config(pool, folder / "run", chunk_rows=options.chunk_rows, policy=POLICY)
            return steady_annotate(config, options.workers)

    rates, limits = alternate(options.rounds, ours, lambda: run_loop(BareHeader(), files, options.workers, grab=256))
    if any(rate.counts["alive"] for rate in (*rates, *limits)):
        raise SystemExit("some picture was not dropped by its header")
    figure = compare("rows dropped by the header, annotate", "rows/s", rates, limits)
    figure.detail["us a row and process"] = 1e6 * options.workers / figure.ours
    report(figure)

    small = tiny_folder(options.data / f"tiny-{options.files // 4}", options.files // 4)

    def whole(source: Path) -> float:
        with scratch(options.data) as folder:
            config = screen_config(
                source,
                folder / "run",
                chunk_rows=options.chunk_rows,
                policy=POLICY,
                ray={"num_cpus": options.workers},
            )
            return curate_apart(config, folder).total_seconds

    rows = options.files - options.files // 4
    per_row = statistics.median((whole(pool) - whole(small)) / rows for _ in range(options.rounds))
    bare = statistics.median(1 / rate.per_second for rate in limits)
    detail = {"rows/s": 1 / per_row}
    report(
        Figure(
            "rows dropped by the header, whole curate",
            1e6 * per_row,
            "us a row",
            1e6 * bare,
            per_row / bare,
            detail=detail,
        )
    )


if __name__ == "__main__":
    main()
