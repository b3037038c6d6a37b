"""Task heads: pose, segmentation, surface normals, pointmap and albedo on the backbone's feature map."""

from training.models.heads.config import (
    AlbedoHeadConfig,
    DeconvHeadConfig,
    DenseHeadConfig,
    HeadConfig,
    NormalHeadConfig,
    PointmapHeadConfig,
    PoseHeadConfig,
    SegmentationHeadConfig,
)
from training.models.heads.deconv import PoseHead, SegmentationHead
from training.models.heads.dense import AlbedoHead, NormalHead, PointmapHead
from training.models.heads.registry import HEADS, SIZES, TASKS, build_head, head_config

__all__ = [
    "HEADS",
    "SIZES",
    "TASKS",
    "AlbedoHead",
    "AlbedoHeadConfig",
    "DeconvHeadConfig",
    "DenseHeadConfig",
    "HeadConfig",
    "NormalHead",
    "NormalHeadConfig",
    "PointmapHead",
    "PointmapHeadConfig",
    "PoseHead",
    "PoseHeadConfig",
    "SegmentationHead",
    "SegmentationHeadConfig",
    "build_head",
    "head_config",
]
