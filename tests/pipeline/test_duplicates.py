"""`populace duplicates`: a row's group with distances, from a ledger as runs publish it, safe to show in a terminal."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.records import record_id
from pipeline.cli import main
from pipeline.duplicates import COLUMNS, UnknownIdError, find_group, printable
from pipeline.ledger import LEDGER, STAGING, LedgerPart, complete_record, ledger_record, publish_ledger
from pipeline.rundir import RUN_FILE
from pipeline.storage import Storage

Captured = pytest.CaptureFixture[str]


def name_of(picture: str) -> str:
    return record_id(picture, "")


def row(picture: str, reason: str | None = None, of: str | None = None, **more: Any) -> dict[str, Any]:
    verdict = "kept" if reason is None else "dropped"
    keeper = None if of is None else name_of(of)
    base = {"id": name_of(picture), "uri": picture, "member": "", "width": 640, "height": 480, "verdict": verdict}
    return {**dict.fromkeys(COLUMNS), **base, "reason": reason, "duplicate_of": keeper, **more}


ROWS = [
    [
        row("far.jpg", "near_duplicate", "best.jpg", distance=4),
        row("lonely.jpg"),
        row("best.jpg", width=1280, height=960),
        row("alike.jpg", "semantic_duplicate", "best.jpg", similarity=0.975),
        row("tiny.jpg", "too_small", width=20, height=10, column="short_side", score=10.0, threshold=384.0),
    ],
    [
        row("more alike.jpg", "semantic_duplicate", "best.jpg", similarity=0.99),
        row("near.jpg", "near_duplicate", "best.jpg", distance=2),
        row("same.jpg", "exact_duplicate", "best.jpg", distance=0),
        row("eval copy.jpg", "contamination", "eval 1.jpg", distance=2, reference="coco-val"),
        row("eval copy 2.jpg", "contamination", "eval 1.jpg", distance=4, reference="coco-val"),
        row("other set.jpg", "contamination", "eval 1.jpg", distance=0, reference="other"),
        row("crowded.jpg", "over_represented"),
        row("copy of crowded.jpg", "near_duplicate", "crowded.jpg", distance=2),
        row("broken.jpg", "corrupt", detail="bad huffman code", width=None, height=None),
    ],
]
STAR = ["best.jpg", "same.jpg", "near.jpg", "far.jpg", "more alike.jpg", "alike.jpg"]


def publish(run: Storage, parts: list[list[dict[str, Any]]], without: tuple[str, ...] = ()) -> None:
    """A finished ledger, as the pipeline leaves it."""
    schema = pa.schema([(name, type_) for name, type_ in COLUMNS.items() if name not in without])
    written = []
    for number, rows in enumerate(parts):
        name = f"part-{number:05d}.parquet"
        run.write_table(f"{STAGING}/{name}", pa.Table.from_pylist(rows, schema), row_group_size=2)
        data = run.read_bytes(f"{STAGING}/{name}")
        reasons = Counter(item["reason"] for item in rows if item["reason"] is not None)
        kept = len(rows) - sum(reasons.values())
        written.append(LedgerPart(name, len(rows), kept, len(data), hashlib.sha256(data).hexdigest(), dict(reasons)))
    publish_ledger(run, complete_record(written, "decision"))
    run.write_bytes(RUN_FILE, b"{}")


@pytest.fixture
def run(tmp_path: Path) -> Storage:
    storage = Storage(tmp_path / "run")
    publish(storage, ROWS)
    assert ledger_record(storage) is not None
    return storage


def names(group: Any) -> list[str]:
    return [member["uri"] for member in group.members]


@pytest.mark.parametrize("asked", STAR)
def test_every_row_of_a_star_shows_the_same_star(run: Storage, asked: str) -> None:
    group = find_group(run, name_of(asked))
    assert names(group) == STAR
    assert group.total == 6
    assert group.head == name_of("best.jpg")
    assert group.found
    assert group.reference is None
    assert [member["uri"] for member in group.members if member["is_query"]] == [asked]
    assert [member["distance"] for member in group.members] == [None, 0, 2, 4, None, None]
    assert group.members[4]["similarity"] == pytest.approx(0.99)
    assert (group.members[0]["width"], group.members[0]["height"]) == (1280, 960)
    assert group.members[0]["verdict"] == "kept"


def test_an_unambiguous_beginning_of_an_id_is_enough(run: Storage) -> None:
    whole = name_of("near.jpg")
    for length in (6, 7, 31, 32):
        assert find_group(run, whole[:length]).row["id"] == whole


def test_what_happened_is_said_plainly(run: Storage) -> None:
    def said(picture: str) -> str:
        return find_group(run, name_of(picture)).explanation().replace(name_of(picture), "X")

    assert said("best.jpg") == "X is kept, and 5 rows were dropped in its favour."
    assert said("lonely.jpg") == "X is kept, and nothing was dropped in its favour."
    assert said("near.jpg").startswith("X was dropped (near_duplicate: within the perceptual radius")
    assert said("near.jpg").endswith(f"in favour of {name_of('best.jpg')}.")
    assert "too_small" in said("tiny.jpg")
    assert "short_side 10, limit 384" in said("tiny.jpg")
    assert said("tiny.jpg").endswith("nothing was dropped in its favour.")
    assert "bad huffman code" in said("broken.jpg")
    assert said("eval copy.jpg").endswith(
        f"in favour of {name_of('eval 1.jpg')}, which is not of this run but of 'coco-val'."
    )


def test_a_head_of_a_reference_is_named_and_its_victims_are_those_of_that_reference(run: Storage) -> None:
    group = find_group(run, name_of("eval copy.jpg"))
    assert (group.head, group.reference, group.found) == (name_of("eval 1.jpg"), "coco-val", False)
    assert names(group) == ["eval copy.jpg", "eval copy 2.jpg"]
    assert names(find_group(run, name_of("other set.jpg"))) == ["other set.jpg"]


def test_a_row_of_this_run_with_the_id_of_a_references_row_is_not_its_head(tmp_path: Path) -> None:
    run = Storage(tmp_path)
    publish(run, [[row("a.jpg"), row("b.jpg", "in_corpus", "a.jpg", reference="yesterday"),
                   row("c.jpg", "near_duplicate", "a.jpg", distance=1)]])  # fmt: skip
    assert names(find_group(run, name_of("b.jpg"))) == ["b.jpg"]
    assert names(find_group(run, name_of("a.jpg"))) == ["a.jpg", "c.jpg"]


def test_a_reference_that_names_no_row(tmp_path: Path) -> None:
    run = Storage(tmp_path)
    publish(run, [[row("a.jpg", "contamination", reference="hashes.txt")]])
    group = find_group(run, name_of("a.jpg"))
    assert (group.head, group.total) == (None, 1)
    assert group.explanation().endswith(" for 'hashes.txt'.")


def test_a_head_that_was_dropped_later_still_has_its_group(run: Storage) -> None:
    for asked in ("crowded.jpg", "copy of crowded.jpg"):
        group = find_group(run, name_of(asked))
        assert names(group) == ["crowded.jpg", "copy of crowded.jpg"]
        assert group.members[0]["reason"] == "over_represented"
    assert find_group(run, name_of("crowded.jpg")).explanation().endswith("1 row was dropped in its favour.")
    assert find_group(run, name_of("tiny.jpg")).head is None


def test_limit_keeps_the_head_and_the_row_asked_for(run: Storage) -> None:
    group = find_group(run, name_of("alike.jpg"), limit=3)
    assert names(group) == ["best.jpg", "same.jpg", "alike.jpg"]
    assert group.total == 6
    assert names(find_group(run, name_of("best.jpg"), limit=1)) == ["best.jpg"]
    assert names(find_group(run, name_of("alike.jpg"), limit=0)) == STAR


def test_ledgers_of_earlier_versions_lack_columns(tmp_path: Path) -> None:
    run = Storage(tmp_path)
    publish(run, ROWS, without=("similarity", "reference"))
    group = find_group(run, name_of("far.jpg"))
    assert {member["similarity"] for member in group.members} == {None}
    assert names(group)[:4] == STAR[:4]
    lost = find_group(run, name_of("eval copy.jpg"))
    assert (lost.found, lost.reference) == (False, None)
    assert lost.explanation().endswith("which is not in this ledger.")


def test_only_the_needed_columns_of_the_needed_parts_are_read(run: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[tuple[str, ...]] = []
    read = pq.ParquetFile.read

    def spy(self: pq.ParquetFile, columns: list[str]) -> pa.Table:
        reads.append(tuple(columns))
        return read(self, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "read", spy)
    find_group(run, name_of("lonely.jpg"))
    assert [columns for columns in reads if len(columns) > 3] == [tuple(COLUMNS)] * 2
    assert {columns for columns in reads if len(columns) <= 3} == {("id",), ("id", "duplicate_of", "reference")}


def test_ids_that_are_unknown_too_short_or_shared(tmp_path: Path) -> None:
    run = Storage(tmp_path)
    many = [row(f"{number}.jpg", id=f"abcdef{number:02d}") for number in range(12)]
    publish(run, [many[:7], [*many[7:], row("x.jpg", id="abcdef0"), row("y.jpg", id="q")]])
    with pytest.raises(UnknownIdError, match=r"no row of .* has the id 'zzzzzz'"):
        find_group(run, "zzzzzz")
    with pytest.raises(UnknownIdError, match=r"13 ids begin with 'abcdef': abcdef00, .*06, abcdef07, \.\.\.\. Give"):
        find_group(run, "abcdef")
    with pytest.raises(UnknownIdError, match="'abcde' is too short: give a whole id or at least its first 6"):
        find_group(run, "abcde")
    with pytest.raises(UnknownIdError, match="too short"):
        find_group(run, "")
    # A whole id counts, also where it is short or begins another one.
    assert find_group(run, "abcdef0").row["uri"] == "x.jpg"
    assert find_group(run, "q").row["uri"] == "y.jpg"


def test_an_empty_ledger_and_an_empty_part(tmp_path: Path) -> None:
    empty = Storage(tmp_path / "empty")
    publish(empty, [])
    with pytest.raises(UnknownIdError):
        find_group(empty, "abcdef")
    gap = Storage(tmp_path / "gap")
    publish(gap, [[], ROWS[0], []])
    assert names(find_group(gap, name_of("best.jpg"))) == ["best.jpg", "far.jpg", "alike.jpg"]


def test_a_group_on_an_object_store() -> None:
    run = Storage("memory://populace-duplicates/run")
    publish(run, ROWS)
    assert names(find_group(run, name_of("near.jpg"))) == STAR
    run.remove("")


# The command


def command(run: Storage, *arguments: str) -> int:
    return main(["duplicates", run.root, *arguments])


def test_the_command_prints_one_json_object(run: Storage, capsys: Captured) -> None:
    assert command(run, "--id", name_of("near.jpg")[:9], "--json") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    shown = json.loads(captured.out)
    assert shown["id"] == name_of("near.jpg")
    assert shown["head"] == name_of("best.jpg")
    assert (shown["verdict"], shown["reason"], shown["head_in_ledger"]) == ("dropped", "near_duplicate", True)
    assert [member["uri"] for member in shown["members"]] == STAR
    assert set(shown["members"][0]) == {
        "id", "uri", "member", "verdict", "reason", "distance", "similarity", "width", "height", "is_query",
    }  # fmt: skip


def test_the_command_prints_a_table(run: Storage, capsys: Captured) -> None:
    assert command(run, "--id", name_of("near.jpg"), "--limit", "3") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = captured.out.splitlines()
    assert lines[0].startswith(f"{name_of('near.jpg')} was dropped (near_duplicate")
    (mine,) = [line for line in lines if line.startswith("│ >")]
    assert name_of("near.jpg") in mine
    assert "near_duplicate" in mine
    assert "640 x 480" in mine
    assert "3 of 6 rows; --limit 0 shows all" in lines
    assert command(run, "--id", name_of("alike.jpg")) == 0
    assert "0.9750" in capsys.readouterr().out


def test_hostile_names_are_shown_as_escapes(tmp_path: Path, capsys: Captured) -> None:
    evil = "a[red]\x1b[2J\x9b31m\r\n\u202egpj.exe[/red]é.jpg"
    run = Storage(tmp_path)
    publish(run, [[row("k", uri=evil, member="m\x07\t"), row("d", "corrupt", detail="\x1b]0;title\x07")]])
    for picture in ("k", "d"):
        assert command(run, "--id", name_of(picture)) == 0
        out = capsys.readouterr().out
        assert all(character.isprintable() or character == "\n" for character in out)
    assert command(run, "--id", name_of("k")) == 0
    flat = "".join(line.rpartition("│")[0].rpartition("│")[2].strip() for line in capsys.readouterr().out.splitlines())
    assert r"[red]\x1b[2J\x9b31m\r\n\u202egpj.exe[/red]é.jpg" in flat
    assert command(run, "--id", name_of("k"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["members"][0]["uri"] == evil
    assert command(run, "--id", "\x1b[2Jxxxxxx") == 2
    assert "\x1b" not in capsys.readouterr().err
    assert printable("é 漢 🙂") == "é 漢 🙂"


def test_exit_codes(run: Storage, tmp_path: Path, capsys: Captured) -> None:
    def failed(code: int, message: str, *arguments: str) -> None:
        assert main(["duplicates", *arguments]) == code
        captured = capsys.readouterr()
        assert captured.out == ""
        assert message in captured.err

    failed(2, "no row of", run.root, "--id", "0" * 32)
    failed(2, "is not a run directory", str(tmp_path / "absent"), "--id", "abcdef")
    failed(2, "nosuch://x", "nosuch://x", "--id", "abcdef")
    for arguments in (["duplicates", run.root], ["duplicates", run.root, "--id", "abcdef", "--limit", "-1"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    part = Path(run.path(f"{LEDGER}/part-00001.parquet"))
    data = part.read_bytes()
    part.write_bytes(b"x" * len(data))
    failed(1, "is damaged", run.root, "--id", name_of("best.jpg"))
    part.unlink()
    failed(3, "has no finished ledger yet", run.root, "--id", name_of("best.jpg"))
