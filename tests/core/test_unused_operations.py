"""What cannot be captured only keeps models from CUDA graphs that call it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from jackfield.core.api import OPERATIONS, OpSpec
from jackfield.core.engine.operations import Table, uncapturable
from jackfield.core.executors.loading import graph_notices, unused
from jackfield.plugins.models.llama import Llama
from jackfield.plugins.models.mixtral import Mixtral

CONFIG: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "rope_theta": 1e4, "num_local_experts": 4, "num_experts_per_tok": 2,
}  # fmt: skip
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
QUANTIZED = {"quant_matmul", "quant_experts", "quant_matmul_silu_mul"}


class Serves:
    def __init__(self, able: bool) -> None:
        self._able = able

    def unsupported(self, spec: OpSpec, device: torch.device) -> list[str]:
        return []

    def capturable(self, *limits: int) -> bool:
        return self._able


def table(*unable: str) -> Table:
    operations: Any = SimpleNamespace(**{name: Serves(name not in unable) for name in OPERATIONS})
    return Table(operations, dict.fromkeys(OPERATIONS, "some"), [], {})


def asked(model: Any, **changes: Any) -> frozenset[str]:
    config = {**CONFIG, **changes}
    folder = SimpleNamespace(config=config)
    order: Any = SimpleNamespace(spec=model.describe(config), folder=folder)
    return unused(order)


@pytest.mark.parametrize(
    ("model", "changes", "expected"),
    [
        (Llama, {}, {"experts", "route", *QUANTIZED}),
        (Mixtral, {}, QUANTIZED),
        (Llama, {"quantization_config": AWQ}, {"experts", "route", "quant_experts"}),
        (Mixtral, {"quantization_config": AWQ}, set()),
    ],
)
def test_what_a_model_never_calls(model: Any, changes: Any, expected: set[str]) -> None:
    assert asked(model, **changes) == expected


def test_only_what_is_called_counts() -> None:
    unable = table("experts", "quant_matmul")
    assert uncapturable(unable, 4, 100) == {"experts", "quant_matmul"}
    assert uncapturable(unable, 4, 100, asked(Mixtral)) == {"experts"}
    eager = uncapturable(unable, 4, 100, asked(Llama))
    assert eager == frozenset()
    assert graph_notices(unable, eager, torch.device("cuda")) == ()
    assert uncapturable(table("attention"), 4, 100, asked(Llama)) == {"attention"}


def test_a_step_cannot_be_captured_without_inputs_from_the_device() -> None:
    able = table()
    owners = {name: owner for name, owner in able.owners.items() if name != "step_inputs"}
    assert uncapturable(able._replace(owners=owners), 4, 100) == {"step_inputs"}
