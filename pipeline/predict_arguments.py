"""What `populace predict` and `populace evaluate` take alike, and what is made of it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pipeline.commands import USAGE, guarded, print_error

if TYPE_CHECKING:  # torch takes seconds to import, and `populace --help` must not
    from pipeline.task_weights import WeightsOptions
    from training.prediction.boxes import Detector
    from training.prediction.config import PredictorConfig

TASKS = ("pose", "seg", "normal", "pointmap", "albedo")


def add_weights_arguments(parser: argparse.ArgumentParser) -> None:
    """TASK, --weights and what goes with them."""
    parser.add_argument("task", choices=TASKS, metavar="TASK", help=", ".join(TASKS))
    parser.add_argument(
        "--weights", required=True, metavar="W",
        help="a safetensors file or folder; or the output of a run that fine-tuned TASK (its best checkpoint)",
    )  # fmt: skip
    parser.add_argument("--checkpoint", type=int, metavar="STEP", help="of a run (default: the best)")
    parser.add_argument(
        "--size", type=size, metavar="HxW",
        help="pixels of what the network sees (default: the run's, else the backbone's)",
    )  # fmt: skip
    parser.add_argument("--backbone", metavar="NAME", help="of the zoo; for files with the names of transformers")
    parser.add_argument(
        "--keypoints", metavar="SET", help="pose: name or YAML file, if the weights have a set of yours"
    )
    parser.add_argument("--classes", metavar="FILE", help="seg: YAML with names and flip_pairs of classes of your own")
    parser.add_argument("--detector", metavar="yolo|FILE", help="pose: finds people (YOLO: an ONNX file or a name)")
    parser.add_argument("--batch-size", type=whole, metavar="N", help="crops in one pass; what bounds memory (8)")
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1 (default: a GPU if there is one)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="of weights and activations (float32)")
    parser.add_argument(
        "--flip", action=argparse.BooleanOptionalAction, default=None,
        help="average with the mirror image, at twice the time (default: for pose only, as released)",
    )  # fmt: skip
    parser.add_argument("--limit", type=whole, metavar="N", help="at most so many pictures")
    parser.add_argument("--json", action="store_true", help="the outcome as JSON on stdout")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def whole(text: str) -> int:
    """1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def size(text: str) -> tuple[int, int]:
    """HxW -> (height, width)."""
    found = re.fullmatch(r"(\d+)[x×](\d+)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not HEIGHTxWIDTH in pixels, for example 1024x768")
    return int(found[1]), int(found[2])


def weights_options(options: argparse.Namespace, base: PredictorConfig, **task: Any) -> WeightsOptions:
    """What the arguments say of weights, on top of a configuration.

    Args:
        task: `pose` and `seg` sections, if there are any.
    """
    from pipeline.task_weights import WeightsOptions, validated
    from training.prediction.config import PredictorConfig

    names = {"batch_size": options.batch_size, "dtype": options.dtype, "flip": options.flip}
    given = {name: value for name, value in names.items() if value is not None}
    config = validated(PredictorConfig, {**base.model_dump(), **given}, "predictor")
    return WeightsOptions(
        options.size, options.backbone, options.device, options.keypoints, options.classes, options.checkpoint, config,
        **task,
    )  # fmt: skip


def detector_of(options: argparse.Namespace, section: Any = None) -> Detector | None:
    """The detector that the arguments name, on top of a `YoloPersonConfig`; None: none is."""
    from curation.scorers.person_yolo import YoloPersonConfig
    from pipeline.config import ConfigError
    from pipeline.task_weights import validated
    from training.prediction.detector import yolo

    if options.detector is None and section is None:
        return None
    if options.task != "pose":
        raise ConfigError(f"{options.task} takes whole pictures: a detector is for pose, leave it out")
    values = {} if section is None else section.model_dump()
    if options.detector not in (None, "yolo"):
        values["weights"] = options.detector
    if options.device is not None:
        values["device"] = options.device
    return yolo(validated(YoloPersonConfig, values, "detector"))


def run_guarded(action: Callable[[Console], int]) -> int:
    """Turn what a user can mend into one line and exit code 2."""
    console = Console(stderr=True)

    def guard() -> int:
        import torch

        from training.data.errors import DataError
        from training.engine.checkpoint import CheckpointError
        from training.models.tensor_files import WeightsError

        try:
            return action(console)
        except (WeightsError, CheckpointError, DataError, FileNotFoundError, NotADirectoryError, ValueError) as error:
            print_error(console, " ".join(str(error).split()))
            return USAGE
        except (torch.OutOfMemoryError, MemoryError):
            print_error(console, f"out of memory: {_SMALLER}")
            return USAGE
        except RuntimeError as error:
            if "DefaultCPUAllocator" not in str(error):
                raise
            print_error(console, f"out of memory: {_SMALLER}")
            return USAGE

    return guarded(console, guard)


_SMALLER = "lower --batch-size, or give --dtype bfloat16; what is written already is kept"
