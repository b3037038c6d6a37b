"""The YAML front matter of a dataset card: what the Hugging Face Hub and `datasets` read from `README.md`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import yaml

# fmt: off
HUB_LICENCES = frozenset([
    "apache-2.0", "mit", "cc", "cc0-1.0", "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0",
    "cc-by-sa-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nd-4.0", "cc-by-nc-nd-3.0",
    "cc-by-nc-nd-4.0", "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "pddl", "odbl", "odc-by",
    "cdla-permissive-1.0", "cdla-permissive-2.0", "cdla-sharing-1.0",
])
# fmt: on
"""Identifiers that the Hub accepts for `license`; anything else is `other` there."""

_SIZES = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")


def front_matter(
    title: str,
    samples: int,
    licences: Mapping[str | None, int],
    extensions: Mapping[str, int],
    data_files: Mapping[str, str],
    splits: Mapping[str, int],
    revision: str,
    tar_bytes: int,
    image_bytes: int,
) -> str:
    """The block between the two `---` lines, with them.

    Args:
        title: name of the dataset.
        samples: number of samples; with none, no data files are declared, since a pattern without a match is an error.
        licences: licence as stated, or None -> samples.
        extensions: image extension -> samples. Each is a column; sidecars are a JSON column, because `datasets` would
            otherwise fix their fields and types from the first five.
        data_files: split -> pattern of its tars, relative to the card.
        splits: split -> samples.
        revision: changes with any byte of the shards. `datasets` names the folder of its cache by a hash of `configs`
            and `dataset_info`, and not of local data: without it another corpus under the same name gives the data of
            the first one.
        tar_bytes, image_bytes: size of all tars, and of the encoded images in them.
    """
    front: dict[str, Any] = {
        "pretty_name": title,
        "license": hub_licences(licences),
        "size_categories": [size_category(samples)],
        "task_categories": ["image-feature-extraction"],
        "tags": ["webdataset", "image", "humans", "populace"],
    }
    if samples:
        columns = [(extension, "image") for extension in sorted(extensions)]
        columns += [("json", "json"), ("__key__", "string"), ("__url__", "string")]
        front["configs"] = [
            {
                "config_name": "default",
                "description": f"Revision {revision} of the shards.",
                "data_files": [{"split": split, "path": pattern} for split, pattern in data_files.items()],
            }
        ]
        front["dataset_info"] = {
            "config_name": "default",
            "features": [{"name": name, "dtype": dtype} for name, dtype in columns],
            # `datasets` wants a size of each split; ours are by their share of the samples.
            "splits": [
                {"name": split, "num_bytes": image_bytes * count // samples, "num_examples": count}
                for split, count in splits.items()
            ],
            "download_size": tar_bytes,
            "dataset_size": image_bytes,
        }
    return f"---\n{yaml.safe_dump(front, sort_keys=False, allow_unicode=True, width=120)}---\n"


def hub_licences(licences: Mapping[str | None, int]) -> list[str]:
    """The Hub's identifiers of the licences seen; `other` for any other, `unknown` where the source states none."""
    found = set()
    for licence, count in licences.items():
        if count:
            name = re.sub(r"[\s_]+", "-", (licence or "").strip().lower())
            found.add(name if name in HUB_LICENCES else "other" if name else "unknown")
    return sorted(found) or ["unknown"]


def size_category(samples: int) -> str:
    """The Hub's size class of a dataset, such as `10K<n<100K`."""
    if samples < 1000:
        return "n<1K"
    for power, (low, high) in enumerate(pairwise(_SIZES), start=4):
        if samples < 10**power:
            return f"{low}<n<{high}"
    return "n>1T"
