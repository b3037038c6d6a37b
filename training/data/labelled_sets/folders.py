"""Pictures and labels in folders, matched by file name. The layouts are in `config.py`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curation.config import fingerprint
from curation.shards import EXTENSIONS
from training.data.labelled import Picture
from training.data.labelled_sets import members
from training.data.labelled_sets.config import DenseFoldersConfig, PartFoldersConfig
from training.data.labelled_sets.problem import LabelError, Problem, refuse
from training.data.labelled_sets.record import Member, Record, picture

FoldersConfig = PartFoldersConfig | DenseFoldersConfig

_IMAGES = frozenset((*EXTENSIONS.values(), "jpeg", "jpe", "tiff", "jp2", "avif", "ppm"))
_LAYOUTS = "The layouts are in training/data/labelled_sets/config.py"
_MAPS = frozenset(("npy", "png"))
_FOLDERS: dict[str, tuple[str, frozenset[str]]] = {
    "masks": ("mask", frozenset(("png",))),
    "parts": ("parts", frozenset(("png",))),
    "normals": ("normals", _MAPS),
    "depth": ("depth", _MAPS),
    "albedo": ("albedo", _MAPS),
    "intrinsics": ("intrinsics", frozenset(("json", "txt"))),
}
CAMERAS = "intrinsics.json"


@dataclass(frozen=True)
class Listing:
    """What folders hold.

    Attributes:
        stems: of the pictures that have all labels, sorted.
        files: member -> stem -> path below the root.
        cameras: the JSON value of `intrinsics.json`, or None.
        problems: names that do not match; those of images without all their labels are fatal unless they are skipped.
        fingerprint: of the names and sizes of all files.
    """

    stems: tuple[str, ...]
    files: Mapping[str, Mapping[str, str]]
    cameras: Any
    problems: tuple[Problem, ...]
    fingerprint: str


def list_folders(config: FoldersConfig) -> Listing:
    """Match the files of a root. Reads names and sizes only, and `intrinsics.json`."""
    root = Path(config.root)
    digest = hashlib.sha256()
    problems: list[Problem] = []
    names = ("parts",) if config.kind == "parts" else tuple(_FOLDERS)
    required = "parts" if config.kind == "parts" else "masks"
    files = {"image": _stems(root, "images", _IMAGES, problems, digest)}
    for name in names:
        member, extensions = _FOLDERS[name]
        if name == required or (root / name).is_dir():
            files[member] = _stems(root, name, extensions, problems, digest)
    cameras = None
    if config.kind == "dense" and (root / CAMERAS).is_file():
        data = (root / CAMERAS).read_bytes()
        digest.update(data)
        try:
            cameras = members.camera_file(data, str(root / CAMERAS))
        except LabelError as error:
            problems.append(error.problem)
        if "intrinsics" in files:
            problems.append(Problem(str(root / CAMERAS), "stands beside a folder intrinsics/", "Keep one of them"))
    images = set(files["image"])
    for member, stems in files.items():
        folder = next((name for name, (own, _) in _FOLDERS.items() if own == member), "images")
        if not stems:
            problems.append(Problem(str(root / folder), "holds no file that is read", _LAYOUTS))
            continue
        problems += [
            Problem(
                str(root / files["image"][stem]),
                f"has no file {folder}/{stem}.{'/.'.join(sorted(_FOLDERS[folder][1]))}",
                "Add it, remove the image, or set `incomplete: skip`",
                fatal=config.incomplete == "error",
            )
            for stem in sorted(images - set(stems))
        ]
        problems += [
            Problem(str(root / stems[stem]), f"has no image images/{stem}.*", "Add it, or remove the label", False)
            for stem in sorted(set(stems) - images)
        ]
    complete = tuple(sorted(images.intersection(*files.values())))
    if not complete and not any(problem.fatal for problem in problems):
        problems.append(Problem(str(root), "holds no picture with all its labels", _LAYOUTS))
    return Listing(complete, files, cameras, tuple(problems), digest.hexdigest()[:16])


def _stems(root: Path, name: str, extensions: frozenset[str], problems: list[Problem], digest: Any) -> dict[str, str]:
    """Stem -> path below the root, of the files of a folder and its subfolders."""
    found: dict[str, str] = {}
    folder = root / name
    if not folder.is_dir():
        problems.append(Problem(str(folder), "there is no such folder", "Make it, or correct `root`"))
    for where, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        for file in sorted(names):
            stem, dot, extension = file.rpartition(".")
            if not dot or not stem or file.startswith("."):
                continue
            path = Path(where, file)
            below = path.relative_to(folder).as_posix()
            stem = below[: -len(extension) - 1]
            if not below.isprintable():
                problems.append(Problem(repr(str(path)), "is no printable Unicode name", "Rename it"))
            elif extension.lower() not in extensions:
                problems.append(
                    Problem(str(path), f"is not one of {', '.join(sorted(extensions))}", "Convert or remove it", False)
                )
            elif stem in found:
                problems.append(
                    Problem(str(path), f"has the name of {found[stem]}", "Keep one: names without extension are ids")
                )
            else:
                found[stem] = f"{name}/{below}"
                digest.update(f"{found[stem]}\0{path.stat().st_size}\0".encode("utf-8", "surrogateescape"))
    return found


class FolderPictures:
    """Part masks or dense maps of a root, in the order of names.

    Raises:
        DataError: names do not match; the message lists the first.
    """

    def __init__(self, config: FoldersConfig, listing: Listing | None = None) -> None:
        listing = listing or list_folders(config)
        refuse(listing.problems)
        self._config, self._listing, self._stems = config, listing, listing.stems
        how = config.model_dump(mode="json", exclude={"root"})
        self.fingerprint = fingerprint("folders", how, listing.fingerprint)

    def __len__(self) -> int:
        return len(self._stems)

    def __getitem__(self, index: int) -> Picture:
        return picture(self.record(index))

    def id(self, index: int) -> str:
        if not 0 <= index < len(self._stems):
            raise IndexError(f"picture {index} of {len(self._stems)}")
        return self._stems[index]

    def record(self, index: int) -> Record:
        stem, config = self.id(index), self._config
        files = {member: self._read(paths[stem]) for member, paths in self._listing.files.items()}
        info: dict[str, Any] = {"classes": config.classes} if "parts" in files else {}
        if isinstance(config, PartFoldersConfig):
            return Record(stem, files, info | {"mask_from": "parts", "background": config.background})
        info |= {"mask_from": "mask"}
        if config.mask_values == "person":
            files["person"] = files.pop("mask")
            info["mask_from"] = "person"
        for name, value in (
            ("normals", {"normal_axes": config.normal_axes}),
            ("depth", {"depth_unit": config.depth_unit}),
            ("albedo", {"albedo_encoding": config.albedo_encoding}),
        ):
            info |= value if name in files else {}
        camera = self._camera(stem, files)
        return Record(stem, files, info if camera is None else info | {"intrinsics": camera})

    def _camera(self, stem: str, files: dict[str, Member]) -> list[list[float]] | None:
        """The camera of a picture; its file is taken out of `files`."""
        value, name = self._listing.cameras, str(Path(self._config.root, CAMERAS))
        file = files.pop("intrinsics", None)
        if file is not None:
            value, name = members.camera_file(file.data, file.file), file.file
        elif value is None:
            return None
        elif not members.is_camera(value):
            if stem not in value:
                raise LabelError(name, f"has no camera for {stem!r}", "Add it, or write one camera for all pictures")
            value = value[stem]
        image = files["image"]
        size = members.upright_size(image.data, image.file)
        assert isinstance(self._config, DenseFoldersConfig)
        return members.camera(value, name, size, self._config.pixel_origin).tolist()

    def _read(self, path: str) -> Member:
        file = Path(self._config.root, path)
        try:
            return Member(file.read_bytes(), file.suffix[1:].lower(), str(file))
        except OSError as error:
            raise LabelError(
                str(file), f"cannot be read: {error.strerror}", "Put it back, or start without it"
            ) from None
