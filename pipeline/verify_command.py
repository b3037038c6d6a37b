"""`populace verify RUN`: is every byte of a run as it was written?"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # pydantic and the scorers take long to import, and `populace --help` must not
    from pipeline.config import PopulaceConfig
    from pipeline.storage import Storage


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    verify = commands.add_parser(
        "verify",
        help="check every byte of a run against its manifest and lineage, and repair it",
        description="Names each damaged file. Exit code 0: whole, or repaired; 1: damaged; 3: whole as far as it goes, "
        "and not finished. Scores are measured again, the ledger is written from scores, shards from the source.",
    )
    verify.add_argument("run_directory", metavar="RUN")
    verify.add_argument(
        "--repair", action="store_true", help="make what is damaged anew, with the configuration in lineage.json"
    )
    verify.add_argument("--json", action="store_true", help="the damaged files as JSON on stdout")
    verify.add_argument("--quiet", action="store_true", help="no progress")
    verify.set_defaults(run=_verify)


def _verify(options: argparse.Namespace) -> int:
    from rich.console import Console

    from pipeline.commands import FAILED, UNFINISHED, USAGE, guarded, logged

    console = Console(stderr=True)

    def action() -> int:
        from pipeline.progress import RunProgress
        from pipeline.resources import RayConfig, ray_cluster
        from pipeline.rundir import RUN_FILE
        from pipeline.storage import Storage
        from pipeline.verify import verify

        storage = Storage(options.run_directory)
        if not any(storage.exists(name) for name in (RUN_FILE, "lineage.json")):
            print(f"error: {options.run_directory} is not a run directory: it has no {RUN_FILE}", file=sys.stderr)
            return USAGE
        progress = RunProgress(console, options.quiet)
        with ray_cluster(RayConfig(), None):
            verdict = verify(storage, progress)
            repaired = False
            if verdict.damages and options.repair:
                repaired = _repaired(storage, progress)
        if options.json:
            print(json.dumps({**verdict.to_json(), "repaired": repaired}))
        else:
            for damage in verdict.damages:
                print(f"damaged   {damage}")
            state = f"{len(verdict.damages):,} damaged" if verdict.damages else "all whole"
            print(f"verified  {verdict.items:,} files, {verdict.bytes:,} bytes: {state}{', repaired' * repaired}")
        if verdict.damages and not repaired:
            print(
                "Mend it with `populace curate CONFIG --verify`, with the configuration of the run; a damaged "
                "checkpoint with the command that trained it, which goes on from the newest whole one.",
                file=sys.stderr,
            )
            return FAILED
        return 0 if verdict.finished else UNFINISHED

    return guarded(console, lambda: logged(console, action))


def _repaired(storage: Storage, progress: object) -> bool:
    """Curate with the stored configuration. Whether nothing is damaged afterwards."""
    from pipeline.curate import curate
    from pipeline.progress import RunProgress
    from pipeline.verify import verify

    assert isinstance(progress, RunProgress)
    curate(stored_config(storage), progress, check=True)
    return not verify(storage, progress).damages


def stored_config(storage: Storage) -> PopulaceConfig:
    """The configuration of a finished run, as its lineage has it, with the place of the source from `run.json`.

    Raises:
        ConfigError: it is not there, or credentials were left out of it.
    """
    from curation.policy import PolicyConfig
    from pipeline.config import ConfigError, parse_config
    from pipeline.rundir import RUN_FILE

    lineage, run = storage.read_json("lineage.json") or {}, storage.read_json(RUN_FILE) or {}
    stored = lineage.get("configuration") or {}
    how = "Give it the configuration: `populace curate CONFIG --verify`."
    try:
        stored = {**stored, "output": storage.root}
        stored["source"] = {**stored["source"], "path": run["identity"]["source"]["path"]}
        with_credentials = any(section.get("storage_options") for section in _sections(stored))
    except (KeyError, TypeError):
        raise ConfigError(f"{storage.root}: the configuration of the run cannot be read from it. {how}") from None
    if with_credentials:
        raise ConfigError(f"{storage.root}: the run has storage options, which its lineage leaves out. {how}")
    # A limit that was set must be measured, and one that is a default need not.
    usual = PolicyConfig().model_dump(mode="json")
    stored["policy"] = {name: rule for name, rule in stored["policy"].items() if rule != usual.get(name)}
    return parse_config(stored)


def _sections(value: object) -> list[dict[str, object]]:
    if isinstance(value, dict):
        return [value, *(section for item in value.values() for section in _sections(item))]
    if isinstance(value, list):
        return [section for item in value for section in _sections(item)]
    return []
