"""What quantized experts take of memory, while they are loaded and after, and what is said."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from jackfield.core.api import Operations, PolicyConfig, QuantWeight, Shard
from jackfield.core.checkpoint.dummy_quant_weights import made_up_weights
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.checkpoint.quant_plan import read_quant_plan
from jackfield.core.checkpoint.quantized_weights import PlannedWeights
from jackfield.core.checkpoint.safetensors_weights import SafetensorsWeights
from jackfield.core.checkpoint.tensor_files import find_tensor_files
from jackfield.core.doctor.examine import Report, examine
from jackfield.core.host.sources import load_config
from jackfield.plugins.kernels.torch_ops import TorchKernels
from jackfield.plugins.kernels.torch_ops.quant_experts import TorchQuantExperts

Make = Callable[..., Any]
CPU = torch.device("cpu")
WIDTH = 256
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20}


def operations() -> Operations:
    return Operations(**TorchKernels(PolicyConfig()).operations())


def load(made: Any, folder: Path) -> Any:
    plan = read_quant_plan({"quantization_config": made.quantization})
    assert plan is not None
    files = find_tensor_files(folder)
    with SafetensorsWeights(files, torch.float32, CPU, Shard(), SilentProgress()) as stored:
        weights = PlannedWeights(stored, plan)
        model = made.model_class(made.config, operations(), Shard(), weights)
        weights.finish()
    return model


def measured(made: Any, folder: Path) -> tuple[int, int]:
    """Bytes that are held when the model is there, and at most until then, maps of the file not
    counted."""
    mapped = (folder / "model.safetensors").stat().st_size
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        model = load(made, folder)
    events = [e for e in watched.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes() if abs(event.nbytes()) != mapped else 0
        most = max(most, held)
    assert model is not None
    return held, most


def stored_bytes(made: Any) -> int:
    return sum(tensor.nbytes for tensor in made.stored.values())


@pytest.mark.parametrize("recipe", ["awq 32", "gptq order", "fp8 block", "int8"])
def test_loading_holds_one_expert_beside_what_is_kept(
    recipe: str, mixture: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many experts there are."""
    monkeypatch.delattr(QuantWeight, "dequantized")
    beside = []
    for count in (3, 12):
        made = mixture("mixtral", recipe, width=WIDTH, num_local_experts=count)
        held, most = measured(made, made.write(tmp_path / str(count)))
        assert held < 1.1 * stored_bytes(made) + 2**16
        beside.append(most - held)
    one = 3 * WIDTH * 128
    assert beside[1] < beside[0] + one, "in bytes of one expert of 8 bits"


def test_one_expert_comes_after_the_other(
    mixture: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who keeps none of them holds one, however many there are."""

    def drop(self: TorchQuantExperts, experts: Any, count: int) -> int:
        return sum(1 for _ in experts)

    monkeypatch.setattr(TorchQuantExperts, "pack", drop)
    found = []
    for count in (3, 12):
        made = mixture("mixtral", "int8", width=WIDTH, num_local_experts=count)
        found.append(measured(made, made.write(tmp_path / str(count)))[1])
    assert found[1] < found[0] + 3 * WIDTH * 128


def report(folder: Path, **settings: Any) -> str:
    found: Report = examine(
        load_config(flags={
            "model.name": str(folder), "model.skip_tokenizer_init": True, "engine.device": "cpu",
            "kernel.stack": ["torch"], "engine.max_num_seqs": 2, **settings,
        }),
        2**30, SilentProgress(),
    )  # fmt: skip
    assert not found.has_problem, found
    return " / ".join(f"{one.severity.value} {one.subject}: {one.text}" for one in found.findings)


def weights_told(text: str) -> float:
    found = re.search(r"Weights take ([\d.,]+) (\w+)", text)
    assert found is not None, text
    return float(found[1].replace(",", "")) * UNITS[found[2]]


@pytest.mark.parametrize("recipe", ["awq 32", "gptq 32", "fp8 block", "int8 asym", "packed"])
def test_doctor_counts_them_as_they_are_stored(recipe: str, mixture: Make, tmp_path: Path) -> None:
    made = mixture("mixtral", recipe, width=WIDTH)
    text = report(made.write(tmp_path / "model"))
    assert "26 weights stay as they are stored, multiplied by 'torch'." in text
    assert weights_told(text) == pytest.approx(stored_bytes(made), rel=0.03)


def test_doctor_tells_where_nobody_takes_them(
    mixture: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = TorchKernels.operations

    def without(self: TorchKernels) -> dict[str, Any]:
        return {name: it for name, it in offered(self).items() if name != "quant_experts"}

    monkeypatch.setattr(TorchKernels, "operations", without)
    made = mixture("mixtral", "packed", width=WIDTH)
    text = report(made.write(tmp_path / "model"))
    assert "2 weights stay" in text
    assert "24 are dequantized when they are loaded; add 'torch' to kernel.stack." in text
    assert weights_told(text) > sum(tensor.nbytes for tensor in made.meant.values()) * 0.9


@pytest.mark.parametrize("recipe", ["awq 32", "gptq 32", "fp8 block", "int8"])
def test_made_up_experts_are_quantized_and_counted_so(
    recipe: str, mixture: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Doctor says what they take when they are made."""
    made = mixture("qwen3_moe", recipe, width=WIDTH)
    folder = made.write(tmp_path / "model")
    kept: list[Any] = []
    plain = TorchQuantExperts.pack

    def pack(self: TorchQuantExperts, experts: Any, count: int) -> Any:
        packed = plain(self, experts, count)
        kept.extend(packed)
        return packed

    monkeypatch.setattr(TorchQuantExperts, "pack", pack)
    plan = read_quant_plan({"quantization_config": made.quantization})
    weights = made_up_weights(torch.float32, CPU, Shard(), 0, plan)
    made.model_class(made.config, operations(), Shard(), weights)
    assert len(kept) == 2 * 5
    experts = sum(weight.nbytes for expert in kept for weight in expert)
    (folder / "model.safetensors").unlink()
    config = json.loads((folder / "config.json").read_text())
    told = weights_told(report(folder, **{"model.load_format": "dummy"}))
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    whole = weights_told(report(folder, **{"model.load_format": "dummy"}))
    values = 2 * 5 * 3 * WIDTH * 128
    assert experts < 1.3 * values
    assert told > experts
    assert whole - told > 0.9 * (4 * values - experts)


def test_experts_are_asked_of_the_operation_only_once(mixture: Make, tmp_path: Path) -> None:
    made = mixture("mixtral", "int8")
    folder = made.write(tmp_path / "model")
    without = replace(operations(), experts=None)
    plan = read_quant_plan({"quantization_config": made.quantization})
    assert plan is not None
    with SafetensorsWeights(
        find_tensor_files(folder), torch.float32, CPU, Shard(), SilentProgress()
    ) as stored:
        weights = PlannedWeights(stored, plan)
        made.model_class(made.config, without, Shard(), weights)
        weights.finish()
    assert weights.kept == 2 * (3 * 4 + 1) and not weights.dequantized
