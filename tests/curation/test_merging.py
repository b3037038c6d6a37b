"""A merged manifest lists every shard of every corpus once, under paths that lead there from the file itself."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.features import as_features, feature_writer
from curation.manifest import (
    build_manifest,
    manifest_bytes,
    manifest_shard,
    read_index,
    read_manifest,
    verify_shards,
)
from curation.merging import Corpus, MergeError, corpora_of, corpus_name, join_corpora, merge_manifests
from curation.shards import Sample, index_bytes, shard_name, write_shard


def write_features(path: Path, rows: pa.Table) -> None:
    with open(path, "wb") as file, feature_writer(file, {"screen": "s"}) as writer:
        writer.write_table(as_features(rows.select(["id", "sha256"]), "t"))


def corpus(folder: Path, shards: int = 2, seed: int = 0) -> Corpus:
    """A finished export with feature tables."""
    entries = []
    for name in ("index", "features"):
        (folder / name).mkdir(parents=True)
    for number in range(shards):
        name = shard_name(number)
        samples = [
            Sample(f"id{number}{row}", f"k{number}-{row}", "jpg", bytes([seed, row]) * 300, {}) for row in (0, 1)
        ]
        with open(folder / f"{name}.tar", "wb") as file:
            result = write_shard(file, samples, name)
        (folder / f"index/{name}.parquet").write_bytes(index_bytes(result.index))
        write_features(folder / f"features/{name}.parquet", result.index)
        data = (folder / f"features/{name}.parquet").read_bytes()
        entry = manifest_shard(result, index_bytes(result.index)).record()
        entry |= {"features": f"features/{name}.parquet", "features_bytes": len(data)}
        entry["features_sha256"] = hashlib.sha256(data).hexdigest()
        entries.append(entry)
    manifest = build_manifest([], config_hash=f"c{seed}", formats={}, source_fingerprint="s")
    manifest |= {"feature_fingerprints": {"screen": "s"}, "shards": entries}
    manifest |= {name: sum(entry[name] for entry in entries) for name in ("samples", "bytes", "image_bytes")}
    manifest["extensions"] = {"jpg": manifest["samples"]}
    (folder / "manifest.json").write_bytes(manifest_bytes(manifest))
    return load(folder / "manifest.json")[0]


def load(path: Path) -> list[Corpus]:
    return corpora_of(read_manifest(path), str(path), hashlib.sha256(path.read_bytes()).hexdigest())


def merge(corpora: list[Corpus], path: Path) -> dict[str, Any]:
    merged = merge_manifests(corpora, str(path))
    path.write_bytes(manifest_bytes(merged))
    return merged


def test_all_shards_are_listed_with_exact_totals(tmp_path: Path) -> None:
    days = [corpus(tmp_path / f"day{day}/shards", day, seed=day) for day in (1, 2, 3)]
    path = tmp_path / "day3/shards/merged.json"
    merged = merge(days, path)
    assert merged["samples"] == 12
    assert merged["bytes"] == sum(file.stat().st_size for file in tmp_path.rglob("*.tar"))
    assert merged["extensions"] == {"jpg": 12}
    assert [shard["tar"] for shard in merged["shards"][:2]] == [
        "../../day1/shards/shard-000000.tar",
        "../../day2/shards/shard-000000.tar",
    ]
    assert [shard["corpus"] for shard in merged["shards"]] == ["day1", "day2", "day2", "day3", "day3", "day3"]
    assert merged["shards"][-1]["features"] == "features/shard-000002.parquet"
    assert [(entry["name"], entry["manifest"], entry["samples"]) for entry in merged["corpora"]] == [
        ("day1", "../../day1/shards/manifest.json", 2),
        ("day2", "../../day2/shards/manifest.json", 4),
        ("day3", "manifest.json", 6),
    ]
    assert merged["config_hash"] == "c3"
    assert verify_shards(path) == []
    index = read_index(path)
    assert len(index) == 12
    # Keys of two corpora may be equal: the shard's path tells them apart, and leads to the tar.
    for row in index.to_pylist():
        with open(path.parent / f"{row['shard']}.tar", "rb") as file:
            file.seek(row["image_offset"])
            assert hashlib.sha256(file.read(row["image_size"])).hexdigest() == row["sha256"]


def test_corpora_that_move_together_stay_together(tmp_path: Path) -> None:
    days = [corpus(tmp_path / "data" / f"day{day}/shards", seed=day) for day in (1, 2)]
    merge(days, tmp_path / "data/day2/shards/merged.json")
    shutil.move(tmp_path / "data", tmp_path / "elsewhere")
    path = tmp_path / "elsewhere/day2/shards/merged.json"
    assert verify_shards(path) == []
    assert all(Path(shard["tar"]).is_file() for one in load(path) for shard in one.shards)


def test_a_corpus_reached_twice_is_listed_once(tmp_path: Path) -> None:
    one, two, three = (corpus(tmp_path / f"day{day}/shards", seed=day) for day in (1, 2, 3))
    left, right = tmp_path / "day2/shards/merged.json", tmp_path / "day3/shards/merged.json"
    merge([one, two], left)
    merge([one, three], right)
    four = corpus(tmp_path / "day4/shards", seed=4)
    path = tmp_path / "day4/shards/merged.json"
    merged = merge([*load(left), *load(right), one, four], path)
    assert [entry["name"] for entry in merged["corpora"]] == ["day1", "day2", "day3", "day4"]
    assert len({shard["tar"] for shard in merged["shards"]}) == len(merged["shards"]) == 8
    assert verify_shards(path) == []
    # Through a link it is the same corpus, too.
    (tmp_path / "link").symlink_to(tmp_path / "day1")
    assert len(join_corpora([one, *load(tmp_path / "link/shards/manifest.json")])) == 1


def test_two_manifests_over_the_same_tars_list_them_once(tmp_path: Path) -> None:
    one = corpus(tmp_path / "day1/shards")
    shutil.copy(tmp_path / "day1/shards/manifest.json", tmp_path / "day1/shards/copy.json")
    merged = merge_manifests([one, *load(tmp_path / "day1/shards/copy.json")], str(tmp_path / "merged.json"))
    assert [shard["tar"] for shard in merged["shards"]] == [f"day1/shards/shard-00000{number}.tar" for number in (0, 1)]


def test_a_corpus_that_changed_since_it_was_merged_is_refused(tmp_path: Path) -> None:
    old = corpus(tmp_path / "day1/shards", seed=1)
    two = corpus(tmp_path / "day2/shards", seed=2)
    merge([old, two], tmp_path / "day2/shards/merged.json")
    shutil.rmtree(tmp_path / "day1")
    new = corpus(tmp_path / "day1/shards", seed=9)
    with pytest.raises(MergeError, match=r"day1/shards/manifest.json is listed in two versions.*instead"):
        join_corpora([*load(tmp_path / "day2/shards/merged.json"), new])


def test_corpora_of_one_name_get_names_of_their_own(tmp_path: Path) -> None:
    found = [corpus(tmp_path / place / "run/shards", 1) for place in "abc"]
    assert [one.name for one in join_corpora(found)] == ["run", "run-2", "run-3"]
    merged = merge(found, tmp_path / "c/run/shards/merged.json")
    assert [one.name for one in load(tmp_path / "c/run/shards/merged.json")] == ["run", "run-2", "run-3"]
    assert len(merged["shards"]) == 3


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("/data/day1/shards/manifest.json", "day1"),
        ("s3://bucket/humans/day1/shards/merged.json", "day1"),
        ("s3://bucket/shards/manifest.json", "bucket"),
        ("/data/corpus/manifest.json", "corpus"),
        ("/shards/manifest.json", "shards"),
        ("/manifest.json", "corpus"),
    ],
)
def test_a_corpus_is_called_after_its_folder(location: str, name: str) -> None:
    assert corpus_name(location) == name


def test_object_stores_are_named_by_url() -> None:
    shard = {"tar": "shard-000000.tar", "index": "index/a.parquet", "samples": 1, "bytes": 1, "image_bytes": 1,
             "sha256": "x", "extensions": {"jpg": 1}}  # fmt: skip
    old = corpora_of({"shards": [shard]}, "s3://bucket/day1/shards/manifest.json", "a")
    new = corpora_of({"shards": [{**shard, "sha256": "y"}]}, "s3://bucket/day2/shards/manifest.json", "b")
    merged = merge_manifests([*old, *new], "s3://bucket/day2/shards/merged.json")
    assert [entry["tar"] for entry in merged["shards"]] == [
        "s3://bucket/day1/shards/shard-000000.tar",
        "shard-000000.tar",
    ]
    assert [entry["manifest"] for entry in merged["corpora"]] == [
        "s3://bucket/day1/shards/manifest.json",
        "manifest.json",
    ]
    again = corpora_of(merged, "s3://bucket/day2/shards/merged.json", "c")
    assert [one.shards for one in again] == [one.shards for one in (*old, *new)]
    up = {**merged, "shards": [{**shard, "tar": "../x/s.tar", "corpus": "day1"}]}
    assert corpora_of(up, "s3://bucket/day2/merged.json", "c")[0].shards[0]["tar"] == "s3://bucket/x/s.tar"


def test_a_merged_manifest_that_is_damaged_or_empty() -> None:
    with pytest.raises(MergeError, match="no corpus to merge"):
        merge_manifests([], "/data/merged.json")
    broken = {"corpora": [], "shards": [{"tar": "a.tar", "corpus": "x"}]}
    with pytest.raises(MergeError, match=r"shard .*a.tar names the corpus 'x'"):
        corpora_of(broken, "/data/merged.json", "a")


def test_features_are_part_of_what_is_checked(tmp_path: Path) -> None:
    corpus(tmp_path / "shards")
    folder = tmp_path / "shards"
    assert verify_shards(folder) == []
    path = folder / "features/shard-000000.parquet"
    table = pq.read_table(path)
    path.unlink()
    assert verify_shards(folder) == ["features/shard-000000.parquet: missing"]
    write_features(path, table.take([1, 0]))
    (problem,) = verify_shards(folder)
    assert problem.startswith("features/shard-000000.parquet: ")
    manifest = read_manifest(folder)
    data = path.read_bytes()
    manifest["shards"][0] |= {"features_bytes": len(data), "features_sha256": hashlib.sha256(data).hexdigest()}
    (folder / "manifest.json").write_bytes(manifest_bytes(manifest))
    assert verify_shards(folder) == ["features/shard-000000.parquet: ids or SHA-256 differ from those of the index"]
    for shard in manifest["shards"]:
        for name in ("features", "features_bytes", "features_sha256"):
            del shard[name]
    (folder / "manifest.json").write_bytes(manifest_bytes(manifest))
    # An older manifest lists none; tables that nobody lists are strays.
    assert verify_shards(folder) == [f"features/shard-00000{number}.parquet: not in manifest.json" for number in (0, 1)]
