"""Who serves the product for gate and up with the gate's function, and which models take it."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from jackfield.core.api import OPTIONAL_OPERATIONS, KernelPlugin, KvSpec, OpSpec, PolicyConfig
from jackfield.core.api.kernel import Operations
from jackfield.core.bench.model_outline import QUANTIZED, ModelOutline
from jackfield.core.bench.shapes import SHAPES
from jackfield.core.engine.operations import Table, bind, uncapturable
from jackfield.plugins.kernels.torch_ops import TorchKernels
from jackfield.plugins.models.blocks.gate_up import GateUp, QuantGateUp, make_gate_up
from jackfield.plugins.models.blocks.quant_linear import QuantProduct, SideBySide
from jackfield.plugins.models.qwen3 import Qwen3

NAME = "quant_matmul_silu_mul"
KV = KvSpec(4, 2, 16, torch.float32, 16)
PARTS = ("quant_matmul", "silu_mul")


class Stub:
    """Some operation."""

    def unsupported(self, spec: OpSpec, device: torch.device) -> list[str]:
        return []

    def capturable(self) -> bool:
        return True


class Plugin(KernelPlugin):
    def __init__(self, *names: str, beside: Any = None) -> None:
        super().__init__(PolicyConfig())
        self.offered = {name: Stub() for name in names} | (beside or {})

    def operations(self) -> Any:
        return self.offered


def torch_offers(*without: str) -> dict[str, Any]:
    offered = TorchKernels(PolicyConfig()).operations()
    return {name: each for name, each in offered.items() if name not in without}


def table(*plugins: KernelPlugin) -> Table:
    named = [(f"plugin {i}", plugin) for i, plugin in enumerate(plugins)]
    return bind(named, OpSpec(torch.float32, 64, 16, 100), [KV], torch.device("cpu"))


def test_it_is_bound_where_one_plugin_serves_all_of_it() -> None:
    plugin = Plugin(NAME, *PARTS)
    found = table(plugin, Plugin(beside=torch_offers()))
    assert found.operations.quant_matmul_silu_mul is plugin.offered[NAME]
    assert found.owners[NAME] == "plugin 0" and NAME not in uncapturable(found, 4, 64)


def test_nobody_must_provide_it() -> None:
    assert table(Plugin(beside=torch_offers())).operations.quant_matmul_silu_mul is None
    assert NAME in OPTIONAL_OPERATIONS


@pytest.mark.parametrize("other", PARTS)
def test_it_stands_for_nobody_elses_operation(other: str) -> None:
    found = table(Plugin(other), Plugin(NAME, beside=torch_offers()))
    assert found.operations.quant_matmul_silu_mul is None
    (passed,) = [each for each in found.passed if each.operation == NAME]
    assert passed.reasons == (f"'plugin 0' serves {other}, and it stands for that, too",)


def test_it_is_of_no_use_where_products_are_dequantized() -> None:
    found = table(Plugin(NAME, beside=torch_offers("quant_matmul")))
    assert found.operations.quant_matmul_silu_mul is None
    (passed,) = [each for each in found.passed if each.operation == NAME]
    assert passed.reasons == ("nobody serves quant_matmul, and it stands for that, too",)


@pytest.fixture
def ops() -> Operations:
    """Which say what they were given."""
    nothing: Any = None

    def joint(x: Tensor, packed: Any) -> Any:
        return "joint", packed

    def linear(x: Tensor, packed: Any) -> Any:
        return "linear", packed

    def gate(given: Any) -> Any:
        return "gate", *given

    serving: Any = dict.fromkeys(
        ("attention", "rms_norm", "add_rms_norm", "rope", "sample"), nothing
    )
    return Operations(silu_mul=gate, linear=linear, quant_matmul_silu_mul=joint, **serving)


def test_one_quantized_product_takes_it(ops: Operations) -> None:
    made = make_gate_up(QuantProduct("packed"), ops)
    assert isinstance(made, QuantGateUp)
    assert made(torch.empty(0)) == ("joint", "packed")  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("packed", ["plain", SideBySide((QuantProduct(1), QuantProduct(2)))])
def test_other_products_are_gated_by_themselves(ops: Operations, packed: Any) -> None:
    made = make_gate_up(packed, ops)
    assert isinstance(made, GateUp)
    assert made(torch.empty(0)) == ("gate", "linear", packed)  # type: ignore[comparison-overlap]


def test_so_is_one_product_where_nobody_serves_it(ops: Operations) -> None:
    without = replace(ops, quant_matmul_silu_mul=None)
    assert isinstance(make_gate_up(QuantProduct("packed"), without), GateUp)


def test_an_outline_knows_which_products_it_multiplies() -> None:
    def outline(shape: str, *served: str) -> ModelOutline:
        return ModelOutline.of(Qwen3, SHAPES[shape], torch.bfloat16, served=QUANTIZED.union(served))

    found, without = outline("qwen3-8b-awq", NAME), outline("qwen3-8b-awq")
    assert [one.title for one in found.gated] == ["gate_up"] * 36
    assert found.gates == without.gates == (12_288,)
    assert [one.key for one in found.products] == [one.key for one in without.products]
    assert without.gated == outline("qwen3-8b", NAME).gated == ()
