from pathlib import Path

import fsspec
import pytest

from curation.sources import SourceError, WebDatasetConfig
from curation.sources.containers import Containers, expand_braces


def names(path: str) -> list[str]:
    found = Containers(WebDatasetConfig(path=path), (".tar",), "tar").units()
    return [unit.name for unit in found]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.tar", ["a.tar"]),
        ("s-{098..101}.tar", ["s-098.tar", "s-099.tar", "s-100.tar", "s-101.tar"]),
        ("{b,a}/{1..2}", ["b/1", "b/2", "a/1", "a/2"]),
        ("{2..0}", ["2", "1", "0"]),
        ("{a,}x", ["ax", "x"]),
    ],
)
def test_braces(pattern: str, expected: list[str]) -> None:
    assert list(expand_braces(pattern)) == expected


@pytest.fixture(params=["local", "memory"])
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    files = ["s-000.tar", "s-002.tar", "sub/s-001.tar", "sub/deep/s-009.tar", "s-1.TAR", "x.json", "_temporary/0/p.tar"]
    if request.param == "memory":
        for name in files:
            fsspec.filesystem("memory").pipe_file(f"/{tmp_path.name}/{name}", b"123")
        return f"memory://{tmp_path.name}"
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"123")
    return str(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", ["s-000.tar", "s-002.tar", "s-1.TAR", "sub/deep/s-009.tar", "sub/s-001.tar"]),
        ("/sub", ["deep/s-009.tar", "s-001.tar"]),
        ("/s-000.tar", ["s-000.tar"]),
        ("/s-*.tar", ["s-000.tar", "s-002.tar"]),
        ("/s-00[1-9].tar", ["s-002.tar"]),
        ("/s-00[!2].tar", ["s-000.tar"]),
        ("/**/s-00?.tar", ["s-000.tar", "s-002.tar", "sub/deep/s-009.tar", "sub/s-001.tar"]),
        ("/*/s-*.tar", ["sub/s-001.tar"]),
        ("/s-{000..002}.tar", ["s-000.tar", "s-001.tar", "s-002.tar"]),
        ("/{sub/s-001,s-000}.tar", ["s-000.tar", "sub/s-001.tar"]),
    ],
)
def test_what_a_path_names(pool: str, pattern: str, expected: list[str]) -> None:
    assert names(pool + pattern) == expected


def test_a_range_keeps_absent_names_without_a_size(pool: str) -> None:
    units = Containers(WebDatasetConfig(path=pool + "/s-{000..002}.tar"), (".tar",), "tar").units()
    assert [unit.entries for unit in units] == [(("s-000.tar", 3),), (("s-001.tar", None),), (("s-002.tar", 3),)]


def test_ignored_files_are_counted(pool: str) -> None:
    containers = Containers(WebDatasetConfig(path=pool), (".tar",), "tar")
    containers.units()
    assert containers.ignored == {".json": 1, ".tar": 1}


@pytest.mark.parametrize("pattern", ["/t-{000..002}.tar", "/none*.tar", "/nowhere"])
def test_nothing_found_is_an_error(pool: str, pattern: str) -> None:
    with pytest.raises(SourceError, match=r"holds no tar|does not exist"):
        names(pool + pattern)


def test_a_folder_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "x[1]{a,b}").mkdir()
    (tmp_path / "x[1]{a,b}" / "s.tar").write_bytes(b"1")
    assert names(str(tmp_path / "x[1]{a,b}")) == ["s.tar"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", ["_y=1/a.parquet", "a.parquet"]),
        ("/**/*.parquet", ["_y=1/a.parquet", "a.parquet"]),
        ("/_delta_log/*.parquet", ["0.parquet"]),
        ("/_b.parquet", ["_b.parquet"]),
    ],
)
def test_files_of_a_tables_own_are_containers_only_where_they_are_named(
    tmp_path: Path, pattern: str, expected: list[str]
) -> None:
    for name in ("a.parquet", "_b.parquet", "_delta_log/0.parquet", "_y=1/a.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"1")
    containers = Containers(WebDatasetConfig(path=f"{tmp_path}{pattern}"), (".parquet",), "file", lake=True)
    assert [unit.name for unit in containers.units()] == expected
    assert containers.ignored == ({"(underscore)": 2} if len(expected) == 2 else {})
