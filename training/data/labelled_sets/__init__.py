"""Labelled pictures of your own: COCO keypoint files, folders of masks and maps, and shards made of either.

| file | what it does |
|---|---|
| `config.py` | the sources, the split into training and held-out pictures, and the folder layouts they read |
| `members.py` | one label file -> an array: index masks, normals, depth, albedo, cameras |
| `record.py` | the files and numbers of one picture -> `Picture`, and back |
| `coco.py`, `coco_annotations.py`, `coco_numbers.py`, `coco_categories.py` | people with keypoints from a COCO file |
| `folders.py` | pictures with masks, parts, normals, depth, albedo and cameras, matched by file name |
| `shards.py` | any of these from WebDataset shards |
| `opening.py` | `open_source(config)`, `open_labelled(config) -> (train, held_out)` |
| `pack.py` | `pack(source, folder)`: any source -> shards |
| `check.py` | `check_source(config, sample)`: what is wrong with files, and the fix |
| `plausible.py`, `turned.py`, `problem.py` | what is wrong with one picture |

Every source is a picklable sequence of `Picture` with a `fingerprint`. What cannot be used is a `DataError` that names
the file and what to do; nothing is passed over in silence.
"""

from training.data.labelled_sets.check import check_labelled, check_source
from training.data.labelled_sets.config import (
    CocoConfig,
    DenseFoldersConfig,
    LabelledConfig,
    PartFoldersConfig,
    ShardsConfig,
    Source,
)
from training.data.labelled_sets.opening import open_labelled, open_source
from training.data.labelled_sets.pack import pack
from training.data.labelled_sets.problem import Problem
from training.data.labelled_sets.record import PictureSource, Record

__all__ = [
    "CocoConfig",
    "DenseFoldersConfig",
    "LabelledConfig",
    "PartFoldersConfig",
    "PictureSource",
    "Problem",
    "Record",
    "ShardsConfig",
    "Source",
    "check_labelled",
    "check_source",
    "open_labelled",
    "open_source",
    "pack",
]
