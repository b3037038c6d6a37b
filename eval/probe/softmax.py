"""Batch norm and a linear layer on frozen features, by AdamW on the cross-entropy of pixels: DINOv3's linear probe.

Logits are interpolated bilinearly to the pixels, as they are when the probe is scored.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from eval.probe.config import ProbeConfig
from eval.probe.labelled import IGNORE
from training.data.keys import permutation
from training.objectives.schedules import warmup_cosine


class SoftmaxProbe(nn.Module):
    """[b, D, h, w] -> logits [b, C, h, w]. The linear layer starts at 0, so that nothing is drawn."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(width)
        self.linear = nn.utils.skip_init(nn.Conv2d, width, classes, 1)
        for parameter in self.linear.parameters():
            nn.init.zeros_(parameter)

    def forward(self, maps: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.norm(maps))
        return logits


def fit_softmax(maps: Tensor, labels: Tensor, classes: int, config: ProbeConfig) -> SoftmaxProbe:
    """Fit a probe; the same every time.

    Args:
        maps: float32 [N, D, h, w], features of all pictures; they are held in memory, since each is used often.
        labels: uint8 [N, H, W].
        classes: their number.
        config: batch, steps, rates and seed. A batch larger than N is cut to N.

    Raises:
        ValueError: no pixel is labelled.
    """
    if not bool((labels != IGNORE).any()):
        raise ValueError("no pixel has a label: there is nothing to fit")
    probe = SoftmaxProbe(maps.shape[1], classes).to(maps.device)
    optimizer = torch.optim.AdamW(probe.parameters(), lr=0.0, weight_decay=config.weight_decay)
    batch = min(config.batch, len(maps))
    per_epoch = len(maps) // batch
    with torch.enable_grad():
        for step in range(config.steps):
            epoch, place = divmod(step, per_epoch)
            if place == 0:
                order = torch.from_numpy(permutation(len(maps), config.seed, epoch))
            chosen = order[place * batch : (place + 1) * batch]
            truth = labels[chosen].to(maps.device)
            if not bool((truth != IGNORE).any()):
                continue
            logits = F.interpolate(probe(maps[chosen]), truth.shape[1:], mode="bilinear", align_corners=False)
            loss = F.cross_entropy(logits, truth.long(), ignore_index=IGNORE)
            lr = warmup_cosine(step, peak=config.lr, final=0.0, warmup=config.warmup, total=config.steps)
            optimizer.param_groups[0]["lr"] = lr
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
    return probe.eval().requires_grad_(False)
