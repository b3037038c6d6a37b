"""Peak rates of matrix products by device, what model-FLOPs utilisation is a share of.

Vendors' data sheets, dense (without structured sparsity, which doubles the figure that is often quoted), products of
16-bit numbers summed in float32. "tfloat32" is float32 with `torch.set_float32_matmul_precision("high")`. A device or
dtype that is not listed has no peak, and no utilisation is shown rather than a wrong one; set `watch.peak_flops` then.
"""

from __future__ import annotations

import torch

# Substrings of the device's name, lower case; the first that fits counts. TFLOP/s: 16 bit, tfloat32, float32.
_DEVICES: tuple[tuple[str, float, float | None, float], ...] = (
    ("b200", 2250, 1125, 75),
    ("h200 nvl", 835.5, 417.5, 60),
    ("h200", 989.4, 494.7, 67),
    ("gh200", 989.4, 494.7, 67),
    ("h100 nvl", 835.5, 417.5, 60),
    ("h100 pcie", 756, 378, 51),
    ("h100", 989.4, 494.7, 67),
    ("h800", 989.4, 494.7, 67),
    ("h20", 148, 74, 44),
    ("a100", 312, 156, 19.5),
    ("a800", 312, 156, 19.5),
    ("a10g", 70, 35, 35),
    ("a10", 125, 62.5, 31.2),
    ("a30", 165, 82, 10.3),
    ("a40", 149.7, 74.8, 37.4),
    ("rtx a6000", 154.8, 77.4, 38.7),
    ("l40s", 362, 183, 91.6),
    ("l40", 181, 90.5, 90.5),
    ("l4", 121, 60, 30.3),
    ("rtx 6000 ada", 364.2, 182.1, 91.1),
    ("rtx 4090", 165.2, 82.6, 82.6),
    ("rtx 3090", 71, 35.6, 35.6),
    ("mi300x", 1307.4, 653.7, 163.4),
    # No bfloat16 and no tfloat32: float16 only.
    ("v100-pcie", 112, None, 14),
    ("v100", 125, None, 15.7),
    ("t4", 65, None, 8.1),
)
_FLOAT16_ONLY = ("v100", "t4")
# Slower than the name before it says, by how much depends.
_LESSER = (" laptop ", " max-q ", " mig ", " 4090 d ")


def peak_flops(device_name: str, dtype: str = "bfloat16") -> float | None:
    """Floating-point operations a second of one device at most.

    Args:
        device_name: as `torch.cuda.get_device_name` gives it, e.g. "NVIDIA A100-SXM4-80GB".
        dtype: of the matrix products: "bfloat16", "float16", "tfloat32" or "float32".

    Returns:
        The data sheet's figure; None for a device that is not known or has no such arithmetic.

    Raises:
        ValueError: the dtype is none of the four.
    """
    if dtype not in ("bfloat16", "float16", "tfloat32", "float32"):
        raise ValueError(f"dtype is {dtype!r}; allowed are 'bfloat16', 'float16', 'tfloat32' and 'float32'")
    name = f" {device_name.lower().replace('_', ' ')} "
    if any(word in name for word in _LESSER):
        return None
    for part, half, tensor, single in _DEVICES:
        # "l4" is not in "l40", nor "a10" in "a100": what follows must be no letter or digit.
        start = name.find(part)
        while start >= 0 and (name[start - 1].isalnum() or name[start + len(part)].isalnum()):
            start = name.find(part, start + 1)
        if start < 0:
            continue
        if dtype == "bfloat16" and part.startswith(_FLOAT16_ONLY):
            return None
        value = {"bfloat16": half, "float16": half, "tfloat32": tensor, "float32": single}[dtype]
        return None if value is None else value * 1e12
    return None


def device_peak_flops(device: torch.device, dtype: str = "bfloat16", override: float | None = None) -> float | None:
    """`override` where it is given, else the peak of this device; None for a CPU and for what is not known."""
    if override is not None:
        return override
    if device.type != "cuda":
        return None
    return peak_flops(torch.cuda.get_device_name(device), dtype)
