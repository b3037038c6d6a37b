"""Cost: counts equal what PyTorch counts on the real modules."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.fixtures.sapiens2_manifest import BACKBONE_PARAMETERS, TASK_PARAMETERS
from training.models import create, list_models
from training.models.backbone import Backbone
from training.models.config import BackboneConfig
from training.models.cost import (
    backbone_activations,
    block_activation_bytes,
    model_cost,
    readable_bytes,
    readable_count,
)
from training.models.head_cost import head_activation_elements
from training.models.tokenizer import CHUNK
from training.models.zoo import model_spec

SMALL = BackboneConfig(width=64, depth=4, heads=4, ffn_width=256, image_size=(128, 96), full_kv_blocks=1)


def counted_flops(model: torch.nn.Module, *inputs: torch.Tensor) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*inputs)
    return counter.get_total_flops()


@pytest.mark.parametrize("name", [*BACKBONE_PARAMETERS, *TASK_PARAMETERS])
def test_parameters_of_released_models(name: str) -> None:
    spec = model_spec(name)
    assert model_cost(spec.config, spec.head).parameters == {**BACKBONE_PARAMETERS, **TASK_PARAMETERS}[name]


@pytest.mark.parametrize("name", list_models("tiny*"))
def test_flops_are_those_that_pytorch_counts(name: str) -> None:
    spec = model_spec(name)
    model = create(name, device="meta").eval()
    images = torch.empty(1, 3, *spec.config.image_size, device="meta")
    assert counted_flops(model, images) == model_cost(spec.config, spec.head).forward_flops


@pytest.mark.parametrize("name", ["sapiens2_0.4b_pose", "sapiens2_1b_4k"])
def test_flops_of_released_sizes(name: str) -> None:
    spec = model_spec(name, depth=2)
    model = create(name, depth=2, device="meta").eval()
    images = torch.empty(1, 3, *spec.config.image_size, device="meta")
    assert counted_flops(model, images) == model_cost(spec.config, spec.head).forward_flops


@pytest.mark.parametrize("tokenizer_depth", [0, 2])
def test_flops_of_visible_tokens_only(tokenizer_depth: int) -> None:
    config = SMALL.replace(tokenizer_depth=tokenizer_depth, image_size=(256, 128))
    cost = model_cost(config, keep_ratio=0.25)
    assert cost.visible == cost.tokens // 4
    model = Backbone(config, device="meta").eval()
    keep = torch.zeros(1, cost.visible, dtype=torch.int64, device="meta")
    assert counted_flops(model, torch.empty(1, 3, 256, 128, device="meta"), keep) == cost.forward_flops


def test_published_figures_are_macs_without_attention() -> None:
    # Sapiens2, arXiv:2604.21681, Table 1: 1B 4.715 T, 5B 15.722 T, called FLOPs.
    for name, published in (("sapiens2_1b", 4.715e12), ("sapiens2_5b", 15.722e12)):
        cost = model_cost(model_spec(name).config)
        assert cost.forward_macs - cost.macs["blocks_attention"] == pytest.approx(published, rel=0.06)
        assert 2.2 < cost.forward_flops / published < 3.2


def test_another_image_size() -> None:
    assert model_cost(SMALL, image_size=(256, 192)).tokens == 4 * model_cost(SMALL).tokens


def test_ranges() -> None:
    with pytest.raises(ValueError, match="keep_ratio is 0"):
        model_cost(SMALL, keep_ratio=0)
    with pytest.raises(ValueError, match="head needs the whole feature map"):
        model_cost(SMALL, model_spec("tiny_seg").head, keep_ratio=0.5)
    with pytest.raises(ValueError, match="multiples of 16"):
        model_cost(SMALL, image_size=(100, 100))


def saved_bytes(model: torch.nn.Module, inputs: torch.Tensor, train: bool = True) -> int:
    """Bytes that autograd keeps for the backward pass, each storage once, weights and the input left out."""
    known = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), inputs)}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            kept[storage._cdata] = storage  # held, so that its address is not used again
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.train(train)(inputs)
    return sum(storage.nbytes() for storage in kept.values())


def near(estimate: int) -> object:
    """Within 10 %: layouts, and with them copies, depend on the attention kernel."""
    return pytest.approx(estimate, rel=0.1)


def saved_by_backbone(config: BackboneConfig, mode: Literal["none", "blocks"] = "none") -> int:
    model = Backbone(config, dtype=torch.bfloat16)
    model.set_activation_checkpointing(mode)
    return saved_bytes(model, torch.randn(1, 3, *config.image_size, dtype=torch.bfloat16))


def test_a_backbone_keeps_what_the_formula_says() -> None:
    assert saved_by_backbone(SMALL) == near(backbone_activations(SMALL, SMALL.tokens)[0])


def test_a_block_keeps_what_the_formula_says() -> None:
    one_more = saved_by_backbone(SMALL) - saved_by_backbone(SMALL.replace(depth=3))
    assert one_more == near(block_activation_bytes(SMALL, kv_heads=2, tokens=SMALL.tokens + 9))


def test_a_checkpointed_block_keeps_its_input() -> None:
    one_more = saved_by_backbone(SMALL, "blocks") - saved_by_backbone(SMALL.replace(depth=3), "blocks")
    assert one_more == 2 * (SMALL.tokens + 9) * SMALL.width
    # At the peak, one block is computed again.
    again = block_activation_bytes(SMALL, kv_heads=4, tokens=SMALL.tokens + 9)
    assert saved_by_backbone(SMALL, "blocks") + again == near(backbone_activations(SMALL, SMALL.tokens)[1])


def test_a_tokenizer_block_keeps_what_the_formula_says() -> None:
    config = SMALL.replace(tokenizer_depth=2, image_size=(256, 128))
    assert config.tokens < CHUNK
    images = torch.randn(1, 3, 256, 128, dtype=torch.bfloat16)
    # In evaluation mode, nothing is computed again.
    inside = [
        saved_bytes(Backbone(config.replace(tokenizer_depth=depth), dtype=torch.bfloat16), images, train=False)
        for depth in (2, 3)
    ]
    block = block_activation_bytes(config, config.heads, config.tokens * 17, in_tokenizer=True)
    assert inside[1] - inside[0] == near(block)
    # Of the last block only the window's own token is computed: the estimate is above.
    kept, checkpointed = backbone_activations(config, config.tokens)
    assert 0.9 * block < inside[0] - saved_by_backbone(config) < 1.9 * block
    # It is the peak of so small a model: more than all of its other blocks.
    assert kept == checkpointed > 2 * block


@pytest.mark.parametrize("task", ["pose", "seg", "normal", "pointmap", "albedo"])
def test_a_head_keeps_what_the_formula_says(task: str) -> None:
    spec = model_spec(f"tiny_{task}", image_size=(160, 96), depth=1)
    assert spec.head is not None
    head = create(f"tiny_{task}", image_size=(160, 96), depth=1).decode_head
    rows, columns = spec.config.grid
    features = torch.randn(1, spec.config.width, rows, columns, requires_grad=True)
    # The feature map is kept too, but it is the input here.
    expected = 4 * (head_activation_elements(spec.head, (rows, columns)) - features.numel())
    measured = saved_bytes(head, features)
    # PyTorch's RMSNorm on the CPU keeps more than the fused one.
    assert expected * 0.99 <= measured <= expected * (1.4 if task == "albedo" else 1.01)


def test_memory_of_training() -> None:
    cost = model_cost(model_spec("sapiens2_5b").config)
    assert cost.training_state == 16 * 5_066_902_976
    assert cost.inference_memory == {"bfloat16": 2 * 5_066_902_976, "float32": 4 * 5_066_902_976}
    assert cost.training_flops == 3 * cost.forward_flops


def test_readable_numbers() -> None:
    assert readable_count(395_450_368) == "395 M"
    assert readable_count(1_260_000_000_000) == "1.26 T"
    assert readable_count(999) == "999"
    assert readable_bytes(5_100_000_000) == "5.10 GB"
    assert readable_bytes(0) == "0 B"
