"""Peaks by the names that drivers give."""

from __future__ import annotations

import pytest
import torch

from training.watch.peak_flops import device_peak_flops, peak_flops


@pytest.mark.parametrize(
    ("name", "dtype", "tera"),
    [
        ("NVIDIA A100-SXM4-80GB", "bfloat16", 312),
        ("NVIDIA A100-SXM4-80GB", "tfloat32", 156),
        ("NVIDIA A100 80GB PCIe", "float32", 19.5),
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.4),
        ("NVIDIA H100 PCIe", "bfloat16", 756),
        ("NVIDIA H100 NVL", "bfloat16", 835.5),
        ("NVIDIA H200", "bfloat16", 989.4),
        ("NVIDIA H20", "bfloat16", 148),
        ("NVIDIA B200", "bfloat16", 2250),
        ("NVIDIA A10G", "bfloat16", 70),
        ("NVIDIA A10", "float16", 125),
        ("NVIDIA L4", "bfloat16", 121),
        ("NVIDIA L40", "bfloat16", 181),
        ("NVIDIA L40S", "bfloat16", 362),
        ("NVIDIA GeForce RTX 4090", "bfloat16", 165.2),
        ("NVIDIA RTX A6000", "bfloat16", 154.8),
        ("NVIDIA RTX 6000 Ada Generation", "bfloat16", 364.2),
        ("Tesla V100-SXM2-16GB", "float16", 125),
        ("Tesla V100-PCIE-32GB", "float16", 112),
        ("Tesla T4", "float16", 65),
    ],
)
def test_known_devices(name: str, dtype: str, tera: float) -> None:
    assert peak_flops(name, dtype) == pytest.approx(tera * 1e12)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("NVIDIA GeForce GTX 1080", "bfloat16"),
        ("NVIDIA GB200", "bfloat16"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "bfloat16"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bfloat16"),
        ("Tesla V100-SXM2-16GB", "bfloat16"),
        ("Tesla V100-SXM2-16GB", "tfloat32"),
        ("NVIDIA A1000", "bfloat16"),
        ("", "bfloat16"),
    ],
)
def test_no_peak_rather_than_a_wrong_one(name: str, dtype: str) -> None:
    assert peak_flops(name, dtype) is None


def test_of_a_device() -> None:
    assert device_peak_flops(torch.device("cpu")) is None
    assert device_peak_flops(torch.device("cpu"), override=1e11) == 1e11
    with pytest.raises(ValueError, match="dtype is 'int8'; allowed are"):
        peak_flops("NVIDIA L4", "int8")
