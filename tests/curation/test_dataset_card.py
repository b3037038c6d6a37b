"""The card adds up, cannot be broken by text from the pool, and its reading examples run as they are printed."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from curation.dataset_card import CardFacts, ModelFact, dataset_card, escape
from curation.manifest import build_manifest, manifest_bytes, manifest_shard
from curation.shards import Sample, index_bytes, shard_name, write_shard

FACTS = CardFacts(
    title="Test people",
    source_kind="folder",
    source_fingerprint="f00d",
    config_hash="c0ffee",
    revision="5eed",
    inputs=1000,
    kept=21,
    dropped={"near_duplicate": 400, "empty": 79, "no_person": 500, "corrupt": 0},
    shards=3,
    bytes=123456,
    image_bytes=100000,
    thresholds={"person": {"short_side": 384, "score": None}, "aspect": [0.5, 2.0]},
    models=[ModelFact("person", "yolo11m-pose.pt", "ab" * 32, 40_000_000)],
    licences={"CC-BY-4.0": 10, "<script>alert(1)</script> | x": 3, None: 5},
    extensions={"jpg": 14, "png": 7},
    short_sides={"384-511": 20, "512-1023": 1},
    limits=["Person boxes are estimates from faces."],
    contact="privacy@example.org",
)


def section(card: str, title: str) -> str:
    return card.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def cells(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_funnel_adds_up_in_the_order_of_the_stages() -> None:
    rows = cells(section(dataset_card(FACTS), "What was dropped, and why"))[2:]
    assert [row[0] for row in rows] == ["empty", r"no\_person", r"near\_duplicate", "kept", "all inputs"]
    counts = [int(row[2].replace(",", "")) for row in rows]
    assert sum(counts[:-1]) == counts[-1] == 1000
    assert rows[0][1] == "zero bytes"
    assert rows[3][3] == "2.10 %"


def test_counts_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="does not add up"):
        dataset_card(dataclasses.replace(FACTS, kept=22))
    with pytest.raises(ValueError, match="splits"):
        dataset_card(dataclasses.replace(FACTS, splits={"train": 20}))


def test_licences_are_counted_with_the_unknown_ones() -> None:
    rows = cells(section(dataset_card(FACTS), "Licences"))[2:]
    assert [(row[0], row[1]) for row in rows] == [
        ("CC-BY-4.0", "10"),
        (r"&lt;script&gt;alert(1)&lt;/script&gt; \| x", "3"),
        ("not stated by the source", "8"),
    ]


def test_many_licences_are_summed_up() -> None:
    facts = dataclasses.replace(
        FACTS, inputs=1000, kept=100, dropped={"empty": 900}, licences={f"L{n:02d}": 1 for n in range(70)}
    )
    rows = cells(section(dataset_card(facts), "Licences"))[2:]
    assert len(rows) == 52
    assert rows[-2][:2] == ["20 others", "20"]
    assert rows[-1][1] == "30"


def test_thresholds_models_limits_and_contact_are_stated() -> None:
    card = dataset_card(FACTS)
    thresholds = {row[0]: row[1] for row in cells(section(card, "Thresholds"))[2:]}
    assert thresholds == {"aspect": "0.5, 2.0", r"person.score": "off", r"person.short\_side": "384"}
    assert cells(section(card, "Models"))[2] == ["person", "yolo11m-pose.pt", "ab" * 32, "40,000,000"]
    assert "- Person boxes are estimates from faces." in section(card, "Known limits")
    assert "privacy@example.org" in section(card, "Removal")
    assert [row[:2] for row in cells(section(card, "Contents")) if row[0] in ("train", "jpg", "384-511")] == [
        ["train", "21"],
        ["jpg", "14"],
        ["384-511", "20"],
    ]


def test_the_same_facts_give_the_same_card() -> None:
    again = dataclasses.replace(FACTS, licences=dict(reversed(FACTS.licences.items())))
    assert dataset_card(FACTS) == dataset_card(again)


@given(st.text(max_size=300))
def test_text_from_the_pool_stays_one_inert_cell(text: str) -> None:
    escaped = escape(text)
    assert "\n" not in escaped
    assert "<" not in escaped
    assert not re.search(r"(?<!\\)(\\\\)*[|\[`*]", escaped)
    assert len(cells(f"| a | {escaped} | b |")[0]) == 3 or escaped.strip() == ""


def test_front_matter_names_columns_and_files() -> None:
    front = yaml.safe_load(dataset_card(FACTS).split("---\n")[1])
    assert front["license"] == ["cc-by-4.0", "other", "unknown"]
    assert front["size_categories"] == ["n<1K"]
    assert front["configs"][0]["data_files"] == [{"split": "train", "path": "shard-*.tar"}]


def test_a_card_of_nothing() -> None:
    card = dataset_card(
        dataclasses.replace(FACTS, inputs=0, kept=0, dropped={}, licences={}, extensions={}, short_sides={}, models=())
    )
    assert "nothing was kept" in section(card, "How to read it")
    assert "No model was used." in card


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A whole shards folder of two formats, with sidecars whose fields and types differ, as the current directory."""
    path = tmp_path / "shards"
    (path / "index").mkdir(parents=True)
    entries = []
    for number, (extension, kind) in enumerate((("jpg", "JPEG"), ("jpg", "JPEG"), ("png", "PNG"))):
        samples = []
        for row in range(number * 7, number * 7 + 7):
            buffer = io.BytesIO()
            Image.new("RGB", (8, 8 + row), (row, 0, 0)).save(buffer, kind)
            sidecar = {"caption": None if row < 8 else "text", f"field{row % 3}": {"n": row if row % 2 else "x"}}
            samples.append(Sample(f"id{row}", f"key{row}", extension, buffer.getvalue(), sidecar))
        with open(path / f"{shard_name(number)}.tar", "wb") as file:
            result = write_shard(file, samples, shard_name(number))
        index = index_bytes(result.index)
        (path / "index" / f"{shard_name(number)}.parquet").write_bytes(index)
        entries.append(manifest_shard(result, index))
    manifest = build_manifest(entries, config_hash="c", formats={}, source_fingerprint="s")
    (path / "manifest.json").write_bytes(manifest_bytes(manifest))
    (path / "README.md").write_text(dataset_card(FACTS), encoding="utf-8")
    monkeypatch.chdir(path)
    return path


def example(name: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", section(dataset_card(FACTS), "How to read it"), re.DOTALL)
    return next(block for block in blocks if name in block)


@pytest.mark.parametrize("name", ["webdataset.WebDataset", "load_dataset", "read_webdataset"])
def test_examples_of_reading_run_as_printed(name: str, folder: Path, ray_cluster: str) -> None:
    # Each loop body is followed by a line that collects what the example found.
    code = example(name).rstrip() + "\n    seen.append((sample['__key__'], image))\n"
    seen: list[tuple[str, object]] = []
    exec(compile(code, name, "exec"), {"seen": seen})
    assert sorted(key for key, _ in seen) == sorted(f"key{row}" for row in range(21))
    assert all(image is not None for _, image in seen)


def test_the_folder_loads_as_a_dataset_with_every_image_and_sidecar(folder: Path, tmp_path: Path) -> None:
    from datasets import load_dataset

    for streaming in (True, False):
        rows = list(load_dataset(str(folder), split="train", streaming=streaming, cache_dir=str(tmp_path / "cache")))
        assert len(rows) == 21
        for row in rows:
            number = int(row["__key__"][3:])
            assert (row["jpg"] or row["png"]).size == (8, 8 + number)
            assert row["json"]["caption"] == (None if number < 8 else "text")
            assert row["json"][f"field{number % 3}"] == {"n": number if number % 2 else "x"}


def test_the_index_is_not_taken_for_the_dataset(folder: Path) -> None:
    # Without the card `datasets` would pick the Parquet index; this is why the card must lie in the folder.
    assert pq.read_table(folder / "index" / "shard-000000.parquet").num_rows == 7
    from datasets import load_dataset

    assert "jpg" in next(iter(load_dataset(str(folder), split="train", streaming=True)))


def test_a_changed_corpus_of_the_same_names_and_sizes_is_loaded_anew(tmp_path: Path) -> None:
    from datasets import load_dataset

    from tests.fixtures import exports

    def export(first: int) -> None:
        """Six images in two shards; every image of the two corpora has the same number of bytes."""
        contents = {}
        for number in range(first, first + 6):
            buffer = io.BytesIO()
            Image.new("RGB", (8, 8), (number, 0, 0)).save(buffer, "BMP")
            contents[number] = buffer.getvalue()
        exports.export(tmp_path / "shards", [3, 3], first=first, contents=contents)
        manifest = json.loads((tmp_path / "shards/manifest.json").read_bytes())
        facts = dataclasses.replace(
            FACTS, inputs=6, kept=6, dropped={}, licences={}, extensions={"jpg": 6}, short_sides={}, models=(),
            bytes=manifest["bytes"], image_bytes=manifest["image_bytes"], revision=manifest["shards"][0]["sha256"][:16],
        )  # fmt: skip
        (tmp_path / "shards/README.md").write_text(dataset_card(facts), encoding="utf-8")

    def keys(streaming: bool) -> list[str]:
        loaded = load_dataset(
            str(tmp_path / "shards"), split="train", streaming=streaming, cache_dir=str(tmp_path / "cache")
        )
        return [row["__key__"] for row in loaded]

    sizes = []
    for first in (10, 20):
        export(first)
        sizes.append(sum(path.stat().st_size for path in (tmp_path / "shards").glob("*.tar")))
        assert keys(streaming=True) == keys(streaming=False) == [f"k{number}" for number in range(first, first + 6)]
        shutil.rmtree(tmp_path / "shards")
    assert sizes[0] == sizes[1]
