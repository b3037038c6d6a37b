"""Names of timm's Sapiens2 models (`vit_*_patch16_sapiens2`).

timm keeps the released tensors as they are and renames them; nothing is fused or reordered. It has no window tokenizer
(4K), no task heads and no decoder, so these cannot be written in its format. Its state dict has no RoPE periods: timm
computes them, as this project does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

NAME = "timm"

_TOP = {
    "cls_token": "cls_token",
    "storage_tokens": "reg_token",
    "patch_embed.projection.weight": "patch_embed.proj.weight",
    "patch_embed.projection.bias": "patch_embed.proj.bias",
    "ln1.weight": "norm.weight",
}
_BLOCK = {
    "ln1": "norm1",
    "ln2": "norm2",
    "attn.wq": "attn.q_proj",
    "attn.wk": "attn.k_proj",
    "attn.wv": "attn.v_proj",
    "attn.q_norm": "attn.q_norm",
    "attn.k_norm": "attn.k_norm",
    "attn.proj": "attn.proj",
    # The first half of the input projection is the gate in both.
    "ffn.w12": "mlp.fc1",
    "ffn.w3": "mlp.fc2",
}
_IN_BLOCK = re.compile(r"blocks\.(\d+)\.(.+)\.(weight|bias)")


def detect(names: Iterable[str]) -> bool:
    """Whether these tensor names are timm's."""
    return any(name == "reg_token" or re.fullmatch(r"blocks\.\d+\.(gamma_1|mlp\.fc1\.weight)", name) for name in names)


def sources(key: str) -> tuple[str, ...] | None:
    """The stored tensor for `key`, a bare name of the backbone; None where timm has nothing to hold it."""
    if key in _TOP:
        return (_TOP[key],)
    if match := _IN_BLOCK.fullmatch(key):
        block, layer, kind = match.groups()
        if layer == "attn.gamma" and kind == "weight":
            return (f"blocks.{block}.gamma_1",)
        if layer in _BLOCK:
            return (f"blocks.{block}.{_BLOCK[layer]}.{kind}",)
    return None
