"""The front matter is valid YAML that says what the Hub expects."""

from __future__ import annotations

import pytest
import yaml

from curation.hub_metadata import front_matter, hub_licences, size_category


@pytest.mark.parametrize(
    ("samples", "category"),
    [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (10**6, "1M<n<10M"), (10**9, "1B<n<10B"), (10**12, "n>1T")],
)
def test_size_category(samples: int, category: str) -> None:
    assert size_category(samples) == category


@pytest.mark.parametrize(
    ("licences", "expected"),
    [
        ({}, ["unknown"]),
        ({None: 3, " ": 1}, ["unknown"]),
        ({"CC BY 4.0": 2, "CC0-1.0": 1}, ["cc-by-4.0", "cc0-1.0"]),
        ({"all rights reserved": 1, "mit": 1, None: 1}, ["mit", "other", "unknown"]),
        ({"mit": 0, "odbl": 1}, ["odbl"]),
    ],
)
def test_licences(licences: dict[str | None, int], expected: list[str]) -> None:
    assert hub_licences(licences) == expected


def test_front_matter_is_yaml_whatever_the_title_is() -> None:
    title = '---\n"a": [1] # <b>: {é}'
    text = front_matter(
        title, 5, {"mit": 5}, {"png": 2, "jpg": 3}, {"train": "shard-*.tar"}, {"train": 5}, "5eed", 99, 77
    )
    assert text.startswith("---\n")
    assert text.endswith("\n---\n")
    front = yaml.safe_load(text[4:-4])
    assert front["pretty_name"] == title
    (config,) = front["configs"]
    assert config["config_name"] == "default"
    assert config["data_files"] == [{"split": "train", "path": "shard-*.tar"}]
    assert "5eed" in config["description"]
    assert front["dataset_info"]["splits"] == [{"name": "train", "num_bytes": 77, "num_examples": 5}]
    assert (front["dataset_info"]["download_size"], front["dataset_info"]["dataset_size"]) == (99, 77)
    columns = {item["name"]: item["dtype"] for item in front["dataset_info"]["features"]}
    assert columns == {"jpg": "image", "png": "image", "json": "json", "__key__": "string", "__url__": "string"}


def test_nothing_kept_declares_no_files() -> None:
    front = yaml.safe_load(front_matter("empty", 0, {}, {}, {"train": "shard-*.tar"}, {"train": 0}, "5eed", 0, 0)[4:-4])
    assert "configs" not in front
    assert "dataset_info" not in front
