"""The `data` section: which corpora, in what order, how they are read."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from curation.config import Config
from curation.decode import DecodeConfig
from curation.sources.storage import SecretOptions


class CorpusConfig(Config):
    """One corpus, or several that a merged manifest lists."""

    # A wrong key elsewhere must not print the credentials of this section.
    model_config = ConfigDict(hide_input_in_errors=True)

    path: str = Field(
        min_length=1,
        description="a folder with manifest.json, or a manifest file (merged.json stands for all corpora that it "
        "lists); a path or fsspec URL (s3://, gs://, http://); no default",
    )
    weight: float | None = Field(
        None, gt=0, description="share of this corpus in what is seen, in any unit; null: every sample once per epoch"
    )
    storage_options: SecretOptions = Field(
        default_factory=dict, description="options for fsspec, such as key, secret, client_kwargs; never stored"
    )


class DataConfig(Config):
    """What is read, and how."""

    corpora: tuple[CorpusConfig, ...] = Field(
        (), description="what is trained on; weights for all of them, or for none. `populace run` fills in its own"
    )
    shuffle_shards: int = Field(
        16,
        ge=1,
        description="shards whose samples are shuffled together; more mix better, and take more cache and more open "
        "files (our choice)",
    )
    workers: int = Field(4, ge=0, description="processes of each rank that load; 0: the training process loads")
    prefetch: int = Field(2, ge=1, description="micro-batches that each worker prepares ahead")
    cache: str | None = Field(
        None, description="folder on this machine for shards of remote corpora; null: single images are fetched"
    )
    cache_bytes: int = Field(
        64 << 30, ge=1, description="most bytes of the cache; what is in use is never removed, and may exceed it"
    )
    read_ahead: int = Field(
        4, ge=0, description="shards that each worker fetches ahead of use at most, with a cache; 0: none"
    )
    verify: bool = Field(
        False, description="check the SHA-256 of every image, and of every shard that is fetched to the cache"
    )
    decode: DecodeConfig = Field(DecodeConfig(), description="what is decoded and what is refused, as in curation")
    decode_scale: Literal["full", "covering"] = Field(
        "full",
        description="full: exact. covering: a large picture is decoded at 1/2, 1/4 or 1/8 of its size where each of "
        "its views still shrinks or keeps its part of it; saves most of the decoding of large photographs, and changes "
        "pixels a little, since they are averaged twice. Pictures above decode.max_memory at full size are always "
        "decoded as covering",
    )

    @model_validator(mode="after")
    def _weights(self) -> DataConfig:
        given = [corpus.weight is not None for corpus in self.corpora]
        if any(given) and not all(given):
            raise ValueError(
                f"{sum(given)} of {len(given)} corpora have a weight: give one to each (they are shares of what is "
                "seen), or to none (every sample comes once per epoch)"
            )
        return self

    @property
    def weights(self) -> list[float] | None:
        """One weight for each corpus; None when there are none."""
        found = [corpus.weight for corpus in self.corpora if corpus.weight is not None]
        return found or None

    def identity(self) -> dict[str, Any]:
        """What decides which pixels a place of the sample order shows, beside the corpora's own bytes.

        Those have their fingerprint (`Corpus.fingerprint`): a corpus may move. `verify` is left out, since it changes
        nothing unless a corpus is damaged.
        """
        return {
            "weights": self.weights,
            "shuffle_shards": self.shuffle_shards,
            "decode": self.decode.model_dump(mode="json", exclude={"work_side"}),
            "decode_scale": self.decode_scale,
        }
