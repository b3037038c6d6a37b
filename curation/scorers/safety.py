"""Block lists, licences and opt-outs. No model and no pixels: runs right after the screen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from curation.records import Batch
from curation.rights import OPT_OUT_KEYS, opted_out, prohibits
from curation.scorers.base import Scorer, ScorerConfig, Weights
from curation.scorers.block_lists import ContentLists, PerceptualLists, as_phash, list_file
from curation.scorers.licences import first_value, normalised_licence
from curation.scorers.weights import hashed

LICENCE_KEYS = ("licence", "license", "licence_url", "license_url", "rights")


class SafetyConfig(ScorerConfig):
    """Settings of the safety scorer. Which licences are allowed is a matter of the policy, not of this scorer."""

    kind: Literal["lists"] = "lists"
    batch_size: int = Field(256, ge=1, description="largest number of rows in one call")
    content_hash_lists: tuple[str, ...] = Field((), description="files of SHA-256 hashes of whole files")
    perceptual_hash_lists: tuple[str, ...] = Field((), description="files of 64-bit perceptual hashes (see the screen)")
    perceptual_radius: int = Field(
        0, ge=0, le=8, description="bits in which a perceptual hash may differ from a list's"
    )
    licence_keys: tuple[str, ...] = Field(LICENCE_KEYS, description="metadata keys, the first that has a value counts")
    opt_out_keys: tuple[str, ...] = Field(
        OPT_OUT_KEYS, description="metadata keys that may say that the publisher opted out (see `curation.rights`)"
    )

    def identity(self) -> dict[str, Any]:
        """Without the lists' paths: their content is in the weights."""
        lists = ("content_hash_lists", "perceptual_hash_lists")
        settings = super().identity()
        return {name: len(value) if name in lists else value for name, value in settings.items()}


class SafetyScorer(Scorer):
    """Block lists by content hash and by perceptual hash, the licence, and the publisher's opt-out.

    Columns:
        blocked_by: string, the file name of the list, null if on none. A content match comes before a perceptual one.
        block_distance: int16, 0 for a content match, else the Hamming distance; null if on no list.
        licence: string, see `curation.scorers.licences.normalised_licence`; null if unknown.
        opt_out: bool, whether the metadata or the image itself (`data_mining` of the header) opts out, as
            `curation.rights` has it; false when nothing is said.

    A list may be secret (hashes of child sexual abuse material from a hotline, takedown requests): keep the file
    readable for the workers only, and give it a name that may be seen. Only that name and the file's SHA-256 enter the
    ledger, the lineage, logs and error messages, never an entry; the ledger does hold the hashes of the blocked rows
    themselves. A changed list changes the fingerprint, so that the next run scores every row again, without pixels.
    What to do beyond dropping such a row (reporting, destroying the copy) is the operator's duty and not done here.

    Rows whose perceptual hash is degenerate (flat pictures, see the screen) or null are compared by content only.
    Limits: one bit-exact SHA-256 misses any re-encoding, and a 64-bit DCT hash misses crops and mirrors.
    """

    name = "safety"
    columns: ClassVar[Mapping[str, pa.DataType]] = {
        "blocked_by": pa.string(),
        "block_distance": pa.int16(),
        "licence": pa.string(),
        "opt_out": pa.bool_(),
    }
    needs = ("sha256", "phash", "phash_degenerate", "metadata", "data_mining")
    needs_pixels = False
    version = 3

    def __init__(self, config: SafetyConfig) -> None:
        super().__init__(config)
        self._content: ContentLists | None = None
        self._perceptual: PerceptualLists | None = None

    def check(self) -> list[Weights]:
        """Name and SHA-256 of every list.

        Raises:
            MissingWeightsError: a list is not there.
            ValueError: a list holds something else than hashes of its kind.
        """
        self._read()
        return [
            hashed(list_file(path)) for path in (*self.config.content_hash_lists, *self.config.perceptual_hash_lists)
        ]

    def setup(self) -> None:
        self._content, self._perceptual = self._read()

    def score(self, batch: Batch) -> dict[str, Sequence[Any]]:
        columns: dict[str, Any] = {name: [] for name in self.columns}
        rows = zip(*(batch.columns[name] for name in self.needs), strict=True)
        for sha256, phash, degenerate, metadata, embedded in rows:
            blocked_by, distance = self._blocked(sha256, None if degenerate else as_phash(phash))
            fields = _fields(metadata)
            columns["blocked_by"].append(blocked_by)
            columns["block_distance"].append(distance)
            columns["licence"].append(normalised_licence(first_value(fields, self.config.licence_keys)))
            columns["opt_out"].append(opted_out(fields, self.config.opt_out_keys) or prohibits(embedded))
        return columns

    def _read(self) -> tuple[ContentLists, PerceptualLists]:
        return ContentLists(self.config.content_hash_lists), PerceptualLists(self.config.perceptual_hash_lists)

    def _blocked(self, sha256: str | None, phash: int | None) -> tuple[str | None, int | None]:
        assert self._content is not None
        assert self._perceptual is not None
        name = self._content.find(sha256)
        if name is not None:
            return name, 0
        if phash is None:
            return None, None
        return self._perceptual.nearest(phash, self.config.perceptual_radius) or (None, None)


def _fields(metadata: str | None) -> dict[str, Any]:
    """The metadata's JSON object; anything else counts as no metadata."""
    if not metadata:
        return {}
    try:
        fields = json.loads(metadata)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
