"""`populace models`: what is there, and what it costs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pipeline.cli import main
from pipeline.models_command import group_keys
from training.models import list_models


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "list", "--json"]) == 0
    models = {model["name"]: model for model in json.loads(capsys.readouterr().out)}
    assert list(models) == list_models()
    large = models["sapiens2_1b_4k"]
    assert large["parameters"] == 1_606_588_928
    assert large["image_size"] == [4096, 3072]
    assert large["tokens"] == 3072
    assert large["forward_flops"] == 2 * large["forward_macs"]
    assert large["weights_file"] == "sapiens2_1b_4k_pretrain.safetensors"
    assert "Sapiens2 License" in large["licence_of_weights"]
    for model in models.values():
        assert 0 < model["activation_bytes_checkpointed"] <= model["activation_bytes"]


def test_list_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "list", "*_0.4b*"]) == 0
    output = capsys.readouterr().out
    for column in ("params", "tokens", "MACs", "FLOPs", "act. ckpt"):
        assert column in output
    rows = [line.split() for line in output.splitlines() if line.startswith("sapiens2")]
    assert [row[0] for row in rows] == list_models("*_0.4b*")
    assert rows[0][1:6] == ["395", "M", "1024x768", "3072", "1.68"]
    assert "none" in next(row for row in rows if row[0].endswith("_albedo"))


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "show", "sapiens2_0.4b_pointmap"]) == 0
    output = capsys.readouterr().out
    for text in (
        "PointmapHeadConfig",
        "528,675,364",
        "sapiens2_0.4b_pointmap.safetensors",
        "AdamW state",
        "backbone.blocks.*.ffn.w12.weight",
        "24 x [8192, 1024]",
        "decode_head.scale_final_layer.1.weight",
    ):
        assert text in output, text


def test_show_as_json_at_another_size_and_share(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "show", "tiny", "--json", "--image-size", "128", "96", "--keep", "0.25"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["image_size"] == [128, 96]
    assert (shown["tokens"], shown["visible_tokens"]) == (48, 12)
    assert shown["config"]["width"] == 192
    assert shown["head_config"] is None
    assert shown["adamw_state_bytes"] == 16 * shown["parameters"]
    assert sum(shown["macs"].values()) == shown["forward_macs"]
    assert {"name": "cls_token", "shape": [1, 1, 192], "count": 1} in shown["tensors"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "sapiens2_04b"], "did you mean 'sapiens2_0.4b'"),
        (["show", "tiny", "--image-size", "100", "100"], "multiples of 16"),
        (["show", "tiny", "--keep", "2"], "keep_ratio is 2.0"),
        (["show", "tiny_seg", "--keep", "0.5"], "head needs the whole feature map"),
        (["list", "nothing*"], "no model matches 'nothing*'; the models are sapiens2_0.1b"),
    ],
)
def test_errors(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert main(["models", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_command_line_is_built_without_torch() -> None:
    code = "import sys, pipeline.cli; pipeline.cli.build_parser(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_tensors_of_blocks_are_grouped_by_shape() -> None:
    shapes = {"blocks.0.w": (2,), "blocks.1.w": (2,), "blocks.2.w": (1,), "tokenizer.blocks.0.w": (2,), "end": (1,)}
    assert group_keys(shapes) == [
        ("blocks.*.w", (2,), 2),
        ("blocks.*.w", (1,), 1),
        ("tokenizer.blocks.*.w", (2,), 1),
        ("end", (1,), 1),
    ]
