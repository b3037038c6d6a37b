"""The encoder against timm's with the same weights, batch and threads; visible tokens only; grouped keys and values.

Every pair takes turns in one process. Both sides of "against timm" keep float32 or bfloat16 weights; ours has the
released RoPE, which rounds queries and keys to bfloat16, timm's does not. The model keeps the width, heads and image of
its size; `--depth` cuts its blocks, which all cost the same, but for the grouped ones in the middle.
Needs timm for the comparison.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from eval.benchmarks.common import Figure, Rate, Report, alternate, compare, parser
from training.models.attention import grouped_attention
from training.models.backbone import Backbone
from training.models.config import BACKBONES, BackboneConfig

TIMM = {
    "sapiens2_0.1b": "vit_base_patch16_sapiens2",
    "sapiens2_0.4b": "vit_large_patch16_sapiens2",
    "sapiens2_0.8b": "vit_huge_patch16_sapiens2",
    "sapiens2_1b": "vit_giant_patch16_sapiens2",
    "sapiens2_5b": "vit_5b_patch16_sapiens2",
}
RENAMED = [
    (r"^storage_tokens", "reg_token"),
    (r"^patch_embed\.projection", "patch_embed.proj"),
    (r"^ln1", "norm"),
    (r"\.ln(\d)\.", r".norm\1."),
    (r"attn\.w([qkv])\.", r"attn.\1_proj."),
    (r"attn\.gamma\.weight", "gamma_1"),
    (r"ffn\.w12", "mlp.fc1"),
    (r"ffn\.w3", "mlp.fc2"),
]


def cut(name: str, depth: int | None, image_size: tuple[int, int] | None) -> BackboneConfig:
    """A size with fewer blocks; a third of them at either end full, the others grouped as far as the size has any."""
    config = BACKBONES[name]
    if image_size is not None:
        config = config.replace(image_size=image_size)
    if depth is None or depth >= config.depth:
        return config
    grouped = any(config.kv_heads(block) != config.heads for block in range(config.depth))
    return config.replace(depth=depth, full_kv_blocks=depth // 3 if grouped else depth)


def timm_twin(name: str, backbone: Backbone) -> nn.Module:
    """timm's model of the same shape with the same weights."""
    import timm

    config = backbone.config
    kv_heads = tuple(config.kv_heads(block) for block in range(config.depth))
    twin: nn.Module = timm.create_model(
        TIMM[name], img_size=config.image_size, depth=config.depth, num_kv_heads=kv_heads
    )
    weights = {}
    for key, value in backbone.state_dict().items():
        for ours, theirs in RENAMED:
            key = re.sub(ours, theirs, key)
        if key != "rope_embed.periods":
            weights[key] = value
    twin.load_state_dict(weights)
    return twin


def timed(rows: int, work: Callable[[], object]) -> Callable[[], Rate]:
    """Wall and CPU time of one call of `work`, which handles `rows` images."""

    def run() -> Rate:
        started, cpu = time.perf_counter(), time.process_time()
        work()
        return Rate(rows, time.perf_counter() - started, time.process_time() - cpu)

    return run


def forward(encode: Callable[[], Tensor]) -> Callable[[], object]:
    """Features without gradients."""

    def work() -> None:
        with torch.no_grad():
            encode()

    return work


def forward_backward(module: nn.Module, encode: Callable[[], Tensor]) -> Callable[[], object]:
    """Features and the gradients of all weights."""

    def work() -> None:
        module.zero_grad(set_to_none=True)
        encode().float().square().mean().backward()

    return work


def against_timm(report: Report, name: str, config: BackboneConfig, batch: int, rounds: int) -> None:
    """Forward, and forward with backward, in float32 and bfloat16."""
    ours = Backbone(config)
    theirs = timm_twin(name, ours)
    for dtype, goal in ((torch.float32, 1.0), (torch.bfloat16, 1.2)):
        images = torch.randn(batch, 3, *config.image_size).to(dtype)
        ours.to(dtype)
        theirs.to(dtype)

        def encode_ours(images: Tensor = images) -> Tensor:
            return ours(images)[0]

        def encode_theirs(images: Tensor = images) -> Tensor:
            features: Tensor = theirs.forward_features(images)  # type: ignore[operator]
            return features

        pairs = {
            "forward": (forward(encode_ours), forward(encode_theirs)),
            "forward + backward": (forward_backward(ours, encode_ours), forward_backward(theirs, encode_theirs)),
        }
        for what, sides in pairs.items():
            rates = _rounds(rounds, batch, *sides)
            title = f"{name}, {config.depth} blocks, {what}, {str(dtype).removeprefix('torch.')}"
            report(compare(f"{title}, against timm", "images/s", rates[0], rates[1], goal))


def visible_only(report: Report, name: str, config: BackboneConfig, batch: int, rounds: int, share: float) -> None:
    """Forward on a share of the tokens against all of them."""
    backbone = Backbone(config)
    images = torch.randn(batch, 3, *config.image_size)
    count = round(share * config.tokens)
    keep = torch.stack([torch.randperm(config.tokens)[:count].sort().values for _ in range(batch)])
    rates = _rounds(rounds, batch, forward(lambda: backbone(images, keep)[0]), forward(lambda: backbone(images)[0]))
    title = f"{name}, {config.depth} blocks, forward of {count} of {config.tokens} tokens, against all"
    report(compare(title, "images/s", rates[0], rates[1], 3.3))


def grouped(report: Report, name: str, config: BackboneConfig, batch: int, rounds: int) -> None:
    """Attention with half as many key and value heads as query heads, against repeating them first."""
    tokens, group = config.front_tokens + config.tokens, 2
    sizes = [config.heads, config.heads // group, config.heads // group]
    q, k, v = (torch.randn(batch, heads, tokens, config.head_dim, requires_grad=True) for heads in sizes)

    def shared() -> Tensor:
        return grouped_attention(q, k, v)

    def repeated() -> Tensor:
        return F.scaled_dot_product_attention(q, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1))

    def backward(encode: Callable[[], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(encode().square().mean(), [q, k, v])

    title = f"{name}, attention of {sizes[0]} heads over {sizes[1]}, {tokens} tokens"
    for what, wrap in {"forward": forward, "forward + backward": backward}.items():
        rates = _rounds(rounds, batch, wrap(shared), wrap(repeated))
        figure = compare(f"{title}, {what}, against repeats", "images/s", rates[0], rates[1])
        figure.detail["MB of repeats"] = 2 * q.numel() * q.element_size() / 1e6
        report(figure)


def _rounds(rounds: int, batch: int, *works: Callable[[], object]) -> list[list[Rate]]:
    for work in works:
        work()
    return alternate(rounds, *(timed(batch, work) for work in works))


def main() -> None:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--model", choices=sorted(TIMM), default="sapiens2_0.1b")
    arguments.add_argument("--grouped-model", choices=sorted(TIMM), default="sapiens2_1b", help="for grouped attention")
    arguments.add_argument("--depth", type=int, help="blocks to keep; all without it")
    arguments.add_argument(
        "--image", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"), help="pixels; 1024 768 without it"
    )
    arguments.add_argument("--batch", type=int, default=1)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--threads", type=int, help="torch threads; its own choice without it")
    arguments.add_argument("--visible", type=float, default=0.25, help="share of visible tokens")
    options = arguments.parse_args()
    report = Report(options.json)
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    size = tuple(options.image) if options.image else None
    config = cut(options.model, options.depth, size)
    report(Figure("threads", torch.get_num_threads(), "threads"))
    against_timm(report, options.model, config, options.batch, options.rounds)
    visible_only(report, options.model, config, options.batch, options.rounds, options.visible)
    grouped(report, options.grouped_model, cut(options.grouped_model, 3, size), options.batch, options.rounds)


if __name__ == "__main__":
    main()
