"""What is held of a quantized checkpoint, and what is said of one that cannot be served."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield.core.api.errors import CheckpointError, JackfieldError, ModelError
from jackfield.core.api.quant import QuantWeight
from jackfield.core.checkpoint.quant_plan import read_quant_plan
from jackfield.core.checkpoint.quantized_weights import PlannedWeights
from jackfield.plugins.kernels.torch_ops.quant_matmul import TorchQuantMatmul

Make = Callable[..., Any]
GATE, QUERY = "model.layers.0.mlp.gate_proj", "model.layers.1.self_attn.q_proj"


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[QuantWeight]:
    """Every weight that reaches the product."""
    found: list[QuantWeight] = []
    plain = TorchQuantMatmul.pack

    def pack(self: TorchQuantMatmul, weight: QuantWeight, bias_O: Any) -> Any:
        found.append(weight)
        return plain(self, weight, bias_O)

    monkeypatch.setattr(TorchQuantMatmul, "pack", pack)
    return found


@pytest.mark.parametrize(
    ("recipe", "outputs"),
    [
        ("awq 32", [256, 128, 512, 128]),
        ("fp8 tensor", [256, 128, 512, 128]),
        ("fp8 block", [256, 128, 384, 128]),
        ("gptq order", [256, 128, 256, 256, 128]),
    ],
)
def test_products_of_one_input_are_merged_where_they_can_be(
    recipe: str, outputs: list[int], checkpoint: Make, build: Make, tmp_path: Path,
    packed: list[QuantWeight],
) -> None:  # fmt: skip
    build(checkpoint(recipe).write(tmp_path / "model"))
    assert [weight.shape[0] for weight in packed] == outputs * 2


def test_no_weight_is_ever_whole_in_floats(
    checkpoint: Make, build: Make, tmp_path: Path, packed: list[QuantWeight],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    made = checkpoint("gptq 128")
    monkeypatch.delattr(QuantWeight, "dequantized")
    opened = build(made.write(tmp_path / "model"))
    assert opened.weights.kept == 14 and opened.weights.dequantized == 0
    floats = sum(tensor.nbytes for name, tensor in made.meant.items() if "proj" in name)
    assert sum(weight.nbytes for weight in packed) < floats / 7
    for weight in packed:
        assert weight.values.untyped_storage().nbytes() == weight.values.nbytes


def test_who_does_not_know_of_quantized_weights_gets_floats(
    checkpoint: Make, build: Make, tmp_path: Path
) -> None:
    made = checkpoint("gptq order asym")
    opened = build(made.write(tmp_path / "model"))
    plan = read_quant_plan({"quantization_config": made.quantization})
    assert plan is not None
    weights = PlannedWeights(opened.stored, plan)
    meant = made.meant[f"{GATE}.weight"]
    assert weights.has(f"{GATE}.weight") and not weights.has(f"{GATE}.bias.weight")
    assert torch.equal(weights.take(f"{GATE}.weight", tuple(meant.shape)), meant)


def change(made: Any, **tensors: Any) -> None:
    """Of the gate of the first layer: None = the tensor is not there."""
    for name, tensor in tensors.items():
        made.stored.pop(f"{GATE}.{name}", None)
        if tensor is not None:
            made.stored[f"{GATE}.{name}"] = tensor


BROKEN: Mapping[str, tuple[str, Callable[[Any], Any], list[str]]] = {
    "scales missing": (
        "awq 32", lambda m: change(m, scales=None),
        ["model.safetensors", f"'{GATE}.scales'", "[4, 256]", "awq int4 in groups of 32"],
    ),
    "words missing": (
        "gptq 32", lambda m: change(m, qweight=None),
        ["model.safetensors", f"'{GATE}.qweight'", "[16, 256]"],
    ),
    "zero points missing": (
        "packed asym order", lambda m: change(m, weight_zero_point=None),
        [f"'{GATE}.weight_zero_point'", "[32, 2]", f"'{GATE}.weight_packed' of shape [256, 16]"],
    ),
    "order missing": (
        "packed asym order", lambda m: change(m, weight_g_idx=None),
        [f"'{GATE}.weight_g_idx'", "[128]"],
    ),
    "scale missing": (
        "fp8 block", lambda m: change(m, weight_scale_inv=None),
        [f"'{GATE}.weight_scale'", "[2, 1]", "blocks of 128x128"],
    ),
    "all missing": (
        "fp8 channel", lambda m: change(m, weight=None, weight_scale=None, input_scale=None),
        [f"lacks the tensor '{GATE}.weight'"],
    ),
    "surplus": (
        "awq 32", lambda m: change(m, g_idx=torch.zeros(128).int()),
        ["1 tensors", f"{GATE}.g_idx in", "model.safetensors"],
    ),
    "surplus bias": (
        "gptq 32", lambda m: change(m, bias=torch.ones(256)), [f"{GATE}.bias in"],
    ),
    "words of another shape": (
        "gptq 32", lambda m: change(m, qweight=torch.zeros(8, 256).int()),
        ["model.safetensors", f"'{GATE}.qweight'", "[8, 256]", "[16, 256]", "[256, 128]"],
    ),
    "words of another type": (
        "gptq 32", lambda m: change(m, qweight=torch.zeros(16, 256)),
        [f"'{GATE}.qweight'", "F32", "I32"],
    ),
    "stated shape": (
        "packed", lambda m: change(m, weight_shape=torch.tensor([256, 64])),
        [f"'{GATE}.weight_shape'", "[256, 64]", "[256, 128]"],
    ),
    "other groups": (
        "awq 32", lambda m: m.quantization.update(group_size=64),
        ["q_proj.qzeros", "[4, 16]", "[2, 16]", "groups of 64"],
    ),
    "other bits": (
        "gptq 32", lambda m: m.quantization.update(bits=8),
        ["qweight", "[16, 128]", "[32, 128]", "gptq int8"],
    ),
    "other blocks": (
        "fp8 block", lambda m: m.quantization.update(weight_block_size=[64, 64]),
        ["weight_scale_inv", "[1, 1]", "[2, 2]", "blocks of 64x64"],
    ),
    "other method": (
        "gptq 32", lambda m: m.quantization.update(quant_method="fp8"), ["q_proj.weight"],
    ),
    "not symmetric": (
        "gptq asym", lambda m: m.quantization.update(sym=True),
        ["q_proj.qzeros", "zero point", "symmetric", "each 8"],
    ),
    "left out": (
        "awq 32", lambda m: m.quantization.update(modules_to_not_convert=["gate_proj"]),
        [f"'{GATE}", "is quantized, but", "leaves"],
    ),
    "nothing quantized": (
        "fp8 channel", lambda m: m.stored.update(m.meant), ["have no place", "weight_scale in"],
    ),
    "uneven order": (
        "gptq order", lambda m: change(m, g_idx=torch.tensor([0] * 65 + [1, 2, 3] * 21).int()),
        ["model.safetensors", f"'{GATE}.g_idx'", "each group 32 inputs", "full groups"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_what_does_not_fit_is_named(
    case: str, checkpoint: Make, build: Make, tmp_path: Path
) -> None:
    recipe, spoil, parts = BROKEN[case]
    made = checkpoint(recipe)
    spoil(made)
    with pytest.raises(JackfieldError) as caught:
        build(made.write(tmp_path / "model"))
    assert isinstance(caught.value, CheckpointError)
    assert [part for part in parts if part not in str(caught.value)] == []
    assert not re.search(r"[a-z]\. [A-Z]", str(caught.value)), "one sentence"


def test_a_plain_checkpoint_that_says_it_is_quantized(
    checkpoint: Make, build: Make, tmp_path: Path
) -> None:
    made = checkpoint("awq 32")
    made.stored = made.meant
    with pytest.raises(CheckpointError, match=r"quantized \(awq\), but none"):
        build(made.write(tmp_path / "model"))


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}


def compressed(form: str = "pack-quantized", **weights: Any) -> dict[str, Any]:
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, **weights}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        ("awq", ["quantization_config is 'awq'", "mapping"]),
        ({}, ["quant_method is ''", "awq, compressed-tensors"]),
        ({"quant_method": "bitsandbytes"}, ["'bitsandbytes'", "gptq"]),
        ({"quant_method": "gptqq"}, ["'gptqq'", "Did you mean 'gptq'?"]),
        ({**AWQ, "bits": 3}, [".bits is 3", "expected 4"]),
        ({**AWQ, "version": "gemv"}, [".version is 'gemv'", "'gemm'"]),
        ({**AWQ, "zero_point": False}, [".zero_point is False", "True"]),
        ({**AWQ, "group_size": 0}, [".group_size is 0", "-1"]),
        ({"quant_method": "awq", "w_bit": 4}, [".group_size is None", "positive"]),
        ({**AWQ, "modules_to_not_convert": "lm_head"}, ["'lm_head'", "list"]),
        ({**GPTQ, "bits": 3}, [".bits is 3", "4 or 8"]),
        ({**GPTQ, "sym": 1}, [".sym is 1", "true or false"]),
        ({**GPTQ, "checkpoint_format": "marlin"}, ["'marlin'", "'gptq' or 'gptq_v2'"]),
        ({**GPTQ, "dynamic": {"+:.*": {"bits": 8}}}, [".dynamic", "'-:'"]),
        ({"quant_method": "fp8", "fmt": "e5m2"}, [".fmt is 'e5m2'", "'e4m3'"]),
        ({"quant_method": "fp8", "weight_block_size": [128]}, ["[128]", "[128, 128]"]),
        (compressed("marlin-24"), [".format is 'marlin-24'", "'pack-quantized'"]),
        (compressed(num_bits=3), ["group_0.weights.num_bits is 3", "4 or 8"]),
        (compressed("float-quantized", num_bits=8), [".type is 'int'", "'float'"]),
        (compressed(strategy="token"), [".strategy is 'token'", "'channel'"]),
        (compressed(actorder="some"), [".actorder is 'some'", "'weight'"]),
    ],
)  # fmt: skip
def test_what_is_not_served_is_named_with_what_is(config: Any, parts: list[str]) -> None:
    with pytest.raises(ModelError) as caught:
        read_quant_plan({"quantization_config": config})
    assert [part for part in ["config.json", *parts] if part not in str(caught.value)] == []


def test_names_and_patterns_of_modules() -> None:
    plan = read_quant_plan({"quantization_config": {**AWQ, "modules_to_not_convert": ["mlp.gate"]}})
    assert plan is not None
    assert plan.scheme("model.layers.0.mlp.gate") is None
    assert plan.scheme("model.layers.0.mlp.gate_proj") is not None
    config = compressed()
    config["config_groups"]["group_1"] = {
        "targets": ["re:.*down_proj$"],
        "weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
    }
    config["ignore"] = ["re:.*self_attn.*", "lm_head"]
    plan = read_quant_plan({"quantization_config": config})
    assert plan is not None and plan.scheme("lm_head") is None and plan.scheme(QUERY) is None
    kinds = [plan.scheme(f"model.layers.0.mlp.{name}_proj") for name in ("up", "down")]
    assert [kind and kind.text for kind in kinds] == [
        "compressed-tensors int4 in groups of 32", "compressed-tensors int8",
    ]  # fmt: skip
    assert read_quant_plan({"quantization_config": None}) is None
