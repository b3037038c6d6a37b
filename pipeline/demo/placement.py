"""Where the inputs of the demo pool go: file and member names, sidecars, tars, and litter that is no input."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from curation.reasons import Reason
from curation.records import record_id
from pipeline.demo.make import Made
from pipeline.demo.plan import KINDS, LICENCES, Order
from pipeline.demo.tars import HTML, TarWriter, write
from pipeline.demo.truth import Truth

MEMBERS_PER_TAR = 150
FOLDERS = ("2023/spring", "2023/autumn", "2024/événements", "import.v2/phone", "unsorted")
REFUSED_LICENCE = "all-rights-reserved"

ODD_MEMBERS = 12
"""Inputs in `odd-names.tar`, and again in `cut-short.tar`."""

MakeTruth = Callable[[Order, str, str], Truth]


def in_folder(order: Order, made: Mapping[int, Made]) -> bool:
    """Two fifths of the families go to the folder, the rest to tars. Files without an extension are no inputs in a
    tar, so they go to the folder too."""
    family = int(order.group.rpartition("-")[2])
    return family % 5 < 2 or not made[order.index].extension


def sidecars(order: Order, seed: int) -> dict[str, bytes]:
    """Metadata files of an input, by extension: most have JSON, some a caption as text, some none."""
    rng = random.Random(f"{seed}/sidecar/{order.index}")
    caption = f"picture number {order.index}"
    style = 0.0 if order.kind in ("opted_out", "licence") else rng.random()
    if style >= 0.85:
        return {}
    if style >= 0.7:
        return {"txt": f"{caption}\n".encode()}
    values: dict[str, object] = {
        "caption": caption,
        "licence": REFUSED_LICENCE if order.kind == "licence" else rng.choice(LICENCES),
        "url": f"https://pictures.example/{rng.randrange(10**9):09d}",
    }
    if order.kind == "opted_out":
        values["opt_out"] = True
    return {"json": json.dumps(values, sort_keys=True).encode()}


def write_folder(
    root: Path, orders: Sequence[Order], made: Mapping[int, Made], seed: int, truth: MakeTruth
) -> list[Truth]:
    """Write a tree of files with sidecars, and some files that are no inputs."""
    rows = []
    for number, order in enumerate(_shuffled(orders, seed)):
        item = made[order.index]
        stem = f"{FOLDERS[number % len(FOLDERS)]}/picture {number:05d}"
        uri = f"{stem}.{item.extension}" if item.extension else stem
        write(root / uri, item.data)
        for extension, content in sidecars(order, seed).items():
            write(root / f"{stem}.{extension}", content)
        rows.append(truth(order, uri, ""))
    write(root / "README.md", b"# not an input\n")
    write(root / "unsorted" / ".DS_Store", b"\0\0\0\1Bud1")
    write(root / "__MACOSX" / "._picture.jpg", b"\0\5\x16\7")
    return rows


def write_tars(
    root: Path, orders: Sequence[Order], made: Mapping[int, Made], seed: int, truth: MakeTruth
) -> list[Truth]:
    """Write plain tars, a tar of odd names, one that is cut short, and three that are none."""
    shuffled = _shuffled(orders, seed)
    odd, cut, plain = shuffled[:ODD_MEMBERS], shuffled[ODD_MEMBERS : 2 * ODD_MEMBERS], shuffled[2 * ODD_MEMBERS :]
    rows: list[Truth] = []
    for start in range(0, len(plain), MEMBERS_PER_TAR):
        uri = f"part-{start // MEMBERS_PER_TAR:03d}.tar"
        names = [f"{start + number:06d}" for number in range(len(plain[start : start + MEMBERS_PER_TAR]))]
        rows += _write_tar(root, uri, names, plain[start : start + MEMBERS_PER_TAR], made, seed, truth)
    rows += _write_odd_names(root, odd, made, seed, truth)
    rows += _write_cut_short(root, cut, made, seed, truth)
    for uri, data, note in (
        ("gone.tar", HTML, "an HTML page named .tar"),
        ("nothing.tar", b"", "a tar of zero bytes"),
        ("packed.tar.gz", gzip.compress(b"\0" * 1024, mtime=0), "a compressed tar, which has no byte addresses"),
    ):
        write(root / uri, data)
        rows.append(container_row(uri, "", Reason.BAD_CONTAINER, note))
    write(root / "README.txt", b"not an input\n")
    return rows


def container_row(uri: str, member: str, reason: Reason, note: str) -> Truth:
    """The row that stands for a broken container or for a member that is not a file."""
    identity = record_id(uri, member)
    return Truth(identity, uri, member, reason, (), f"container-{identity[:8]}", "container", "none", False, note, None)


def _write_tar(
    root: Path,
    uri: str,
    stems: Sequence[str],
    orders: Sequence[Order],
    made: Mapping[int, Made],
    seed: int,
    truth: MakeTruth,
) -> list[Truth]:
    tar = TarWriter()
    rows = []
    for stem, order in zip(stems, orders, strict=True):
        item = made[order.index]
        for extension, content in sidecars(order, seed).items():
            tar.add(f"{stem}.{extension}", content)
        tar.add(f"{stem}.{item.extension}", item.data)
        rows.append(truth(order, uri, f"{stem}.{item.extension}"))
    write(root / uri, tar.close())
    return rows


def _write_odd_names(
    root: Path, orders: Sequence[Order], made: Mapping[int, Made], seed: int, truth: MakeTruth
) -> list[Truth]:
    """Dots, folders, spaces, accents and paths that climb in names; one name used twice; a link; litter of macOS."""
    uri = "odd-names.tar"
    stems = ["photo.v2", "photo.v3", "set.v1/a", "set.v1/b.final", "../climbs/c", "with space", "é/ü", "A", "a", ".b"]
    names = [f"{stem}.{made[order.index].extension}" for stem, order in zip(stems, orders, strict=False)]
    names += ["twice.jpg"] * (len(orders) - len(names))
    tar = TarWriter()
    rows = []
    for number, (name, order) in enumerate(zip(names, orders, strict=True)):
        if name not in names[:number]:
            for extension, content in sidecars(order, seed).items():
                tar.add(f"{name.rpartition('.')[0]}.{extension}", content)
        tar.add(name, made[order.index].data)
        times = names[: number + 1].count(name)
        rows.append(truth(order, uri, name if times == 1 else f"{name}#{times}"))
    tar.add("._photo.jpg", b"\0\5\x16\7")
    tar.add("__MACOSX/photo.jpg", b"\0\5\x16\7")
    tar.add("notes.md", b"not an input")
    tar.add_link("link.jpg", "/etc/hostname")
    write(root / uri, tar.close())
    return [*rows, container_row(uri, "link.jpg", Reason.UNSAFE_MEMBER, "a symbolic link named .jpg")]


def _write_cut_short(
    root: Path, orders: Sequence[Order], made: Mapping[int, Made], seed: int, truth: MakeTruth
) -> list[Truth]:
    """A tar that ends in the middle of its last member, as after a broken download."""
    uri = "cut-short.tar"
    tar = TarWriter()
    rows = []
    for number, order in enumerate(orders):
        item = made[order.index]
        name = f"{number:06d}.{item.extension}"
        for extension, content in sidecars(order, seed).items():
            tar.add(f"{number:06d}.{extension}", content)
        tar.add(name, item.data)
        rows.append(truth(order, uri, name))
    whole = tar.position()
    tar.add("last.jpg", random.Random(seed).randbytes(20_000))
    write(root / uri, tar.close()[: whole + 6_000])
    return [*rows, container_row(uri, "", Reason.TRUNCATED_CONTAINER, "ends in the middle of last.jpg")]


def _shuffled(orders: Sequence[Order], seed: int) -> list[Order]:
    """An order that says nothing about the kinds. Those that need metadata stay out of the tar of odd names."""
    rng = random.Random(f"{seed}/names")
    result = list(orders)
    rng.shuffle(result)
    return sorted(result, key=lambda order: KINDS[order.kind].expected in (Reason.LICENCE, Reason.OPTED_OUT))
