"""`populace models`: what is in the zoo, and what a model costs.

Memory is for one image; activations are in bf16. Nothing is built and no weights are needed: it is all computed from
the configurations (`training/models/cost.py`).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # torch takes seconds to import, and `populace --help` must not
    from training.models.cost import Cost
    from training.models.zoo import ModelSpec

USAGE = 2


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `models list` and `models show`."""
    models = commands.add_parser("models", help="the Sapiens2 models: sizes, cost, memory, licence of the weights")
    actions = models.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser(
        "list",
        help="all models with parameters, tokens, arithmetic and memory",
        description="MACs are multiply-accumulates of matrix products, attention included; FLOPs are twice that.",
    )
    listing.add_argument("pattern", nargs="?", metavar="PATTERN", help="e.g. '*_pose'")
    listing.add_argument("--json", action="store_true", help="a JSON list on stdout")
    listing.set_defaults(run=_list)
    show = actions.add_parser("show", help="configuration, heads, tensor names and cost of one model")
    show.add_argument("name", metavar="NAME", help="e.g. sapiens2_0.4b_pose")
    show.add_argument("--image-size", nargs=2, type=int, metavar=("H", "W"), help="another size, in pixels")
    show.add_argument(
        "--keep", type=float, default=1.0, metavar="SHARE", help="visible share of the tokens (default: 1)"
    )
    show.add_argument("--json", action="store_true", help="as JSON")
    show.set_defaults(run=_show)


def _list(options: argparse.Namespace) -> int:
    from training.models.cost import model_cost
    from training.models.zoo import list_models, model_spec

    names = list_models(options.pattern)
    if not names:
        print(
            f"error: no model matches {options.pattern!r}; the models are {', '.join(list_models())}", file=sys.stderr
        )
        return USAGE
    specs = [model_spec(name) for name in names]
    costs = [model_cost(spec.config, spec.head) for spec in specs]
    if options.json:
        print(json.dumps([_summary(spec, cost) for spec, cost in zip(specs, costs, strict=True)], indent=2))
    else:
        _print_table(specs, costs)
    return 0


def _summary(spec: ModelSpec, cost: Cost) -> dict[str, Any]:
    return {
        "name": spec.name,
        "backbone": spec.backbone,
        "task": spec.task,
        "parameters": cost.parameters,
        "image_size": list(cost.image_size),
        "tokens": cost.tokens,
        "visible_tokens": cost.visible,
        "forward_macs": cost.forward_macs,
        "forward_flops": cost.forward_flops,
        "activation_bytes": cost.activations,
        "activation_bytes_checkpointed": cost.activations_checkpointed,
        "weights_file": spec.weights_file,
        "licence_of_weights": spec.licence,
    }


def _print_table(specs: list[ModelSpec], costs: list[Cost]) -> None:
    from rich.table import Table

    from pipeline.report import results_console
    from training.models.cost import readable_bytes, readable_count

    table = Table(box=None, pad_edge=False)
    table.add_column("model", no_wrap=True)
    columns = ("params", "image", "tokens", "MACs", "FLOPs", "act.", "act. ckpt", "weights")
    for column in columns:
        table.add_column(column, justify="left" if column == "weights" else "right", no_wrap=True)
    for spec, cost in zip(specs, costs, strict=True):
        table.add_row(
            spec.name,
            readable_count(cost.parameters),
            "x".join(map(str, cost.image_size)),
            str(cost.tokens),
            readable_count(cost.forward_macs),
            readable_count(cost.forward_flops),
            readable_bytes(cost.activations),
            readable_bytes(cost.activations_checkpointed),
            "Sapiens2 License" if spec.weights_file else "none",
        )
    console = results_console()
    console.print(table)
    print(
        "For one image. act.: estimate of what is kept for the backward pass in bf16; ckpt: with block checkpointing.\n"
        "weights: licence of the published weights, which are not bundled; `populace models show NAME` has the terms."
    )


def _show(options: argparse.Namespace) -> int:
    from training.models.cost import model_cost
    from training.models.zoo import create, model_spec

    try:
        spec = model_spec(options.name)
        size = None if options.image_size is None else (options.image_size[0], options.image_size[1])
        spec = model_spec(options.name, image_size=size) if size else spec
        cost = model_cost(spec.config, spec.head, keep_ratio=options.keep)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    model = create(options.name, device="meta", image_size=spec.config.image_size)
    keys = group_keys({name: tuple(tensor.shape) for name, tensor in model.state_dict().items()})
    details: dict[str, Any] = {
        **_summary(spec, cost),
        "config": dataclasses.asdict(spec.config),
        "head_config": {"kind": type(spec.head).__name__, **dataclasses.asdict(spec.head)} if spec.head else None,
        "macs": cost.macs,
        "training_flops": cost.training_flops,
        "weight_bytes": cost.inference_memory,
        "adamw_state_bytes": cost.training_state,
        "tensors": [{"name": name, "shape": list(shape), "count": count} for name, shape, count in keys],
    }
    if options.json:
        print(json.dumps(details, indent=2))
    else:
        _print_details(details)
    return 0


def group_keys(shapes: dict[str, tuple[int, ...]]) -> list[tuple[str, tuple[int, ...], int]]:
    """State-dict names with the number of the block left out ("blocks.*."), shape and how many there are."""
    groups: dict[tuple[str, tuple[int, ...]], int] = {}
    for name, shape in shapes.items():
        key = (re.sub(r"(^|\.)blocks\.\d+\.", r"\1blocks.*.", name), shape)
        groups[key] = groups.get(key, 0) + 1
    return [(name, shape, count) for (name, shape), count in groups.items()]


def _print_details(details: dict[str, Any]) -> None:
    from training.models.cost import readable_bytes, readable_count

    def line(title: str, value: object) -> None:
        print(f"{title:<24}{value}")

    line("model", details["name"])
    for name, value in details["config"].items():
        line(f"  {name}", "x".join(map(str, value)) if isinstance(value, tuple) else value)
    for name, value in (details["head_config"] or {}).items():
        line("head" if name == "kind" else f"  {name}", value)
    line("parameters", f"{details['parameters']:,}")
    line("tokens", f"{details['tokens']:,} of the image, {details['visible_tokens']:,} visible")
    line("forward", f"{readable_count(details['forward_macs'])} MACs, {readable_count(details['forward_flops'])} FLOPs")
    for part, macs in details["macs"].items():
        line(f"  {part}", f"{readable_count(macs)} MACs")
    line("forward and backward", f"{readable_count(details['training_flops'])} FLOPs, recomputation not counted")
    for kind, count in details["weight_bytes"].items():
        line(f"weights in {kind}", readable_bytes(count))
    line("AdamW state", f"{readable_bytes(details['adamw_state_bytes'])} (bf16 weights and gradients, float32 copies)")
    kept, checkpointed = details["activation_bytes"], details["activation_bytes_checkpointed"]
    line("activations, bf16", f"{readable_bytes(kept)} an image; {readable_bytes(checkpointed)} with checkpointing")
    line("weights file", details["weights_file"] or "none is published")
    line("licence of the weights", details["licence_of_weights"])
    total = sum(tensor["count"] for tensor in details["tensors"])
    print(f"tensors ({total})")
    for tensor in details["tensors"]:
        times = f"{tensor['count']} x " if tensor["count"] > 1 else ""
        print(f"  {tensor['name']:<44}{times}{tensor['shape']}")
