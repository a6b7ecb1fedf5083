"""What is told of quantized checkpoints by their headers is what loading would come upon."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.doctor.examine import Report, examine
from jackfield.core.host.sources import load_config

Make = Callable[..., Any]
WELL = (
    "awq 32", "awq -1", "gptq order asym", "gptq eight", "fp8 tensor", "fp8 channel", "fp8 block",
    "packed", "packed asym order", "packed eight", "int8 asym", "float tensor", "float block",
)  # fmt: skip
"""One of each set of tensors, and of each set of shapes."""
GATE = "model.layers.0.mlp.gate_proj"


def report(folder: Path, *kernels: str) -> Report:
    return examine(
        load_config(flags={
            "model.name": str(folder), "model.skip_tokenizer_init": True, "engine.device": "cpu",
            "kernel.stack": list(kernels) or ["torch"], "engine.max_num_seqs": 2,
        }),
        2**30, SilentProgress(),
    )  # fmt: skip


def texts(found: Report) -> str:
    return " / ".join(f"{one.severity.value} {one.subject}: {one.text}" for one in found.findings)


@pytest.mark.parametrize("recipe", WELL)
def test_nothing_is_wrong_with_any_format(
    recipe: str, checkpoint: Make, tmp_path: Path
) -> None:
    found = report(checkpoint(recipe).write(tmp_path / "model"))
    assert not found.has_problem, texts(found)
    assert "14 weights stay as they are stored, multiplied by 'torch'." in texts(found)


def change(made: Any, **tensors: Any) -> None:
    """Of the gate of the first layer: None = the tensor is not there."""
    for name, tensor in tensors.items():
        made.stored.pop(f"{GATE}.{name}", None)
        if tensor is not None:
            made.stored[f"{GATE}.{name}"] = tensor


BROKEN: Mapping[str, tuple[str, Callable[[Any], Any], str]] = {
    "scales missing": (
        "awq 32", lambda m: change(m, scales=None),
        f"lack '{GATE}.scales' of shape [4, 256] for awq int4 in groups of 32",
    ),
    "words missing": (
        "gptq 32", lambda m: change(m, qweight=None), f"lack '{GATE}.qweight' of shape [16, 256]",
    ),
    "order missing": (
        "packed asym order", lambda m: change(m, weight_g_idx=None), f"'{GATE}.weight_g_idx'",
    ),
    "surplus": (
        "awq 32", lambda m: change(m, g_idx=torch.zeros(128).int()),
        f"'{GATE}.g_idx' of shape [128] has no place",
    ),
    "words of another shape": (
        "gptq 32", lambda m: change(m, qweight=torch.zeros(8, 256).int()),
        f"'{GATE}.qweight' is [8, 256], but config.json makes it [16, 256]",
    ),
    "words of another type": (
        "gptq 32", lambda m: change(m, qweight=torch.zeros(16, 256)),
        f"'{GATE}.qweight' is F32, but config.json makes it I32 or I64",
    ),
    "other groups": (
        "awq 32", lambda m: m.quantization.update(group_size=64),
        "q_proj.qzeros' is [4, 16] (and 1 more by layer), but config.json makes it [2, 16]",
    ),
    "other blocks": (
        "fp8 block", lambda m: m.quantization.update(weight_block_size=[64, 64]),
        "weight_scale_inv' is [1, 1]",
    ),
    "left out": (
        "awq 32", lambda m: m.quantization.update(modules_to_not_convert=["gate_proj"]),
        f"tensor '{GATE}.weight' is quantized (and 1 more by layer), but config.json makes it "
        f"plain, since quantization_config leaves it out",
    ),
    "nothing quantized": (
        "gptq 32", lambda m: setattr(m, "stored", m.meant), "no weight is quantized",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_what_does_not_fit_is_named(case: str, checkpoint: Make, tmp_path: Path) -> None:
    recipe, spoil, words = BROKEN[case]
    made = checkpoint(recipe)
    spoil(made)
    found = report(made.write(tmp_path / "model"))
    assert found.has_problem and words in texts(found), texts(found)


def test_what_would_be_dequantized_takes_more(checkpoint: Make, tmp_path: Path) -> None:
    made = checkpoint("gptq 64")
    weight = made.stored.pop("lm_head.weight")
    tensors, _ = made.recipe.write(made.recipe, weight, "lm_head")
    made.stored |= {f"lm_head.{name}": tensor for name, tensor in tensors.items()}
    found = texts(report(made.write(tmp_path / "model")))
    assert "14 weights stay as they are stored, multiplied by 'torch', 1 are dequantized" in found
