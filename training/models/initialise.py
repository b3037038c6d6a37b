"""What encoder and decoder share: drawing weights anew, and the check of `keep`."""

from __future__ import annotations

from torch import nn


def reset_all_parameters(module: nn.Module) -> None:
    """Call `reset_parameters` of `module` and of everything below it that has one.

    For weights that `to_empty` moved off the meta device. On construction it is not needed: every layer draws its own
    weights while it is built, since under DeepSpeed's `zero.Init` a walk over the finished module would come too late.
    """

    def reset_one(child: nn.Module) -> None:
        reset = getattr(child, "reset_parameters", None)
        if callable(reset):
            reset()

    # Children first, the order in which construction draws.
    module.apply(reset_one)
