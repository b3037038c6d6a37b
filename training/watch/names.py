"""Names of what is logged: "group/name", the same in the JSON lines and in TensorBoard.

Groups are loss/ (terms before their weights, and the weighted total), collapse/, optimiser/, speed/, memory/ and time/
(shares of a step). A loss term or a collapse check is named by the caller; what the console shows by name is here.
"""

from __future__ import annotations

LOSS = "loss/total"
LEARNING_RATE = "optimiser/lr"
MOMENTUM = "optimiser/momentum"
"""Of the teacher's moving average."""
GRAD_NORM = "optimiser/grad_norm"
"""Global norm of the gradients before clipping."""
IMAGES_PER_S = "speed/images_per_s"
TOKENS_PER_S = "speed/tokens_per_s"
STEP_S = "speed/step_s"
MFU = "speed/mfu"
"""Model-FLOPs utilisation, a share."""
SECONDS_LEFT = "speed/seconds_left"
PEAK_BYTES = "memory/peak_bytes"
