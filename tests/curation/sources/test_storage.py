import json
import pickle

import pytest
from pydantic import BaseModel, ValidationError

from curation.config import fingerprint
from curation.sources import AnySourceConfig, FolderConfig, SourceError, UrlsConfig, WebDatasetConfig, open_source
from curation.sources.folder import FolderSource
from curation.sources.parquet import ParquetSource
from curation.sources.urls import UrlsSource
from curation.sources.webdataset import WebDatasetSource

OPTIONS = {"key": "AKIAXYZ", "client_kwargs": {"endpoint_url": "http://h", "n": 3}, "anon": False}


class Outer(BaseModel):
    source: AnySourceConfig


def test_credentials_are_never_shown_but_are_there() -> None:
    config = FolderConfig(path="s3://b", storage_options=OPTIONS)
    shown = [
        repr(config),
        str(config),
        config.model_dump_json(),
        json.dumps(config.model_dump()),
        repr(config.storage_options),
    ]
    assert not any("AKIAXYZ" in text or "http://h" in text for text in shown)
    assert config.model_dump()["storage_options"] == {
        "key": "***",
        "client_kwargs": {"endpoint_url": "***", "n": 3},
        "anon": False,
    }
    assert config.storage_options == OPTIONS
    assert pickle.loads(pickle.dumps(open_source(config))).files.options == OPTIONS
    fingerprint(config)


def test_a_wrong_key_does_not_print_credentials() -> None:
    with pytest.raises(ValidationError) as caught:
        FolderConfig.model_validate({"path": "s3://b", "storage_options": OPTIONS, "extention": 1})
    assert "AKIAXYZ" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "source"),
    [("folder", FolderSource), ("webdataset", WebDatasetSource), ("parquet", ParquetSource), ("urls", UrlsSource)],
)
def test_kind_chooses_the_source(kind: str, source: type) -> None:
    config = Outer.model_validate({"source": {"kind": kind, "path": "somewhere"}}).source
    assert type(open_source(config)) is source
    assert Outer.model_json_schema()["properties"]["source"]["discriminator"]["propertyName"] == "kind"


def test_unknown_kind_and_bad_network_are_errors() -> None:
    with pytest.raises(ValidationError, match="folder"):
        Outer.model_validate({"source": {"kind": "zip", "path": "x"}})
    with pytest.raises(ValidationError):
        UrlsConfig(path="x", allowed_networks=("300.0.0.0/8",))


@pytest.mark.parametrize(
    "config",
    [FolderConfig(path="/no/such"), WebDatasetConfig(path="memory://nothing-here"), UrlsConfig(path="/no/such/*.csv")],
)
def test_a_path_that_is_not_there_is_a_clear_error(config: FolderConfig) -> None:
    with pytest.raises(SourceError, match=r"does not exist|holds no"):
        open_source(config).units()
