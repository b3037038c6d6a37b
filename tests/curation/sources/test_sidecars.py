import json
import random
from pathlib import Path

import pytest

from curation.rights import opted_out
from curation.sources import FolderConfig, WebDatasetConfig, open_source
from curation.sources.names import IMAGE_EXTENSIONS
from curation.sources.sidecars import MAX_SIDECARS, Sidecars, is_table, own_stems, table_folders
from tests.fixtures import sidecars as pool
from tests.fixtures.tars import write_tar


def metadata_of(kind: str, root: Path, files: dict[str, bytes]) -> dict[str, dict[str, object]]:
    if kind == "folder":
        for name, data in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        source = open_source(FolderConfig(path=str(root)))
    else:
        members = list(files.items())
        random.Random(3).shuffle(members)
        write_tar(root / "a.tar", members)
        source = open_source(WebDatasetConfig(path=str(root)))
    rows = [row for unit in source.units() for row in source.list_unit(unit)]
    return {row.member or row.uri: json.loads(row.metadata or "{}") for row in rows}


@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_every_opt_out_is_found_under_every_usual_name_and_no_other(tmp_path: Path, kind: str) -> None:
    found = metadata_of(kind, tmp_path, pool.files())
    assert len(found) == len(pool.OPTED_OUT) + len(pool.ALLOWED)
    assert {name for name, metadata in found.items() if opted_out(metadata)} == {
        image for image, _ in pool.OPTED_OUT.values()
    }


@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_the_first_in_the_order_counts(tmp_path: Path, kind: str) -> None:
    names = ["s.rgb.jpg.json", "s.rgb.json", "s.rgb.meta.json", "s.json", "s.info.json"]
    files = {"d/s.rgb.jpg": b"x"} | {
        f"d/{name}": json.dumps({f"k{later}": number for later in range(number, 9)}).encode()
        for number, name in enumerate(names)
    }
    files["d/metadata.jsonl"] = json.dumps({"file_name": "s.rgb.jpg"} | {f"k{n}": 5 for n in range(9)}).encode()
    files["d/metadata.csv"] = b"file_name,k6,k9\ns.rgb.jpg,6,6\n"
    files["metadata.jsonl"] = json.dumps({"file_name": "d/s.rgb.jpg", "k9": 7, "k10": 7}).encode()
    for first in range(len(names) + 1):
        found = metadata_of(kind, tmp_path / str(first), files)["d/s.rgb.jpg"]
        assert found[f"k{first}"] == first
        assert (found["k9"], found["k10"]) == ("6", 7)
        if first < len(names):
            del files[f"d/{names[first]}"]


@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_captions_and_licences_are_found_where_the_keys_are(tmp_path: Path, kind: str) -> None:
    found = metadata_of(
        kind,
        tmp_path,
        {
            "a.jpg": b"x",
            "a.caption": b"a cat",
            "b.input.jpg": b"x",
            "b.outputs.txt": b"a dog",
            "b.meta.json": b'{"license": "cc0"}',
            "c.jpg": b"x",
            "c.seg.json": b'{"license": "of the mask"}',
        },
    )
    assert found == {
        "a.jpg": {"caption": "a cat"},
        "b.input.jpg": {"caption": "a dog", "licence": "cc0"},
        "c.jpg": {"seg.json": {"license": "of the mask"}},
    }


def test_a_name_that_an_image_has_is_lent_to_no_other() -> None:
    images = ["img.jpg", "img.v2.jpg", "s.meta.jpg", "s.rgb.jpg", "n.jpg"]
    names = ["img.json", "img.seg.json", "img.v2.json", "s.meta.json", "n.9.json", "m.json"]
    sidecars = Sidecars(images, IMAGE_EXTENSIONS, [(name, name) for name in names])
    assert {image: sidecars.of(image) for image in images} == {
        "img.jpg": [{"json": "img.json"}, {"seg.json": "img.seg.json"}],
        "img.v2.jpg": [{"json": "img.v2.json"}],
        "s.meta.jpg": [{"json": "s.meta.json"}],
        "s.rgb.jpg": [],
        "n.jpg": [{"9.json": "n.9.json"}],
    }


def test_one_image_takes_a_bounded_number_of_files() -> None:
    sidecars = Sidecars(["a.jpg"], IMAGE_EXTENSIONS, [(f"a.f{n}.json", n) for n in range(10_000)])
    assert sum(map(len, sidecars.of("a.jpg"))) == MAX_SIDECARS
    deep = "d" + ".x" * 8000
    assert Sidecars([f"{deep}.jpg"], IMAGE_EXTENSIONS, [(f"{deep}.json", 0)]).of(f"{deep}.jpg") == [{"json": 0}]


def test_own_stems_of_images_by_content() -> None:
    expected = {
        "a/b.c.JPG": ("a/b.c.JPG", "a/b.c"),
        "0a1b": ("0a1b",),
        "photo.jpg?w=300": ("photo.jpg?w=300", "photo.jpg", "photo"),
        "photo.JPG_large": ("photo.JPG_large", "photo.JPG", "photo"),
        "photo.jpg.1": ("photo.jpg.1", "photo.jpg", "photo"),
        "photo.dat": ("photo.dat",),
    }
    assert {name: own_stems(name, IMAGE_EXTENSIONS) for name in expected} == expected


def test_tables_and_their_folders() -> None:
    assert is_table("a/b/metadata.jsonl")
    assert is_table("Metadata.CSV")
    assert not is_table("a/metadata.json")
    assert list(table_folders("a/b/c.jpg")) == ["a/b", "a", ""]
    assert list(table_folders("c.jpg")) == [""]


@pytest.mark.parametrize("image", ["photo.jpg?w=300", "photo.jpg_large", "photo.jpg.1", "photo.jpg"])
def test_an_image_by_content_takes_the_sidecar_of_its_whole_name(image: str) -> None:
    sidecars = Sidecars([image], IMAGE_EXTENSIONS, [("photo.jpg.json", 1), ("photo.json", 2)])
    assert sidecars.of(image) == [{"json": 1}, {"json": 2}]
