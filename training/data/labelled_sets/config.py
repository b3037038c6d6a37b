"""Where labelled pictures are, and which of them are held out.

Folder layouts. `STEM` is a file's path below its folder without the extension, the same in all folders, which may have
subfolders. Images may have any format that `curation.decode` reads, and an EXIF orientation is applied to them: labels
of such a picture are of the UPRIGHT picture, and their size is compared with its.

`kind: coco`: a COCO keypoints file and a folder of images (see `coco.py` for what is read).

`kind: parts`::

    ROOT/images/STEM.jpg        or .png, ...
    ROOT/parts/STEM.png         8-bit grey or palette, class ids; 255 = ignore

`kind: dense`: images, masks and any of the other folders, but the same ones for every picture::

    ROOT/images/STEM.jpg        or .png, ...
    ROOT/masks/STEM.png         above 0: a person (with `mask_values: person`, 1 + the index of the person)
    ROOT/parts/STEM.png         as above
    ROOT/normals/STEM.npy       float [H, W, 3], or .png: 8 or 16 bits, (n + 1) / 2 * (largest value) in R, G, B
    ROOT/depth/STEM.npy         float [H, W] of z in metres, or .png: 16 bits, millimetres; 0, nan = unknown
    ROOT/albedo/STEM.png        8 or 16 bits, sRGB, or .npy: float [H, W, 3], linear, 0..1
    ROOT/intrinsics/STEM.json   the camera, or STEM.txt with 3 x 3 numbers; or one camera for all pictures:
    ROOT/intrinsics.json        which may also be a table from STEM to camera

A camera is {"fx": .., "fy": .., "cx": .., "cy": ..} or a 3 x 3 matrix, alone or as "K" or "intrinsics", with "width"
and "height" if you like (they are compared with the image's).

`kind: shards`: a folder that `pack` wrote.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from curation.config import Config

Origin = Literal["centre", "corner"]


class CocoConfig(Config):
    """People with keypoints in the form of COCO."""

    kind: Literal["coco"] = "coco"
    annotations: str = Field(min_length=1, description="the JSON file")
    images: str = Field(min_length=1, description="folder that its file names are below")
    source_set: str = Field(
        "coco17", description="set of the file's keypoints: coco17, wholebody133, sapiens308, or a YAML file's path"
    )
    wanted_set: str | None = Field(
        None, description="set that pictures get, by name of keypoint; null: the file's. It must be the task's"
    )
    field: str | None = Field(
        None,
        description="of annotations, a flat list of x, y, v; null: `keypoints`, with WholeBody's lists of feet, face "
        "and hands, and `goliath_wholebody_kpts` for sapiens308",
    )
    pixel_origin: Origin = Field(
        "centre",
        description="what keypoint (0, 0) is: the centre of the first pixel (COCO: keypoints are pixel indices), or "
        "the picture's corner (0.5 is subtracted). Boxes are from the corner in either case",
    )
    category: str | int | None = Field(
        None,
        description="of people, by name or number, or all; null: `person` where the file names it, else the only "
        "category there is. Annotations of others are left out",
    )
    crowds: Literal["drop", "keep"] = Field(
        "drop",
        description="annotations with iscrowd: left out (released), or kept as people without labelled keypoints",
    )
    min_keypoints: int = Field(1, ge=0, description="people with fewer labelled keypoints are left out (released: 1)")
    empty_images: bool = Field(False, description="keep images on which no person is left")


class _Folders(Config):
    root: str = Field(min_length=1, description="folder that holds images/ and the folders of labels")
    incomplete: Literal["error", "skip"] = Field(
        "error", description="images without all their labels: an error that lists them, or left out"
    )
    classes: int = Field(29, ge=2, le=255, description="part classes, ids 0..classes - 1")


class PartFoldersConfig(_Folders):
    """Pictures with index masks of body parts."""

    kind: Literal["parts"] = "parts"
    background: int | None = Field(0, ge=0, le=254, description="class that is no part of a person; null: all are")

    @model_validator(mode="after")
    def _background_is_a_class(self) -> PartFoldersConfig:
        if self.background is not None and self.background >= self.classes:
            raise ValueError(f"background is class {self.background}, but ids go from 0 to {self.classes - 1}")
        return self


class DenseFoldersConfig(_Folders):
    """Pictures with masks and normals, depth, albedo or parts."""

    kind: Literal["dense"] = "dense"
    mask_values: Literal["any", "person"] = Field(
        "any", description="values above 0 are: any person, or 1 + the index of the person"
    )
    normal_axes: Literal["opencv", "opengl"] = Field(
        "opencv",
        description="of normals: x right, y down, z forward (those seen have z < 0), or x right, y up, z backward "
        "(z > 0, as in bluish pictures)",
    )
    depth_unit: float | None = Field(
        None, gt=0, description="metres per unit of depth files; null: 1 for .npy, 0.001 for .png"
    )
    albedo_encoding: Literal["srgb", "linear"] | None = Field(
        None, description="of albedo files; null: srgb for .png, linear for .npy"
    )
    pixel_origin: Origin = Field(
        "centre", description="where cx = cy = 0 is: centre of the first pixel, or the picture's corner (minus 0.5)"
    )


class ShardsConfig(Config):
    """What `pack` wrote."""

    kind: Literal["shards"] = "shards"
    folder: str = Field(min_length=1, description="folder with manifest.json")


Source = Annotated[
    CocoConfig | PartFoldersConfig | DenseFoldersConfig | ShardsConfig,
    Field(discriminator="kind", description="coco, parts, dense or shards"),
]


class LabelledConfig(Config):
    """Labelled pictures of your own."""

    kind: Literal["labelled"] = "labelled"
    train: Source = Field(description="pictures to train on")
    held_out: Source | None = Field(None, description="pictures to measure on; null: a share of `train`")
    held_out_share: float = Field(
        0.05, gt=0, lt=1, description="share that is held out where `held_out` is null, chosen by a hash of ids"
    )
    seed: int = Field(0, ge=0, lt=2**63, description="of that choice")
    group: str | None = Field(
        None,
        description="regular expression whose first group, searched in an id, names what must not be split (a video, "
        "a person); ids that it does not match stand alone",
    )

    @field_validator("group")
    @classmethod
    def _has_a_group(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                groups = re.compile(value).groups
            except re.error as error:
                raise ValueError(f"group {value!r} is no regular expression: {error}") from None
            if groups < 1:
                raise ValueError(f"group {value!r} has no group: put what names a video or person in (parentheses)")
        return value

    def identity(self) -> dict[str, Any]:
        """What fixes the pictures beside the content of their files, of which sources have a fingerprint: no paths."""
        dumped = self.model_dump(mode="json")
        for source in (dumped["train"], dumped["held_out"] or {}):
            # Which category was taken is in the fingerprint, where there are others.
            for key in ("annotations", "images", "root", "folder", "category"):
                source.pop(key, None)
        return dumped
