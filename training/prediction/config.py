"""The configuration of prediction: the model's side, the inputs' and the outputs'."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curation.codecs.base import DecodeConfig
from curation.config import Config
from training.tasks.warp import Interpolation


class PredictorConfig(Config):
    """How pictures go through the model."""

    batch_size: int = Field(
        8, ge=1, description="crops in one forward pass, of one picture or of several: what bounds the memory"
    )
    flip: bool | None = Field(
        None, description="average with the mirror image (twice the time); null: for pose only (released)"
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="of weights and activations (released float32)"
    )
    min_box_score: float = Field(
        0.3, ge=0, le=1, description="detected people with a lower score are left out (released)"
    )
    box_overlap: float = Field(
        0.3, ge=0, le=1, description="IoU above which the weaker of two detected people is left out (released)"
    )
    whole_when_none: bool = Field(
        True, description="take the whole picture as a person where the detector finds nobody (released)"
    )
    fit: Literal["letterbox", "stretch"] | None = Field(
        None,
        description="dense tasks' pictures to the network's size, as the model was trained; null: stretch for seg, "
        "letterbox for the others (released)",
    )
    interpolation: Interpolation = Field(
        "auto", description="of dense tasks' pictures to the network's size; pose has its own in PoseConfig"
    )


class InputConfig(Config):
    """Which pictures are read."""

    step: int = Field(1, ge=1, description="every step-th frame of a video")
    limit: int | None = Field(None, ge=1, description="at most this many pictures; null: all")
    max_side: int | None = Field(
        None, ge=32, description="larger pictures are decoded to this long side, and predicted at that size; null: full"
    )
    ahead: int = Field(2, ge=0, le=64, description="pictures that are decoded while the model is busy; 0: none")
    decode: DecodeConfig = Field(DecodeConfig(), description="the decode policy (max_memory, formats, ...)")


class OutputConfig(Config):
    """What is written."""

    overwrite: bool = Field(False, description="predict pictures again whose files are there")
    overlays: bool = Field(True, description="write a picture of each prediction")
    gallery: int = Field(100, ge=0, le=2000, description="pictures on the HTML page; 0: no page")
    thumbnail: int = Field(320, ge=32, le=1024, description="long side of a picture on the page, pixels")
    jpeg_quality: int = Field(90, ge=1, le=100, description="of the overlays")
    normals: Literal["npy", "png", "exr"] = Field(
        "npy",
        description="npy: float32; png: 16 bits a channel, (n + 1) / 2 x 65535, x as red; exr: float32, x, y, z as "
        "R, G, B",
    )
    depth: Literal["npy", "png", "exr"] = Field(
        "npy",
        description="npy: float32 metres; png: 16 bits, whole millimetres up to 65.5 m, 0 = nothing; exr: float32 "
        "metres in channel Z",
    )
    points: bool = Field(True, description="write the pointmap as a PLY point cloud too")
    keypoint_threshold: float = Field(0.3, ge=0, description="keypoints of lower scores are not drawn (released)")
