"""The dataset card of an export: Markdown with the YAML front matter that Hugging Face reads.

Saved as `README.md` beside the tars it also makes `datasets.load_dataset(folder)` work: the front matter names the tars
and their columns, which `datasets` would otherwise guess from the first five samples.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from curation.hub_metadata import front_matter
from curation.reasons import DESCRIPTIONS, Reason

FORMAT = 2
"""Raised when the same facts would give another card: finished exports are then written anew."""

_MOST_LICENCES = 50
_LONGEST_TEXT = 200


@dataclass(frozen=True, slots=True)
class ModelFact:
    """A model that scored the pool: the scorer that used it, its name, and the SHA-256 and size of its weights."""

    scorer: str
    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class CardFacts:
    """Everything that a card says.

    The version of the code is not among it: that is in the run's lineage, and a card stays the same where another
    version would write the same corpus.

    Attributes:
        title: name of the dataset.
        source_kind: `folder`, `webdataset`, `parquet` or `urls`.
        source_fingerprint, config_hash: identity of what went in and of what was asked for.
        revision: identity of the shards: changes with any of their bytes.
        inputs, kept: numbers of rows.
        dropped: reason code -> rows; `inputs` = `kept` + their sum.
        thresholds: the limits in force, nested mappings of plain values; None means that a limit is off.
        models: the models that scored the pool.
        licences: licence as the source stated it -> kept rows; None for rows without one.
        extensions: image extension -> kept rows.
        short_sides: label of a range of the short side in pixels -> kept rows, in order; may be empty.
        splits: name -> kept rows. Splits beyond one need `data_files` for each.
        data_files: split -> pattern of its tars, relative to the card.
        shards, bytes, image_bytes: number and total size of the tars, and size of the encoded images in them.
        limits: known limits, one sentence or more each, in Markdown of ours (not escaped).
        contact: where to ask for removal, or None.
    """

    title: str
    source_kind: str
    source_fingerprint: str
    config_hash: str
    revision: str
    inputs: int
    kept: int
    dropped: Mapping[str, int]
    shards: int
    bytes: int
    image_bytes: int
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    models: Sequence[ModelFact] = ()
    licences: Mapping[str | None, int] = field(default_factory=dict)
    extensions: Mapping[str, int] = field(default_factory=dict)
    short_sides: Mapping[str, int] = field(default_factory=dict)
    splits: Mapping[str, int] = field(default_factory=dict)
    data_files: Mapping[str, str] = field(default_factory=lambda: {"train": "shard-*.tar"})
    limits: Sequence[str] = ()
    contact: str | None = None


def dataset_card(facts: CardFacts) -> str:
    """Write the card; the same facts give the same text.

    Raises:
        ValueError: the counts do not add up to the inputs, or those of the splits to the kept rows.
    """
    if facts.inputs != facts.kept + sum(facts.dropped.values()):
        raise ValueError(
            f"the funnel does not add up: {facts.inputs} inputs, {facts.kept} kept and "
            f"{sum(facts.dropped.values())} dropped; every input is kept or has one reason"
        )
    splits = dict(facts.splits) or {"train": facts.kept}
    if sum(splits.values()) != facts.kept or set(splits) != set(facts.data_files):
        raise ValueError(
            f"splits {splits} and data_files {dict(facts.data_files)} must name the same splits, "
            f"and the counts must add up to the {facts.kept} kept rows"
        )
    front = front_matter(
        facts.title,
        facts.kept,
        facts.licences,
        facts.extensions,
        {split: facts.data_files[split] for split in splits},
        splits,
        facts.revision,
        facts.bytes,
        facts.image_bytes,
    )
    sections = [
        f"# {escape(facts.title)}",
        _summary(facts),
        "## What was dropped, and why",
        _funnel(facts),
        "## Thresholds",
        _thresholds(facts),
        "## Models",
        _models(facts),
        "## Licences",
        _licences(facts),
        "## Contents",
        _contents(facts, splits),
        "## How to read it",
        _reading(facts),
        "## Known limits",
        _limits(facts),
        "## Removal",
        _removal(facts),
    ]
    return f"{front}\n" + "\n\n".join(sections) + "\n"


def escape(text: str) -> str:
    """Make text from outside inert in a Markdown table cell: no HTML, links, markup or line breaks; at most 200
    characters."""
    flat = " ".join("".join(char if char.isprintable() else " " for char in str(text)).split())
    if len(flat) > _LONGEST_TEXT:
        flat = flat[: _LONGEST_TEXT - 1] + "…"
    return re.sub(r"([\\`*_\[\]|~$])", r"\\\1", html.escape(flat, quote=False)).replace("://", ":&#47;&#47;")


def _summary(facts: CardFacts) -> str:
    rows = [
        ("Source", facts.source_kind),
        ("Inputs", f"{facts.inputs:,}"),
        ("Kept", f"{facts.kept:,} ({_share(facts.kept, facts.inputs)})"),
        ("Shards", f"{facts.shards:,} tars, {facts.bytes:,} bytes"),
        ("Source fingerprint", facts.source_fingerprint),
        ("Configuration hash", facts.config_hash),
        ("Revision of the shards", facts.revision),
    ]
    return (
        "Images selected from a larger pool by Populace: the original encoded bytes, in WebDataset "
        "shards, each with a JSON sidecar. Nothing was re-encoded.\n\n" + _table(("", ""), rows)
    )


def _funnel(facts: CardFacts) -> str:
    known = [reason.value for reason in Reason]
    order = {code: position for position, code in enumerate(known)}
    codes = sorted(facts.dropped, key=lambda code: (order.get(code, len(order)), code))
    rows = [
        (code, DESCRIPTIONS[Reason(code)] if code in order else "", f"{count:,}", _share(count, facts.inputs))
        for code in codes
        if (count := facts.dropped[code])
    ]
    rows.append(("kept", "in this dataset", f"{facts.kept:,}", _share(facts.kept, facts.inputs)))
    rows.append(("all inputs", "", f"{facts.inputs:,}", _share(facts.inputs, facts.inputs)))
    return "A row counts under the first reason that applied.\n\n" + _table(
        ("Reason", "Meaning", "Images", "Share of inputs"), rows, numbers=2
    )


def _thresholds(facts: CardFacts) -> str:
    rows = [(name, "off" if value is None else str(value)) for name, value in _flat(facts.thresholds)]
    return _table(("Limit", "Value"), rows) if rows else "None were in force."


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name in sorted(values):
        value = values[name]
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{name}", ", ".join(str(item) for item in value)
        else:
            yield f"{prefix}{name}", value


def _models(facts: CardFacts) -> str:
    rows = [(model.scorer, model.name, model.sha256, f"{model.bytes:,}") for model in facts.models]
    if not rows:
        return "No model was used."
    return _table(("Scorer", "Weights", "SHA-256", "Bytes"), sorted(rows), numbers=1)


def _licences(facts: CardFacts) -> str:
    counts: dict[str | None, int] = {}
    for licence, count in facts.licences.items():
        name = (licence or "").strip() or None
        counts[name] = counts.get(name, 0) + count
    unknown = counts.pop(None, 0) + facts.kept - sum(facts.licences.values())
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0] or ""))
    rows = [(licence or "", f"{count:,}", _share(count, facts.kept)) for licence, count in ordered[:_MOST_LICENCES]]
    rest = ordered[_MOST_LICENCES:]
    if rest:
        others = sum(count for _, count in rest)
        rows.append((f"{len(rest):,} others", f"{others:,}", _share(others, facts.kept)))
    rows.append(("not stated by the source", f"{unknown:,}", _share(unknown, facts.kept)))
    return "As the source stated them for the kept images; nobody verified them.\n\n" + _table(
        ("Licence", "Images", "Share of kept"), rows, numbers=2
    )


def _contents(facts: CardFacts, splits: Mapping[str, int]) -> str:
    parts = [_table(("Split", "Images"), [(name, f"{count:,}") for name, count in splits.items()], numbers=1)]
    if facts.extensions:
        formats = sorted(facts.extensions.items(), key=lambda item: (-item[1], item[0]))
        rows = [(name, f"{count:,}", _share(count, facts.kept)) for name, count in formats]
        parts.append(_table(("Format", "Images", "Share of kept"), rows, numbers=2))
    if facts.short_sides:
        rows = [(name, f"{count:,}", _share(count, facts.kept)) for name, count in facts.short_sides.items()]
        parts.append(_table(("Short side, px", "Images", "Share of kept"), rows, numbers=2))
    return "\n\n".join(parts)


def _reading(facts: CardFacts) -> str:
    if not facts.kept:
        return "There are no shards: nothing was kept."
    pattern = next(iter(facts.data_files.values()))
    split = next(iter(facts.data_files))
    extensions = ", ".join(f'"{name}"' for name in sorted(facts.extensions))
    return f"""A sample is `<key>.<format>` and `<key>.json`. A shard holds images of one format; the format names the
column, so a dataset with several formats has several image columns, of which one is filled in each row. Run these in
the folder of this card.

WebDataset:

```python
from glob import glob

import webdataset

for sample in webdataset.WebDataset(sorted(glob("{pattern}")), shardshuffle=False):
    image = next(sample[name] for name in [{extensions}] if name in sample)
```

Hugging Face `datasets` (the front matter of this card, saved as `README.md`, gives it the columns):

```python
from os.path import abspath

from datasets import load_dataset

for sample in load_dataset(abspath("."), split="{split}", streaming=True):
    image = next(sample[name] for name in [{extensions}] if sample[name] is not None)
```

Ray Data (`decoder=None` gives encoded bytes; the default decoder fails on a block of several formats):

```python
from glob import glob
from os.path import abspath

import ray

for sample in ray.data.read_webdataset([abspath(path) for path in sorted(glob("{pattern}"))], decoder=None).iter_rows():
    image = next(sample[name] for name in [{extensions}] if isinstance(sample.get(name), bytes))
```

The Parquet index gives the offset and size of every image and sidecar in its tar, and the image's SHA-256;
`manifest.json` gives the SHA-256 of every file."""


def _limits(facts: CardFacts) -> str:
    standard = [
        "Every selection here is a model's or a rule's; both let wrong images through and drop right ones. The ledger "
        "of the run holds each score.",
        "Licences, captions and other metadata are the source's own statements.",
        "Near-duplicates are found by a perceptual hash: crops, mirrored and heavily edited copies can remain.",
        "The pool's biases in region, age, gender, skin tone, clothing and pose remain unless the run balanced them.",
        "The images may show people who did not agree to be in a dataset.",
    ]
    return "\n".join(f"- {limit}" for limit in [*facts.limits, *standard])


def _removal(facts: CardFacts) -> str:
    where = f"write to {escape(facts.contact)}" if facts.contact else "write to whoever published this dataset"
    return (
        f"To have an image removed, {where}, and name its key, its `id` in the index, its SHA-256, or the address it "
        "was found at. An image is in one shard only, so that its removal concerns no other."
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "–"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> str:
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    lines = [head, rule, *([escape(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
