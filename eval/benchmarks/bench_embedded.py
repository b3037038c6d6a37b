"""The whole embedded recipe on Ray against a bare loop over the same functions with the same number of processes.

Both sides take the same files and drop rows at the same limits, so the same rows reach every model; the counts of
rows that come through are compared. Goal: at least 0.9 of the bare loop's rate in steady state.
"""

from __future__ import annotations

from pathlib import Path

from eval.benchmarks.annotating import recipe_config, steady_annotate
from eval.benchmarks.bare_recipe import BareRecipe
from eval.benchmarks.common import Rate, Report, alternate, compare, parser, run_loop, scratch
from eval.benchmarks.pools import photographs, repeated

GOAL = 0.9
RECIPE = Path(__file__).resolve().parents[2] / "configs" / "embedded.yaml"


def main() -> None:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--pictures", type=int, default=400, help="different photographs")
    arguments.add_argument("--repeat", type=int, default=4, help="times that each is taken")
    arguments.add_argument("--chunk-rows", type=int, default=128)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("overrides", nargs="*", help="key.path=value, as for populace curate")
    options = arguments.parse_args()
    report = Report(options.json)
    pool = photographs(options.data / f"photographs-{options.pictures}", options.pictures, options.workers)
    pool = repeated(options.data / f"photographs-{options.pictures}x{options.repeat}", pool, options.repeat)
    files = sorted(str(path) for path in pool.glob("*.jpg"))
    overrides = [f"chunk_rows={options.chunk_rows}", *options.overrides]

    def ours() -> Rate:
        with scratch(options.data) as folder:
            return steady_annotate(recipe_config(RECIPE, pool, folder / "run", *overrides), options.workers)

    loop = BareRecipe(recipe_config(RECIPE, pool, options.data / "unused", *overrides), files[0])
    rates, limits = alternate(options.rounds, ours, lambda: run_loop(loop, files, options.workers, grab=32))
    alive = {rate.counts["alive"] for rate in (*rates, *limits)}
    if len(alive) != 1:
        raise SystemExit(f"the two sides do not do the same work: rows that come through: {sorted(alive)}")
    figure = compare("embedded recipe", "images/s", rates, limits, goal=GOAL)
    figure.detail["share that passes"] = alive.pop() / len(files)
    report(figure)


if __name__ == "__main__":
    main()
