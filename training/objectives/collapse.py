"""Whether self-distillation still tells images apart: statistics of a step, summed over micro-batches and ranks.

    teacher_entropy      mean of -sum_k p[k] log p[k] of the teacher's distributions, in nats: 0 = one prototype each,
                         ln P = none preferred; both are collapse
    active_prototypes    prototypes that are the largest of at least one row; 1 = all rows alike
    cls_std              deviation over the rows of each channel of CLS at unit length, averaged over the channels:
                         0 = CLS is constant, near 1 / sqrt(D) = spread over the sphere
    neighbour_distance   mean distance of CLS at unit length to the nearest other row of its group (0 to 2): what KoLeo
                         keeps up

The choice of the four is ours; the Sapiens2 paper names no checks.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from training.objectives.koleo import nearest_squared


def entropies(probs: Tensor) -> Tensor:
    """[..., P] distributions -> float32 [...], their entropies in nats, 0 to ln P; 0 log 0 is 0."""
    return torch.special.entr(probs.float()).sum(dim=-1)


def prototype_counts(probs: Tensor) -> Tensor:
    """[..., P] distributions -> int64 [P], of how many rows each prototype is the largest (the first of equal ones)."""
    return torch.bincount(probs.argmax(dim=-1).flatten(), minlength=probs.shape[-1])


def channel_moments(cls: Tensor) -> Tensor:
    """[..., D] CLS tokens -> float64 [2, D]: sums over the rows, of the channels at unit length and of their squares.

    In float64, since the variance is a small difference of large sums just when CLS hardly varies.
    """
    rows = F.normalize(cls.double().flatten(0, -2), dim=-1)
    return torch.stack([rows.sum(dim=0), rows.square().sum(dim=0)])


@torch.no_grad()
def neighbour_distances(cls: Tensor, group: int) -> Tensor:
    """[n, D] CLS tokens -> float32 [n or less], distances to the nearest other row of a group, 0 to 2.

    At unit length, in float32 whatever the dtype. Rows that are alone in their group are left out.
    """
    return nearest_squared(cls, group).sqrt()


class CollapseStats:
    """Accumulates the statistics of a step in one flat tensor, so that one all-reduce (sum) merges all ranks.

    For every micro-batch `update`; then the ranks' `sums` are added up (in place); then `values`; then `reset`. Until
    `values`, nothing waits for a GPU.

    Attributes:
        sums: float64 [P + 2 D + 5]: counts of prototypes, moments of channels, then entropy, its rows, rows of CLS,
            distance, its rows. Every element is a sum over rows.
    """

    def __init__(self, prototypes: int, width: int, group: int, device: torch.device | str | None = None) -> None:
        """Empty sums.

        Args:
            prototypes: P of the projection head.
            width: D of the encoder.
            group: rows whose nearest neighbours are sought among one another, as `KoleoConfig.group`.
            device: where the sums are kept, that of the tensors given.

        Raises:
            ValueError: a size below 1 (2 for the group).
        """
        if prototypes < 1 or width < 1 or group < 2:
            raise ValueError(f"{prototypes} prototypes, width {width}, groups of {group}: give 1, 1 and 2 or more")
        self.prototypes, self.width, self.group = prototypes, width, group
        self.sums = torch.zeros(prototypes + 2 * width + 5, dtype=torch.float64, device=device)

    @torch.no_grad()
    def update(self, teacher_probs: Tensor | None = None, cls: Tensor | None = None) -> None:
        """Add a micro-batch; what is None is left out of `values`.

        Args:
            teacher_probs: [..., P], the teacher's distributions, any leading dimensions, any floating dtype.
            cls: [views, m, D], CLS tokens before the projection head, any floating dtype. Neighbours are sought within
                a view.

        Raises:
            ValueError: shapes that do not fit the sizes given at first.
        """
        # Both are checked before anything is added.
        if teacher_probs is not None and (teacher_probs.ndim < 1 or teacher_probs.shape[-1] != self.prototypes):
            raise ValueError(f"probabilities have shape {tuple(teacher_probs.shape)}; give [..., {self.prototypes}]")
        if cls is not None and (cls.ndim != 3 or cls.shape[-1] != self.width):
            raise ValueError(f"CLS tokens have shape {tuple(cls.shape)}; give [views, samples, {self.width}]")
        counts, moments, scalars = self._parts(self.sums)
        if teacher_probs is not None:
            entropy = entropies(teacher_probs)
            counts += prototype_counts(teacher_probs)
            scalars[0] += entropy.sum(dtype=torch.float64)
            scalars[1] += entropy.numel()
        if cls is not None:
            moments += channel_moments(cls)
            scalars[2] += cls.shape[0] * cls.shape[1]
            for view in cls:
                distances = neighbour_distances(view, self.group)
                scalars[3] += distances.sum(dtype=torch.float64)
                scalars[4] += distances.numel()

    def merge(self, other: CollapseStats) -> None:
        """Add another's sums, of the same sizes: what the all-reduce does over ranks.

        Raises:
            ValueError: other sizes.
        """
        if (other.prototypes, other.width, other.group) != (self.prototypes, self.width, self.group):
            raise ValueError(
                f"statistics of {other.prototypes} prototypes, width {other.width} and groups of {other.group} do not "
                f"add to those of {self.prototypes}, {self.width} and {self.group}"
            )
        self.sums += other.sums

    def reset(self) -> None:
        """Start again from empty sums."""
        self.sums.zero_()

    def values(self) -> dict[str, float]:
        """The statistics over all rows so far, by the names of the module's docstring; only those that have rows.

        One copy to the host.
        """
        counts, moments, scalars = self._parts(self.sums.cpu())
        entropy, entropy_rows, cls_rows, distance, distance_rows = scalars.tolist()
        found: dict[str, float] = {}
        if entropy_rows:
            found["teacher_entropy"] = entropy / entropy_rows
            found["active_prototypes"] = float(counts.count_nonzero())
        if cls_rows:
            mean, square = moments / cls_rows
            found["cls_std"] = float((square - mean.square()).clamp_min(0).sqrt().mean())
        if distance_rows:
            found["neighbour_distance"] = distance / distance_rows
        return found

    def _parts(self, sums: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Views of the flat sums: counts [P], moments [2, D], scalars [5]."""
        counts, moments, scalars = sums.split([self.prototypes, 2 * self.width, 5])
        return counts, moments.view(2, self.width), scalars
