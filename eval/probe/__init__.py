"""Frozen dense probes: what a linear layer reads out of the patch features of an encoder that is not trained.

labelled.py      pictures with a class for every pixel, and `Encoder`, what is probed
features.py      patch features and class shares of patches, batch by batch
segmentation.py  mean intersection over union from a confusion matrix that can be added up
ridge.py         the exact least-squares read-out: nothing to tune, one pass over the pictures
softmax.py       batch norm + linear by AdamW: DINOv3's protocol
probe.py         `linear_probe(backbone, train, test, config)`
checkpoints.py   probes the checkpoints of a run and writes `probe.json` beside them
"""

from eval.probe.checkpoints import checkpoint_backbone, probe_checkpoint, probe_run
from eval.probe.config import ProbeConfig
from eval.probe.labelled import Labelled
from eval.probe.probe import linear_probe
from eval.probe.segmentation import Confusion

__all__ = [
    "Confusion",
    "Labelled",
    "ProbeConfig",
    "checkpoint_backbone",
    "linear_probe",
    "probe_checkpoint",
    "probe_run",
]
