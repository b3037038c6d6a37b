"""Block lists are matched exactly and kept secret; licences and opt-outs are read from any spelling."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.records import Batch
from curation.rights import opted_out
from curation.scorers.base import BatchRunner, MissingWeightsError
from curation.scorers.block_lists import PerceptualLists
from curation.scorers.licences import normalised_licence
from curation.scorers.safety import SafetyConfig, SafetyScorer


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def score(config: SafetyConfig, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run as a worker does: pickled after `check`."""
    scorer = SafetyScorer(config)
    scorer.check()
    defaults = {
        "sha256": sha("nothing"),
        "phash": None,
        "phash_degenerate": False,
        "metadata": None,
        "data_mining": None,
    }
    rows = [defaults | row for row in rows]
    batch = Batch([str(k) for k in range(len(rows))], [], {name: [row[name] for row in rows] for name in defaults})
    columns, errors = BatchRunner(pickle.loads(pickle.dumps(scorer)))(batch)
    assert errors == {}
    for name, values in columns.items():
        pa.array(values, scorer.columns[name])
    return [{name: columns[name][k] for name in columns} for k in range(len(rows))]


def blocked(config: SafetyConfig, **row: Any) -> tuple[Any, Any]:
    (result,) = score(config, [row])
    return result["blocked_by"], result["block_distance"]


@pytest.fixture
def content_list(tmp_path: Path) -> str:
    path = tmp_path / "takedown-2026.txt"
    path.write_text(f"# requests of this year\n{sha('a')}\n\n{sha('b').upper()}  # upper case\n")
    return str(path)


@pytest.fixture
def perceptual_list(tmp_path: Path) -> str:
    path = tmp_path / "hotline.txt"
    path.write_text("00000000ffffffff\n0xf0f0f0f00f0f0f0f\n")
    return str(path)


def test_a_content_hash_on_a_list_is_blocked(content_list: str) -> None:
    config = SafetyConfig(content_hash_lists=(content_list,))
    assert blocked(config, sha256=sha("a")) == ("takedown-2026.txt", 0)
    assert blocked(config, sha256=sha("b")) == ("takedown-2026.txt", 0)
    assert blocked(config, sha256=sha("c")) == (None, None)
    assert blocked(config, sha256=None) == (None, None)


def test_a_perceptual_hash_within_the_radius_is_blocked(perceptual_list: str) -> None:
    config = SafetyConfig(perceptual_hash_lists=(perceptual_list,), perceptual_radius=3)
    assert blocked(config, phash=0x00000000FFFFFFFF) == ("hotline.txt", 0)
    assert blocked(config, phash=0x00000000FFFFFFF8) == ("hotline.txt", 3)
    assert blocked(config, phash=0x00000000FFFFFFF0) == (None, None)
    assert blocked(config, phash="f0f0f0f00f0f0f0e") == ("hotline.txt", 1)
    assert blocked(config, phash=None) == (None, None)


def test_a_degenerate_hash_is_not_compared(perceptual_list: str) -> None:
    config = SafetyConfig(perceptual_hash_lists=(perceptual_list,))
    assert blocked(config, phash=0x00000000FFFFFFFF, phash_degenerate=True) == (None, None)


def test_content_comes_before_perception_and_the_first_list_names_it(
    content_list: str, perceptual_list: str, tmp_path: Path
) -> None:
    later = tmp_path / "later.txt"
    later.write_text(f"{sha('a')}\n{sha('z')}\n")
    config = SafetyConfig(content_hash_lists=(content_list, str(later)), perceptual_hash_lists=(perceptual_list,))
    assert blocked(config, sha256=sha("a"), phash=0x00000000FFFFFFFF) == ("takedown-2026.txt", 0)
    assert blocked(config, sha256=sha("z")) == ("later.txt", 0)


@given(
    entries=st.lists(st.integers(0, 2**64 - 1), max_size=30),
    flips=st.lists(st.integers(0, 63), max_size=10),
    radius=st.integers(0, 8),
)
def test_the_nearest_entry_agrees_with_brute_force(
    tmp_path_factory: pytest.TempPathFactory, entries: list[int], flips: list[int], radius: int
) -> None:
    path = tmp_path_factory.mktemp("lists") / "list.txt"
    path.write_text("".join(f"{entry:016x}\n" for entry in entries))
    query = entries[0] if entries else 0
    for bit in flips:
        query ^= 1 << bit
    best = min(((entry ^ query).bit_count() for entry in entries), default=99)
    expected = ("list.txt", best) if best <= radius else None
    assert PerceptualLists([str(path)]).nearest(query, radius) == expected


@pytest.mark.parametrize(
    ("column", "values", "kind"),
    [
        ("phash", pa.array([0xFFFFFFFF, 2**63 + 5], pa.uint64()), "perceptual"),
        ("phash", pa.array([0xFFFFFFFF, 2**63 + 5 - 2**64], pa.int64()), "perceptual"),
        ("hash", pa.array(["00000000ffffffff", "8000000000000005"]), "perceptual"),
        ("phash", pa.array([bytes.fromhex("00000000ffffffff"), bytes.fromhex("8000000000000005")]), "perceptual"),
        ("sha256", pa.array([sha("a"), sha("b")]), "content"),
        ("sha256", pa.array([bytes.fromhex(sha("a")), bytes.fromhex(sha("b"))], pa.binary(32)), "content"),
    ],
)
def test_parquet_lists(tmp_path: Path, column: str, values: pa.Array, kind: str) -> None:
    path = str(tmp_path / "list.parquet")
    pq.write_table(pa.table({column: values}), path)
    if kind == "content":
        assert blocked(SafetyConfig(content_hash_lists=(path,)), sha256=sha("b")) == ("list.parquet", 0)
    else:
        config = SafetyConfig(perceptual_hash_lists=(path,))
        assert blocked(config, phash=2**63 + 5) == ("list.parquet", 0)
        assert blocked(config, phash=0xFFFFFFFF) == ("list.parquet", 0)


def test_a_wrong_entry_is_named_by_its_line_and_never_shown(tmp_path: Path) -> None:
    secret = "00000000ffffffff"
    path = tmp_path / "secret.txt"
    path.write_text(f"{sha('a')}\n{secret}\n")
    with pytest.raises(ValueError, match=r"secret\.txt, line 2: not a hash of 256 bits") as caught:
        SafetyScorer(SafetyConfig(content_hash_lists=(str(path),))).check()
    assert secret not in str(caught.value)
    assert sha("a") not in str(caught.value)


def test_a_parquet_list_without_its_column_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "list.parquet"
    pq.write_table(pa.table({"a": [1], "b": [2]}), path)
    with pytest.raises(ValueError, match="must have a column 'phash' or a single column, not a, b"):
        SafetyScorer(SafetyConfig(perceptual_hash_lists=(str(path),))).check()


def test_a_missing_list_stops_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(MissingWeightsError, match="block list of the safety scorer"):
        SafetyScorer(SafetyConfig(content_hash_lists=(str(tmp_path / "no.txt"),))).check()


def test_only_name_and_hash_of_a_list_are_recorded_and_a_change_changes_the_fingerprint(
    content_list: str, tmp_path: Path
) -> None:
    scorer = SafetyScorer(SafetyConfig(content_hash_lists=(content_list,)))
    (weights,) = scorer.check()
    assert weights.name == "takedown-2026.txt"
    assert weights.sha256 == hashlib.sha256(Path(content_list).read_bytes()).hexdigest()
    before = scorer.model_fingerprint([weights])
    assert str(tmp_path) not in json.dumps(scorer.config.identity())
    with open(content_list, "a") as file:
        file.write(sha("c") + "\n")
    assert scorer.model_fingerprint(scorer.check()) != before


def test_a_large_list_is_searched_quickly(tmp_path: Path) -> None:
    import time

    hashes = np.random.default_rng(0).integers(0, 2**64, 300_000, dtype=np.uint64)
    pq.write_table(pa.table({"phash": pa.array(hashes)}), tmp_path / "big.parquet")
    lists = PerceptualLists([str(tmp_path / "big.parquet")])
    start = time.perf_counter()
    found = [lists.nearest(int(value) ^ 1, 1) for value in hashes[:100]]
    assert all(entry == ("big.parquet", 1) for entry in found)
    assert time.perf_counter() - start < 5  # about 0.1 s; the limit only excludes a Python loop over entries


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CC BY 4.0", "cc-by-4.0"),
        ("cc-by-4.0", "cc-by-4.0"),
        ("CC-BY-NC-SA 2.0", "cc-by-nc-sa-2.0"),
        ("CC BY-SA 3.0 Unported", "cc-by-sa-3.0"),
        ("by-nd", "cc-by-nd"),
        ("CC BY", "cc-by"),
        ("Attribution-NonCommercial 4.0", "cc-by-nc-4.0"),
        ("Creative Commons Attribution-ShareAlike 4.0 International", "cc-by-sa-4.0"),
        ("https://creativecommons.org/licenses/by-nc-nd/2.0/", "cc-by-nc-nd-2.0"),
        ("http://creativecommons.org/licenses/by/3.0/us/", "cc-by-3.0"),
        ("https://creativecommons.org/publicdomain/zero/1.0/", "cc0-1.0"),
        ("https://creativecommons.org/publicdomain/mark/1.0/", "pdm-1.0"),
        ("CC0", "cc0-1.0"),
        ("CC0 1.0 Universal", "cc0-1.0"),
        ("Public Domain", "pdm-1.0"),
        ("MIT", "mit"),
        ("Apache-2.0", "apache-2.0"),
        ("unsplash", "unsplash"),
        ("All rights reserved, ask the photographer!", None),
        ("https://example.com/terms", None),
        ("", None),
        ("None", None),
        ("n/a", None),
        (" unknown ", None),
        (None, None),
        (4, None),
    ],
)
def test_licences(text: Any, expected: str | None) -> None:
    assert normalised_licence(text) == expected


@given(st.text(max_size=40))
def test_any_licence_text_gives_a_token_or_nothing_and_is_stable(text: str) -> None:
    once = normalised_licence(text)
    assert once is None or once == once.lower()
    assert once is None or normalised_licence(once) == once


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"noai": True}, True),
        ({"noai": 1}, True),
        ({"noai": "true"}, True),
        ({"NoAI": "yes"}, True),
        ({"opt_out": False}, False),
        ({"opt-out": "1"}, True),
        ({"X-Robots-Tag": "noindex, noai"}, True),
        ({"robots": "googlebot: noimageai"}, True),
        ({"robots": ["all", "noai"]}, True),
        ({"robots": "noindex, nofollow"}, False),
        ({"robots": "all"}, False),
        ({"caption": "noai"}, False),
        ({"noai": None}, False),
        ({"noai": {"a": 1}}, False),
        ({}, False),
    ],
)
def test_opt_outs(metadata: dict[str, Any], expected: bool) -> None:
    assert opted_out(metadata, SafetyConfig().opt_out_keys) is expected


def test_licence_and_opt_out_columns_come_from_the_metadata() -> None:
    rows = score(
        SafetyConfig(),
        [
            {"metadata": json.dumps({"License": "CC BY 2.0", "caption": "x"})},
            {
                "metadata": json.dumps(
                    {"license": None, "license_url": "https://creativecommons.org/licenses/by-sa/4.0/"}
                )
            },
            {"metadata": json.dumps({"robots": "noai"})},
            {"metadata": None},
            {"metadata": "not json"},
            {"metadata": "[1, 2]"},
        ],
    )
    assert [row["licence"] for row in rows] == ["cc-by-2.0", "cc-by-sa-4.0", None, None, None, None]
    assert [row["opt_out"] for row in rows] == [False, False, True, False, False, False]
    assert all(row["blocked_by"] is None for row in rows)


def test_the_keys_are_configuration() -> None:
    config = SafetyConfig(licence_keys=("terms",), opt_out_keys=("ml",))
    (row,) = score(config, [{"metadata": json.dumps({"terms": "CC0", "licence": "mit", "ml": True, "noai": False})}])
    assert (row["licence"], row["opt_out"]) == ("cc0-1.0", True)
