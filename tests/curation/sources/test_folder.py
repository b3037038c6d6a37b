import json
import pickle
from pathlib import Path

import fsspec
import pytest

import curation.sources.folder as folder_module
from curation.reasons import Reason
from curation.records import Locator, record_id
from curation.sources import FolderConfig, SourceError, open_source
from curation.sources.base import Source
from tests.fixtures.tars import picture


def listed(source: Source) -> list[Locator]:
    return [locator for unit in source.units() for locator in source.list_unit(unit)]


FILES: dict[str, bytes] = {
    "a.jpg": picture(1),
    "a.json": b'{"caption": "one", "id": 5}',
    "sub/b.PNG": picture(2),
    "sub/b.txt": b"two\n",
    "sub/c.v2.webp": picture(3),
    "sub/c.v2.json": b"{broken",
    "sub/c.json": b"{}",
    "pool/0a1b2c": picture(4),
    "pool/0a1b2c.json": b'{"license": "cc0"}',
    "empty.gif": b"",
    "sub/lost.json": b"{}",
    "notes.txt": b"not beside a picture",
    "films/x.mp4": b"film",
    ".DS_Store": b"x",
    "__MACOSX/._a.jpg": b"x",
}
INPUTS = ["a.jpg", "empty.gif", "pool/0a1b2c", "sub/b.PNG", "sub/c.v2.webp"]


@pytest.fixture(params=["local", "memory"])
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        for name, data in FILES.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(data)
        return str(tmp_path)
    fs = fsspec.filesystem("memory")
    for name, data in FILES.items():
        fs.pipe_file(f"/{tmp_path.name}/{name}", data)
    return f"memory://{tmp_path.name}"


def test_inputs_sidecars_and_what_is_ignored(pool: str) -> None:
    source = open_source(FolderConfig(path=pool))
    locators = listed(source)
    assert [locator.uri for locator in locators] == INPUTS
    assert [locator.id for locator in locators] == [record_id(name, "") for name in INPUTS]
    assert [locator.size for locator in locators] == [len(FILES[name]) for name in INPUTS]
    metadata = {locator.uri: json.loads(locator.metadata) for locator in locators if locator.metadata}
    assert metadata == {
        "a.jpg": {"caption": "one", "id": 5},
        "pool/0a1b2c": {"licence": "cc0"},
        "sub/b.PNG": {"caption": "two"},
        "sub/c.v2.webp": {"metadata_problem": "json: not JSON"},
    }
    assert source.ignored() == {"(hidden)": 2, ".json": 1, ".mp4": 1, ".txt": 1}


def test_bytes_and_reasons(pool: str) -> None:
    source = pickle.loads(pickle.dumps(open_source(FolderConfig(path=pool, max_bytes=400))))
    locators = [*listed(source), Locator("0" * 32, "not/there.jpg")]
    payloads = list(source.read(locators))
    assert [payload.data for payload in payloads] == [FILES[name] or None for name in INPUTS] + [None]
    assert [payload.reason for payload in payloads] == [None, Reason.EMPTY, None, None, None, Reason.MISSING]
    small = list(open_source(FolderConfig(path=pool, max_bytes=10)).read(locators[:2]))
    assert [payload.reason for payload in small] == [Reason.TOO_MANY_BYTES, Reason.EMPTY]
    assert small[0].detail == "308 bytes, the cap is 10"


def test_units_are_runs_with_their_sidecars(pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = open_source(FolderConfig(path=pool))
    expected = listed(whole)
    monkeypatch.setattr(folder_module, "UNIT_FILES", 2)
    source = open_source(FolderConfig(path=pool))
    units = source.units()
    assert [unit.name for unit in units] == ["a.jpg", "pool/0a1b2c", "sub/c.v2.webp"]
    assert [name for name, _ in units[1].entries] == ["pool/0a1b2c", "pool/0a1b2c.json", "sub/b.PNG", "sub/b.txt"]
    assert listed(source) == expected


def test_a_changed_sidecar_changes_the_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"x")
    source = open_source(FolderConfig(path=str(tmp_path)))
    before = source.fingerprint(source.units())
    assert source.fingerprint(source.units()) == before
    (tmp_path / "a.txt").write_bytes(b"caption")
    assert source.fingerprint(source.units()) != before


def test_a_file_that_goes_away_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"x")
    (tmp_path / "dangling.jpg").symlink_to(tmp_path / "nowhere")
    source = open_source(FolderConfig(path=str(tmp_path)))
    locators = listed(source)
    (tmp_path / "a.jpg").unlink()
    assert [payload.reason for payload in source.read(locators)] == [Reason.MISSING, Reason.MISSING]


def test_relative_paths_survive_another_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool" / "a.jpg").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    source = open_source(FolderConfig(path="pool"))
    monkeypatch.chdir("/")
    assert [payload.data for payload in source.read(listed(source))] == [b"x"]


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"x")
    with pytest.raises(SourceError, match=r"holds no images.*\.tar.*webdataset"):
        open_source(FolderConfig(path=str(tmp_path))).units()
    with pytest.raises(SourceError, match=r"is a file.*webdataset"):
        open_source(FolderConfig(path=str(tmp_path / "x.tar"))).units()
    (tmp_path / "y.xyz").write_bytes(b"x")
    assert len(open_source(FolderConfig(path=str(tmp_path), extensions=(".XYZ",))).units()) == 1


def test_tables_reach_every_unit_below_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "UNIT_FILES", 2)
    for name in ("train/cats/0.jpg", "train/cats/1.jpg", "train/cats/2.jpg", "train/dogs/3.jpg", "x/4.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    rows = [{"file_name": f"{'cats' if n < 3 else 'dogs'}/{n}.jpg", "noai": n != 1} for n in range(4)]
    (tmp_path / "train" / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / "metadata.csv").write_text("file_name\n")
    source = open_source(FolderConfig(path=str(tmp_path)))
    units = source.units()
    assert [len(unit.entries) for unit in units] == [3, 3, 1]
    found = {item.uri: json.loads(item.metadata or "{}").get("noai") for item in listed(source)}
    assert found == {
        "train/cats/0.jpg": True,
        "train/cats/1.jpg": False,
        "train/cats/2.jpg": True,
        "train/dogs/3.jpg": True,
        "x/4.jpg": None,
    }
    assert source.ignored() == {".csv": 1}
    assert source.ignored_examples() == ["y/metadata.csv"]


def test_units_do_not_change_who_owns_a_sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "a.jpg",
        "a.v2.jpg",
        "a.v2.json",
        "a.json",
        "b.x.jpg",
        "b.y.jpg",
        "b.meta.json",
        "c",
        "c.1.jpg",
        "c.json",
    ):
        (tmp_path / name).write_bytes(b'{"of": "%s"}' % name.encode())
    whole = listed(open_source(FolderConfig(path=str(tmp_path))))
    found = {item.uri: json.loads(item.metadata or "{}").get("of") for item in whole}
    assert found == {
        "a.jpg": "a.json",
        "a.v2.jpg": "a.v2.json",
        "b.x.jpg": "b.meta.json",
        "b.y.jpg": "b.meta.json",
        "c": "c.json",
        "c.1.jpg": None,
    }
    for files in (1, 2, 3):
        monkeypatch.setattr(folder_module, "UNIT_FILES", files)
        assert listed(open_source(FolderConfig(path=str(tmp_path)))) == whole


def test_content_decides_where_the_extension_says_nothing(tmp_path: Path) -> None:
    names = ["photo.jpg.1", "photo.jpg?w=300", "photo.jpg_large"]
    for name in (*names, "photo.json", "film.mp4"):
        (tmp_path / name).write_bytes(b'{"k": 1}')
    with pytest.raises(SourceError, match=r"sniff=true"):
        open_source(FolderConfig(path=str(tmp_path))).units()
    source = open_source(FolderConfig(path=str(tmp_path), sniff=True))
    found = [(item.uri, json.loads(item.metadata or "{}")) for item in listed(source)]
    assert found == [("film.mp4", {}), *((name, {"k": 1}) for name in names)]
    assert source.ignored() == {}


def test_a_table_that_goes_away_leaves_the_images(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"x")
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "a.jpg", "k": 1}')
    source = open_source(FolderConfig(path=str(tmp_path)))
    units = source.units()
    (tmp_path / "metadata.jsonl").unlink()
    assert [(item.uri, item.metadata) for unit in units for item in source.list_unit(unit)] == [("a.jpg", None)]
