"""Pictures a second on one core for every stage of the embedded recipe, and each one's share of a run's time.

The rate is over pictures that reach the stage, one thread, models loaded, in CPU time. The share is of a run in which
the recipe's limits drop rows on the way; `reach` is the part of the pool that the stage sees there.
"""

from __future__ import annotations

from collections.abc import Sequence

from eval.benchmarks.annotating import NO_POLICY, recipe_config
from eval.benchmarks.bare_recipe import BareRecipe
from eval.benchmarks.bench_embedded import RECIPE
from eval.benchmarks.common import Figure, Report, parser
from eval.benchmarks.pools import photographs
from pipeline.resources import limit_native_threads


def profile(loop: BareRecipe, files: Sequence[str], grab: int = 32) -> dict[str, tuple[int, float]]:
    """Run a loop over files in this process: stage name -> (rows that reached it, CPU seconds), in order."""
    loop.setup()
    for start in range(0, len(files), grab):
        loop(files[start : start + grab])
    return {name: (loop.reached[name], seconds) for name, seconds in loop.seconds.items()}


def main() -> None:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--pictures", type=int, default=400, help="different photographs in the pool")
    arguments.add_argument("--take", type=int, default=100, help="how many of them are measured")
    arguments.add_argument("overrides", nargs="*", help="key.path=value, as for populace curate")
    options = arguments.parse_args()
    report = Report(options.json)
    limit_native_threads(1)
    pool = photographs(options.data / f"photographs-{options.pictures}", options.pictures, options.workers)
    files = sorted(str(path) for path in pool.glob("*.jpg"))[: options.take]
    unused = options.data / "unused"
    recipe = recipe_config(RECIPE, pool, unused, *options.overrides)
    everything = recipe_config(RECIPE, pool, unused, *options.overrides, *(f"policy.{name}=null" for name in NO_POLICY))
    rates = profile(BareRecipe(everything, files[0]), files)
    shares = profile(BareRecipe(recipe, files[0]), files)
    total = sum(seconds for _, seconds in shares.values())
    for name, (rows, seconds) in rates.items():
        reached, part = shares.get(name, (0, 0.0))
        detail = {"ms a picture": 1000 * seconds / rows, "reach": reached / len(files), "share of time": part / total}
        report(Figure(f"{name} on one core", rows / seconds, "images/s", detail=detail))
    report(Figure("the recipe on one core", len(files) / total, "images/s"))


if __name__ == "__main__":
    main()
