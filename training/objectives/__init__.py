"""What pretraining optimises: pure functions of tensors and arrays, which know nothing of engines, ranks or files.

The loss of Sapiens2 (paper, 3.2 and A.1.1), on two global and four local views of every image::

    L = 1.0 * L_MAE + 0.4 * L_CLS + 0.04 * L_KoLeo

    L_MAE    reconstruction.py   pixels of the 75 % of tokens that `masks.py` hides, on the global views
    L_CLS    distillation.py     cross-entropy from the teacher's prototypes to the student's, over pairs of views
    L_KoLeo  koleo.py            -log of the distance to the nearest CLS token of the batch, on each global view

The teacher follows the student (`ema.py`); temperatures, momentum and learning rate change by `schedules.py`;
`collapse.py` measures whether the CLS tokens still tell images apart. A weight of 0 switches a term off: masked
reconstruction alone is weights 1 / 0 / 0, self-distillation alone 0 / 0.4 / 0.04. All losses are computed in float32,
whatever the dtype of the inputs.
"""

from training.objectives.collapse import CollapseStats
from training.objectives.distillation import (
    DistillationConfig,
    centred_softmax,
    distillation_loss,
    patch_distillation_loss,
    sinkhorn_knopp,
    teacher_temperature_at,
    update_centre,
    view_pairs,
)
from training.objectives.ema import EmaConfig, momentum_at, update_ema
from training.objectives.koleo import KoleoConfig, koleo_loss
from training.objectives.masks import MaskConfig, sample_keep, visible_count
from training.objectives.reconstruction import (
    ReconstructionConfig,
    denormalise,
    patchify,
    reconstruction_loss,
    target_patches,
    unpatchify,
)
from training.objectives.schedules import cosine, linear, warmup_cosine

__all__ = [
    "CollapseStats",
    "DistillationConfig",
    "EmaConfig",
    "KoleoConfig",
    "MaskConfig",
    "ReconstructionConfig",
    "centred_softmax",
    "cosine",
    "denormalise",
    "distillation_loss",
    "koleo_loss",
    "linear",
    "momentum_at",
    "patch_distillation_loss",
    "patchify",
    "reconstruction_loss",
    "sample_keep",
    "sinkhorn_knopp",
    "target_patches",
    "teacher_temperature_at",
    "unpatchify",
    "update_centre",
    "update_ema",
    "view_pairs",
    "visible_count",
    "warmup_cosine",
]
