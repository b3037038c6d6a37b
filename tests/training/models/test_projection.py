"""The CLS projection head: shapes, unit length before the prototypes, initial values, errors."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from training.models.projection import ProjectionConfig, ProjectionHead


def test_defaults_are_the_base_configuration() -> None:
    head = ProjectionHead(ProjectionConfig(1024), device="meta")
    assert {key: tuple(value.shape) for key, value in head.state_dict().items()} == {
        "mlp.0.weight": (2048, 1024),
        "mlp.0.bias": (2048,),
        "mlp.2.weight": (2048, 2048),
        "mlp.2.bias": (2048,),
        "mlp.4.weight": (256, 2048),
        "mlp.4.bias": (256,),
        "last_layer.weight": (65_536, 256),
    }
    assert head(torch.empty(2, 1024, device="meta")).shape == (2, 65_536)


@pytest.mark.parametrize("weight_norm", [False, True])
def test_logits_are_products_of_a_unit_vector_with_the_prototypes(weight_norm: bool) -> None:
    torch.manual_seed(0)
    head = ProjectionHead(ProjectionConfig.tiny(24, weight_norm=weight_norm))
    w = {name: p.detach().normal_(std=0.3) for name, p in head.named_parameters()}
    cls = torch.randn(5, 24)
    logits = head(cls)
    assert logits.shape == (5, 1024)
    for row, vector in zip(logits, cls, strict=True):
        x = F.gelu(w["mlp.0.weight"] @ vector + w["mlp.0.bias"])
        x = F.gelu(w["mlp.2.weight"] @ x + w["mlp.2.bias"])
        x = w["mlp.4.weight"] @ x + w["mlp.4.bias"]
        prototypes = w["last_layer.weight"]
        if weight_norm:
            prototypes = prototypes / prototypes.square().sum(dim=1, keepdim=True).sqrt()
        torch.testing.assert_close(row, prototypes @ (x / x.square().sum().sqrt()), rtol=1e-4, atol=1e-5)
    if weight_norm:
        assert logits.abs().max() <= 1.0001


def test_the_length_of_the_bottleneck_does_not_matter() -> None:
    torch.manual_seed(0)
    head = ProjectionHead(ProjectionConfig.tiny(24))
    cls = torch.randn(3, 24)
    before = head(cls)
    with torch.no_grad():
        for name in ("mlp.4.weight", "mlp.4.bias"):
            head.get_parameter(name).mul_(7.0)
    torch.testing.assert_close(head(cls), before, rtol=1e-4, atol=1e-6)


def test_initial_values_and_drawing_them_after_the_meta_device() -> None:
    config = ProjectionConfig.tiny(24, layers=2)
    torch.manual_seed(0)
    direct = ProjectionHead(config)
    assert [name for name, _ in direct.named_parameters() if "weight" in name] == [
        *("mlp.0.weight", "mlp.2.weight", "last_layer.weight")
    ]
    for name, p in direct.named_parameters():
        assert p.std().item() == pytest.approx(0.02, rel=0.05) if p.ndim > 1 else (p == 0).all(), name
    later = ProjectionHead(config, device="meta").to_empty(device="cpu")
    torch.manual_seed(0)
    later.init_weights()
    assert all(torch.equal(p, q) for p, q in zip(direct.parameters(), later.parameters(), strict=True))


def test_gradients_reach_every_weight() -> None:
    torch.manual_seed(0)
    head = ProjectionHead(ProjectionConfig.tiny(24))
    F.cross_entropy(head(torch.randn(4, 24)) / 0.1, torch.tensor([1, 2, 3, 4])).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in head.parameters())


def test_wrong_input_and_sizes_are_refused() -> None:
    head = ProjectionHead(ProjectionConfig.tiny(24))
    for shape in ((2, 25), (2, 9, 24)):
        with pytest.raises(ValueError, match=r"it takes CLS tokens \[batch, 24\]"):
            head(torch.zeros(shape))
    with pytest.raises(ValueError, match="prototypes is 0"):
        ProjectionConfig(24, prototypes=0)
