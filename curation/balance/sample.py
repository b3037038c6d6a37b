"""Which rows of a cell are picked: exactly as many as its quota, whatever the order of the rows."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from curation.balance.water import check_counts

Pick = Literal["random", "nearest", "farthest"]


def pick_rows(
    cells: npt.ArrayLike,
    quotas: npt.ArrayLike,
    keys: npt.ArrayLike,
    pick: Pick = "random",
    cosines: npt.ArrayLike | None = None,
) -> npt.NDArray[np.bool_]:
    """Pick rows cell by cell.

    Args:
        cells: integers [n], 0 <= cell < c.
        quotas: integers [c]: rows to pick in each cell, at most as many as there are.
        keys: uint64 [n], or [n, k] compared column by column: a uniform number of each row's id and the seed, as
            `curation.mixing.id_keys` gives. Only rows that are equal in all keys are told apart by their position.
        pick: "random": the rows with the smallest keys. "nearest": typical rows, those with the largest cosine;
            "farthest": the smallest. Equal cosines go by key; rows without a cosine (NaN) come last, by key.
        cosines: floats [n] to the centroid of the row's cluster; for "nearest" and "farthest". Exact values
            (`curation.vectors.cosines`), or the choice among near ties depends on the machine.

    Returns:
        bool [n].

    Raises:
        ValueError: shapes that do not fit, a cell without a quota, a quota above the rows of its cell, no cosines
            where they decide, or another `pick`.
    """
    if pick not in ("random", "nearest", "farthest"):
        raise ValueError(f'pick must be "random", "nearest" or "farthest", got {pick!r}')
    cell = check_counts(cells, "cells").astype(np.int64)
    quota = check_counts(quotas, "quotas").astype(np.int64)
    n = len(cell)
    key = np.asarray(keys, dtype=np.uint64)
    key = key[:, None] if key.ndim == 1 else key
    if key.ndim != 2 or len(key) != n or key.shape[1] == 0:
        raise ValueError(f"keys must be uint64 [{n}] or [{n}, k], one per row, got shape {np.shape(keys)}")
    if n and int(cell.max()) >= len(quota):
        raise ValueError(f"cell {int(cell.max())} has no quota: quotas has {len(quota)} entries")
    count = np.bincount(cell, minlength=len(quota))
    over = np.flatnonzero(quota > count)
    if len(over):
        bad = int(over[0])
        raise ValueError(f"cell {bad} has {count[bad]} rows and a quota of {quota[bad]}: quotas must not be above")
    by = list(key.T[::-1])
    if pick != "random":
        if cosines is None:
            raise ValueError(f'pick="{pick}" needs the cosines of rows to their centroids')
        cosine = np.asarray(cosines, dtype=np.float64)
        if cosine.shape != (n,):
            raise ValueError(f"cosines must be floats [{n}], one per row, got shape {cosine.shape}")
        # NaN sorts last either way; + 0.0 turns -0.0 into 0.0.
        by.append((-cosine if pick == "nearest" else cosine) + 0.0)
    picked = np.zeros(n, bool)
    # A cell that keeps all or nothing needs no order.
    whole = quota == count
    picked[whole[cell]] = True
    rows = np.flatnonzero((~whole & (quota > 0))[cell])
    order = rows[np.lexsort([*(column[rows] for column in by), cell[rows]])]
    ordered = cell[order]
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    rank = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
    picked[order[rank < quota[ordered]]] = True
    return picked
