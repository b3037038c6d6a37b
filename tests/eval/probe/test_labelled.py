"""Labelled pictures are checked when they are made."""

from __future__ import annotations

import pytest
import torch

from eval.probe.labelled import Labelled

IMAGES = torch.zeros(2, 3, 4, 6, dtype=torch.uint8)
LABELS = torch.zeros(2, 4, 6, dtype=torch.uint8)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(TypeError, match=r"torch.uint8"):
        Labelled(IMAGES.float(), LABELS, ("a", "b"))
    with pytest.raises(ValueError, match=r"\[N, 3, H, W\]"):
        Labelled(IMAGES[:, :2], LABELS, ("a", "b"))
    with pytest.raises(ValueError, match=r"\[2, 6, 4\].*class per pixel"):
        Labelled(IMAGES, LABELS.permute(0, 2, 1), ("a", "b"))
    with pytest.raises(ValueError, match="2 to 255"):
        Labelled(IMAGES, LABELS, ("a",))
    with pytest.raises(ValueError, match="a label is 2; with 2 classes give 0 to 1, or 255"):
        Labelled(IMAGES, LABELS + 2, ("a", "b"))
    assert len(Labelled(IMAGES, LABELS + 255, ("a", "b"))) == 2


def test_fingerprint_follows_pixels_labels_and_classes() -> None:
    base = Labelled(IMAGES, LABELS, ("a", "b"))
    changed = [
        Labelled(IMAGES + 1, LABELS, ("a", "b")),
        Labelled(IMAGES, LABELS + 1, ("a", "b")),
        Labelled(IMAGES, LABELS, ("a", "c")),
    ]
    assert base.fingerprint() == Labelled(IMAGES.clone(), LABELS.clone(), ("a", "b")).fingerprint()
    assert len({item.fingerprint() for item in [base, *changed]}) == 4
