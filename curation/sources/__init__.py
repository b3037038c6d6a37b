"""Sources of images: a folder, WebDataset tars, Parquet files with bytes, lists of URLs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from curation.sources.base import Source, SourceConfig, SourceError, Unit
from curation.sources.folder import FolderConfig, FolderSource
from curation.sources.parquet import ParquetConfig, ParquetSource
from curation.sources.urls import UrlsConfig, UrlsSource
from curation.sources.webdataset import WebDatasetConfig, WebDatasetSource

AnySourceConfig = Annotated[FolderConfig | WebDatasetConfig | ParquetConfig | UrlsConfig, Field(discriminator="kind")]
"""The `source` section: `kind` is folder, webdataset, parquet or urls."""


def open_source(config: FolderConfig | WebDatasetConfig | ParquetConfig | UrlsConfig) -> Source:
    """The source of a configuration. Cheap: nothing is looked at before `units()`.

    Local paths become absolute here, so make the source on the driver and send it to workers.
    """
    if isinstance(config, FolderConfig):
        return FolderSource(config)
    if isinstance(config, WebDatasetConfig):
        return WebDatasetSource(config)
    if isinstance(config, ParquetConfig):
        return ParquetSource(config)
    return UrlsSource(config)


__all__ = [
    "AnySourceConfig",
    "FolderConfig",
    "ParquetConfig",
    "Source",
    "SourceConfig",
    "SourceError",
    "Unit",
    "UrlsConfig",
    "WebDatasetConfig",
    "open_source",
]
