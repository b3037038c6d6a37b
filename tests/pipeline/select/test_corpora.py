"""An earlier corpus is read through its manifest alone, file by file, and refused when nothing could be compared."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from curation.features import as_features, feature_writer
from curation.manifest import manifest_bytes, manifest_totals, read_manifest, verify_shards
from curation.merging import merge_manifests
from pipeline.config import ConfigError, parse_config
from pipeline.curate import CurateResult, curate
from pipeline.progress import RunProgress
from pipeline.select.corpora import Corpora, CorpusError, load_corpora, read_corpus_features
from pipeline.storage import DamagedFileError, Storage
from tests.fixtures import pool
from tests.fixtures.counting import VectorScorer, stage_set

STAGES = stage_set(VectorScorer())
MEASURED = {name: STAGES.fingerprints[name] for name in ("screen", "embedding")}


def write_corpus(
    folder: Path, rows: tuple[int, ...] = (3, 2), stated: Mapping[str, str] = MEASURED, features: bool = True
) -> str:
    """Shards of the given numbers of rows as far as they matter here: their feature tables and the manifest."""
    shards: list[dict[str, Any]] = []
    (folder / "features").mkdir(parents=True)
    for number, count in enumerate(rows):
        name = f"features/shard-{number:06d}.parquet"
        ids = [f"{folder.parent.name}-{number}-{row}" for row in range(count)]
        table = pa.table(
            {
                "id": ids,
                "sha256": [hashlib.sha256(text.encode()).hexdigest() for text in ids],
                "phash": pa.array(range(count), pa.uint64()),
                "embedding": pa.array([np.full(4, row + 1, np.float16) for row in range(count)]),
            }
        )
        with open(folder / name, "wb") as file, feature_writer(file, stated) as writer:
            writer.write_table(as_features(table, name))
        written = (folder / name).read_bytes()
        shard = {"tar": f"shard-{number:06d}.tar", "index": f"index/{number}.parquet", "samples": count, "bytes": 1}
        shard |= {"image_bytes": 1, "sha256": f"{folder.parent.name}{number}", "extensions": {"jpg": count}}
        listed = {
            "features": name, "features_bytes": len(written), "features_sha256": hashlib.sha256(written).hexdigest()
        }  # fmt: skip
        shards.append(shard | (listed if features else {}))
    manifest = {"format_version": 1, "config_hash": "c", "formats": {}, "source_fingerprint": "s"}
    manifest |= {"shards": shards, **manifest_totals(shards)}
    if features:
        manifest["feature_fingerprints"] = dict(stated)
    (folder / "manifest.json").write_bytes(manifest_bytes(manifest))
    return str(folder / "manifest.json")


def test_rows_are_numbered_in_manifest_order(tmp_path: Path) -> None:
    paths = [write_corpus(tmp_path / "day1/shards", (3, 2)), write_corpus(tmp_path / "day2/shards", (1, 0, 4))]
    corpora: Corpora = pickle.loads(pickle.dumps(load_corpora(paths, STAGES, embeddings=True)))
    assert corpora.rows == 10
    assert [(file.corpus, file.first, file.rows) for file in corpora.files] == [
        ("day1", 0, 3), ("day1", 3, 2), ("day2", 5, 1), ("day2", 6, 0), ("day2", 6, 4),
    ]  # fmt: skip
    tables = [corpora.read(index) for index in range(len(corpora.files))]
    rows = np.concatenate([table.column("row").to_numpy() for table in tables])
    assert rows.tolist() == [-1 - number for number in range(10)]
    ids = [name for table in tables for name in table.column("id").to_pylist()]
    names = corpora.row_names(-1 - rows)
    assert [name for _, name in names] == ids
    assert [corpus for corpus, _ in names] == ["day1"] * 5 + ["day2"] * 5
    assert corpora.row_names([9, 0, 9, 4]) == [names[9], names[0], names[9], names[4]]
    assert corpora.row_names([]) == []
    assert tables[1].column("embedding").to_pylist() == [[1.0] * 4, [2.0] * 4]
    with pytest.raises(IndexError, match=r"10 is not in 0\.\.9"):
        corpora.row_names([0, 10])


def test_only_the_files_asked_for_are_read(tmp_path: Path) -> None:
    corpora = load_corpora([write_corpus(tmp_path / "day1/shards")], STAGES)
    (tmp_path / "day1/shards/features/shard-000000.parquet").unlink()
    assert corpora.row_names([4]) == [("day1", "day1-1-1")]
    with pytest.raises(DamagedFileError, match=r"shard-000000.parquet, a feature table of the earlier corpus day1"):
        corpora.row_names([0])
    assert read_corpus_features(corpora.files[1], ["sha256"]).column_names == ["sha256"]


def test_nothing_to_compare_with() -> None:
    corpora = load_corpora([], STAGES, embeddings=True)
    assert (corpora.rows, corpora.files, corpora.row_names([])) == (0, (), [])


def test_a_folder_stands_for_its_manifest_and_identity_follows_the_content(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "day1/shards")
    first = load_corpora([path], STAGES)
    assert load_corpora([str(tmp_path / "day1/shards")], STAGES) == first
    assert load_corpora([path, path], STAGES) == first
    other = load_corpora([write_corpus(tmp_path / "other/day1/shards", (3, 1))], STAGES)
    assert other.fingerprint != first.fingerprint
    assert Corpora().fingerprint != first.fingerprint


def test_a_merged_manifest_stands_for_its_corpora(tmp_path: Path) -> None:
    paths = [write_corpus(tmp_path / f"day{day}/shards") for day in (1, 2)]
    both = load_corpora(paths, STAGES)
    merged = tmp_path / "day2/shards/merged.json"
    merged.write_bytes(manifest_bytes(merge_manifests(both.corpora, str(merged))))
    assert load_corpora([str(merged)], STAGES) == both
    assert load_corpora([str(merged), paths[0]], STAGES) == both
    shutil.rmtree(tmp_path / "day1")
    write_corpus(tmp_path / "day1/shards", (1,))
    with pytest.raises(CorpusError, match=r"merged.json lists the corpus day1 as it was.*List the manifest.json"):
        load_corpora([str(merged)], STAGES)
    with pytest.raises(
        CorpusError, match=r"day1/shards/manifest.json (is listed in two versions|has changed)|as it was"
    ):
        load_corpora([paths[0], str(merged)], STAGES)


def test_a_corpus_on_an_object_store(tmp_path: Path) -> None:
    import fsspec

    write_corpus(tmp_path / "day1/shards")
    fsspec.filesystem("memory").put(str(tmp_path / "day1"), "/corpora/day1", recursive=True)
    corpora = load_corpora(["memory://corpora/day1/shards/manifest.json"], STAGES)
    assert corpora.files[1].location == "memory://corpora/day1/shards/features/shard-000001.parquet"
    assert corpora.row_names([3]) == [("day1", "day1-1-0")]
    assert len(corpora.read(0)) == 3


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    old_screen = write_corpus(tmp_path / "a/shards", stated={**MEASURED, "screen": "old"})
    with pytest.raises(CorpusError, match=r"a \(.*manifest.json\) holds perceptual hashes of another.*near_duplicates"):
        load_corpora([old_screen], STAGES)
    assert load_corpora([old_screen], STAGES, hashes=False, embeddings=True).rows == 5
    old_embedding = write_corpus(tmp_path / "b/shards", stated={**MEASURED, "embedding": "old"})
    assert load_corpora([old_embedding], STAGES).rows == 5
    with pytest.raises(CorpusError, match=r"holds embeddings of another.*Use the embedding scorer"):
        load_corpora([old_embedding], STAGES, embeddings=True)
    none = write_corpus(tmp_path / "c/shards", stated={"screen": MEASURED["screen"]})
    with pytest.raises(CorpusError, match=r"holds nothing that its embedding stage measured"):
        load_corpora([none], STAGES, embeddings=True)
    bare = write_corpus(tmp_path / "d/shards", features=False)
    with pytest.raises(CorpusError, match=r"has no feature tables. Run it again with export.features: true"):
        load_corpora([bare], STAGES)
    empty = write_corpus(tmp_path / "e/shards", rows=(), features=False)
    assert load_corpora([empty], STAGES, embeddings=True).rows == 0


def test_what_is_no_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        CorpusError, match=r"nothing.json cannot be read.*Give the shards/manifest.json of a finished run"
    ):
        load_corpora([str(tmp_path / "nothing.json")], STAGES)
    for text, message in (("{", "is not JSON"), ("{}", "format_version None"), ('{"format_version": 1}', "no shards")):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(CorpusError, match=message):
            load_corpora([str(tmp_path)], STAGES)
    own = write_corpus(tmp_path / "run/shards")
    with pytest.raises(CorpusError, match="is the output of this run itself"):
        load_corpora([own], STAGES, output=Storage(tmp_path / "run"))
    assert load_corpora([own], STAGES, output=Storage(tmp_path / "run2")).rows == 5


def test_a_table_that_is_not_what_the_manifest_says(tmp_path: Path) -> None:
    corpora = load_corpora([write_corpus(tmp_path / "day1/shards")], STAGES)
    path = tmp_path / "day1/shards/features/shard-000000.parquet"
    table = pq.read_table(path)
    for other, fingerprints in ((table.slice(1), MEASURED), (table, {"screen": "old"})):
        with open(path, "wb") as file, feature_writer(file, fingerprints) as writer:
            writer.write_table(other.replace_schema_metadata(None))
        with pytest.raises(DamagedFileError, match="is not what the manifest says"):
            corpora.read(0)
    path.write_bytes(b"PAR1")
    with pytest.raises(DamagedFileError, match="run it again"):
        corpora.read(0)


def run(data: dict[str, Any]) -> CurateResult:
    return curate(parse_config(data), RunProgress(Console(quiet=True), quiet=True))


@pytest.mark.usefixtures("ray_cluster")
def test_a_corpus_that_grows_by_a_day(tmp_path: Path) -> None:
    """The pool of the second day has the pictures of the first, a larger copy of one of them, and a new one."""
    for number in range(4):
        for day in ("one", "two"):
            (tmp_path / day).mkdir(exist_ok=True)
            (tmp_path / day / f"{number}.jpg").write_bytes(pool.encode(pool.picture(number)))
    (tmp_path / "two/resized.jpg").write_bytes(pool.encode(pool.picture(1).resize((320, 256))))
    (tmp_path / "two/new.jpg").write_bytes(pool.encode(pool.picture(50)))
    first = run(pool.config(tmp_path / "one", tmp_path / "day1"))
    assert first.kept == 4
    assert not (tmp_path / "day1/shards/merged.json").exists()
    data = pool.config(tmp_path / "two", tmp_path / "day2", select={"against": [str(tmp_path / "day1/shards")]})
    second = run(data)
    assert (second.kept, second.dropped) == (1, {"in_corpus": 5})
    rows = {row["uri"]: row for row in pq.read_table(tmp_path / "day2/ledger").to_pylist()}
    before = {row["uri"]: row["id"] for row in pq.read_table(tmp_path / "day1/ledger").to_pylist()}
    assert [rows[f"{number}.jpg"]["duplicate_of"] for number in range(4)] == [before[f"{n}.jpg"] for n in range(4)]
    assert rows["resized.jpg"]["duplicate_of"] == before["1.jpg"]
    assert rows["resized.jpg"]["reference"] == "day1"

    merged = tmp_path / "day2/shards/merged.json"
    assert verify_shards(merged) == []
    manifest = read_manifest(merged)
    assert (manifest["samples"], [entry["name"] for entry in manifest["corpora"]]) == (5, ["day1", "day2"])
    written = merged.read_bytes()
    merged.write_text("{}")
    run(data)
    assert merged.read_bytes() == written
    assert json.loads(written)["shards"][-1]["tar"] == "shard-000000.tar"
    with pytest.raises(ConfigError, match="is the output of this run itself"):
        run(pool.config(tmp_path / "two", tmp_path / "day2", select={"against": [str(merged)]}))


def test_a_feature_file_is_what_the_manifest_says_or_is_refused(tmp_path: Path) -> None:
    manifest = write_corpus(tmp_path / "a" / "shards")
    features = tmp_path / "a" / "shards" / "features" / "shard-000000.parquet"
    corpora = load_corpora([manifest], STAGES)
    assert len(corpora.read(0)) == 3
    good = features.read_bytes()
    # As many bytes, and others: found when it is read.
    at = good.index(b"PAR1", 4) - 20
    features.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    load_corpora([manifest], STAGES)
    with pytest.raises(DamagedFileError, match="another SHA-256"):
        corpora.read(0)
    # Another size, or nothing: found before the run.
    features.write_bytes(good + b"x")
    with pytest.raises(CorpusError, match=r"is not what the manifest\s+says.*in place of"):
        load_corpora([manifest], STAGES)
    features.unlink()
    with pytest.raises(CorpusError, match="feature table"):
        load_corpora([manifest], STAGES)


def test_a_copy_of_a_corpus_is_not_counted_twice(tmp_path: Path) -> None:
    manifest = write_corpus(tmp_path / "a" / "shards")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with pytest.raises(CorpusError, match="is a copy of"):
        load_corpora([manifest, str(tmp_path / "b" / "shards" / "manifest.json")], STAGES)
