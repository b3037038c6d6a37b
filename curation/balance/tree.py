"""A fitted hierarchy of clusters: which leaf a vector belongs to, the way up, and a file of it without pickle."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from os import PathLike
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from curation.balance.budget import NO_LEAF
from curation.balance.water import Counts, check_counts
from curation.kmeans import nearest
from curation.vectors import Unit, check_vectors, row_blocks, unit_rows

Nodes = npt.NDArray[np.int32]

_FORMAT = 1
_CELLS = 1 << 24  # components of a block of rows


@dataclass(frozen=True)
class Hierarchy:
    """Clusters of clusters.

    Attributes:
        centroids: of each level, leaves first: float32 [k, d] unit rows.
        parents: of each level but the last, int32 [k]: the nearest centroid of the next level. Nodes of the last level
            belong to the root.
    """

    centroids: tuple[Unit, ...]
    parents: tuple[Nodes, ...]

    def __post_init__(self) -> None:
        if not self.centroids or len(self.parents) != len(self.centroids) - 1:
            raise ValueError(
                f"a hierarchy has parents for each level but the last, got {len(self.centroids)} levels of centroids "
                f"and {len(self.parents)} of parents"
            )
        for level, centres in enumerate(self.centroids):
            if centres.dtype != np.float32 or centres.ndim != 2 or centres.shape[1] != self.centroids[0].shape[1]:
                raise ValueError(
                    f"centroids of level {level} must be float32 [k, {self.centroids[0].shape[-1]}], got "
                    f"{centres.dtype} {centres.shape}"
                )
        for level, parent in enumerate(self.parents):
            known = len(self.centroids[level + 1])
            if parent.dtype != np.int32 or parent.shape != (len(self.centroids[level]),):
                raise ValueError(
                    f"parents of level {level} must be int32 [{len(self.centroids[level])}], got {parent.dtype} "
                    f"{parent.shape}"
                )
            if len(parent) and not 0 <= int(parent.min()) <= int(parent.max()) < known:
                raise ValueError(f"parents of level {level} must be 0..{known - 1}, got {parent.min()}..{parent.max()}")

    @property
    def leaves(self) -> int:
        """Clusters of the first level."""
        return len(self.centroids[0])

    def assign(self, vectors: npt.ArrayLike) -> Nodes:
        """The leaf of each row: the nearest centroid of the first level.

        Args:
            vectors: float16 or float32 [n, d], of any length.

        Returns:
            int32 [n]; `NO_LEAF` for rows that are all zero or not finite. Does not depend on the other rows.

        Raises:
            TypeError: vectors of another type.
            ValueError: vectors of other dimensions than the centroids.
        """
        rows = check_vectors(vectors)
        if len(rows) and rows.shape[1] != self.centroids[0].shape[1]:
            raise ValueError(
                f"the hierarchy was fitted on {self.centroids[0].shape[1]} dimensions, the vectors have "
                f"{rows.shape[1]}: embeddings of another model cannot be assigned"
            )
        leaf = np.full(len(rows), NO_LEAF, np.int32)
        if self.leaves:
            for block in row_blocks(len(rows), rows.shape[1], _CELLS):
                unit, usable = unit_rows(rows[block])
                leaf[block][usable] = nearest(unit if usable.all() else unit[usable], self.centroids[0])[:, 0]
        return leaf

    def path(self, leaf: npt.ArrayLike) -> Nodes:
        """Nodes from leaves up to the last level.

        Args:
            leaf: integers [n], or one.

        Returns:
            int32 [n, levels] ([levels] for one leaf), the leaf first; `NO_LEAF` throughout for `NO_LEAF`.

        Raises:
            ValueError: a leaf that there is not.
        """
        node = np.asarray(leaf)
        if not np.issubdtype(node.dtype, np.integer):
            raise ValueError(f"leaves must be integers, got {node.dtype}")
        if node.size and not NO_LEAF <= int(node.min()) <= int(node.max()) < self.leaves:
            raise ValueError(f"leaves must be {NO_LEAF}..{self.leaves - 1}, got {node.min()}..{node.max()}")
        path = [node.astype(np.int32)]
        for parent in self.parents:
            path.append(np.append(parent, np.int32(NO_LEAF))[path[-1]])
        return np.stack(path, axis=-1)

    def sizes(self, leaf_counts: npt.ArrayLike) -> tuple[Counts, ...]:
        """Rows of each node of each level, leaves first, int64, from the rows of the leaves (integers [leaves]).

        Raises:
            ValueError: not one count per leaf.
        """
        counts = check_counts(leaf_counts, "leaf_counts").astype(np.int64)
        if len(counts) != self.leaves:
            raise ValueError(f"leaf_counts must have one entry for each of {self.leaves} leaves, got {len(counts)}")
        sizes = [counts]
        for level, parent in enumerate(self.parents):
            above = np.zeros(len(self.centroids[level + 1]), np.int64)
            np.add.at(above, parent, sizes[-1])
            sizes.append(above)
        return tuple(sizes)

    def to_bytes(self) -> bytes:
        """As the content of an .npz file; the same bytes for the same hierarchy."""
        arrays: dict[str, npt.NDArray[np.generic]] = {"format": np.array(_FORMAT, np.int32)}
        arrays |= {f"centroids_{level}": np.ascontiguousarray(part) for level, part in enumerate(self.centroids)}
        arrays |= {f"parents_{level}": part for level, part in enumerate(self.parents)}
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            for name, array in arrays.items():
                part = io.BytesIO()
                np.lib.format.write_array(part, np.asanyarray(array), allow_pickle=False)
                # A fixed date: numpy.savez leaves it to the library's version.
                archive.writestr(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), part.getvalue())
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Hierarchy:
        """Back from `to_bytes`. Nothing is unpickled.

        Raises:
            ValueError: not such a file, or one whose arrays do not fit together.
        """
        return cls.load(io.BytesIO(data))

    def save(self, file: str | PathLike[str] | BinaryIO) -> None:
        """Write an .npz file, under exactly this name."""
        data = self.to_bytes()
        if isinstance(file, str | PathLike):
            with open(file, "wb") as opened:
                opened.write(data)
        else:
            file.write(data)

    @classmethod
    def load(cls, file: str | PathLike[str] | BinaryIO) -> Hierarchy:
        """Read what `save` wrote. Nothing is unpickled.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: not such a file, or one whose arrays do not fit together.
        """
        try:
            with np.load(file, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
        except (zipfile.BadZipFile, EOFError, ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"not a hierarchy of clusters as `save` writes it: {error}") from error
        levels = sum(name.startswith("centroids_") for name in arrays)
        expected = {
            "format",
            *(f"centroids_{level}" for level in range(levels)),
            *(f"parents_{level}" for level in range(levels - 1)),
        }
        if set(arrays) != expected or arrays["format"].shape != () or int(arrays["format"]) != _FORMAT:
            raise ValueError(
                f"not a hierarchy of clusters in format {_FORMAT}: it holds {', '.join(sorted(arrays)) or 'nothing'}"
            )
        return cls(
            tuple(arrays[f"centroids_{level}"] for level in range(levels)),
            tuple(arrays[f"parents_{level}"] for level in range(levels - 1)),
        )
