import pytest

from curation.sources import SourceError
from curation.sources.tables_metadata import Columns, TableMetadata, check_columns


@pytest.mark.parametrize(
    ("uri", "wanted", "expected"),
    [
        ("a/b.parquet", None, {}),
        ("dt=2024-01-01/b=c.parquet", None, {"dt": "2024-01-01"}),
        ("x/a%20b=C%C3%B4te/n=1=2/f", None, {"a b": "Côte", "n": "1=2"}),
        ("dt=__HIVE_DEFAULT_PARTITION__/=x/f", None, {}),
        ("dt=1/n=2/f", ("n",), {"n": "2"}),
    ],
)
def test_partitions(uri: str, wanted: tuple[str, ...] | None, expected: dict[str, str]) -> None:
    assert TableMetadata(wanted, "image").partitions(uri) == expected


def test_columns_are_looked_for_until_all_are_found() -> None:
    error = SourceError("no image here")
    files: dict[str, Columns | None] = {
        "0": None,
        "1": Columns(["a"], error=error),
        "dt=2/2": Columns(["image", "b"]),
        "3": Columns(["image", "c"]),
    }
    seen = []

    def look(name: str) -> Columns | None:
        seen.append(name)
        return files[name]

    check_columns(list(files), TableMetadata(("a", "dt"), "image"), look)
    assert seen == ["0", "1", "dt=2/2"]
    check_columns(list(files), TableMetadata(("c",), "image"), look)
    with pytest.raises(SourceError, match=r"no column 'd'.*source.metadata_columns"):
        check_columns(list(files), TableMetadata(("d",), "image"), look)
    with pytest.raises(SourceError, match="no image here"):
        check_columns(["0", "1"], TableMetadata(None, "image"), look)
    check_columns(["0"], TableMetadata(("d",), "image"), look)
