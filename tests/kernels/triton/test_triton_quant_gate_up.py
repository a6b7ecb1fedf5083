"""Gate and up of quantized weights in one launch, against float64 and the two operations that it
stands for."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

pytest.importorskip("triton")

from jackfield.core.api.kernel import OpSpec
from jackfield.core.api.quant import QuantKind, QuantWeight
from jackfield.plugins.kernels.triton import quant_matmul_silu_mul as module
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.quant_matmul import tiles_of
from jackfield.plugins.kernels.triton.quant_matmul_silu_mul import TritonQuantMatmulSiluMul
from jackfield.plugins.kernels.triton.silu_mul import TritonSiluMul

# Triton's interpreter makes scalars of arrays.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

TOLERANCES = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3.2e-2}
PAIRS = {"TILES": 2, "PARTS": 2, "BLOCKS": 1, "ROWS": 64, "SPLITS": 1, "AHEAD": 0}
PAIRS |= {"num_warps": 2, "num_stages": 1}
APART = {**PAIRS, "TILES": 1, "num_warps": 4}
SPLIT = {**PAIRS, "PARTS": 1, "ROWS": 8, "SPLITS": 3, "num_warps": 1}
WIDE = {**PAIRS, "BLOCKS": 2, "SPLITS": 2, "ROWS": 16, "num_warps": 4}
FOUR = {**APART, "PARTS": 1, "SPLITS": 2, "num_warps": 4}
ENTRIES = [PAIRS, APART, SPLIT, WIDE, FOUR]
ROWS = [1, 3, 20]
INT4, INT8, FP8 = QuantKind.INT4, QuantKind.INT8, QuantKind.FP8
WEIGHTS: dict[str, tuple[QuantKind, int, int, dict[str, Any]]] = {
    # kind, width, inputs
    "int4 of 128": (INT4, 48, 512, {"group": 128}),
    "int4 of 128 with zeros": (INT4, 48, 384, {"group": 128, "zeros": True}),
    "int4 of 32 with zeros": (INT4, 16, 160, {"group": 32, "zeros": True}),
    "int4 of 32": (INT4, 32, 160, {"group": 32}),
    "int4 that ends early": (INT4, 48, 202, {"group": 128, "zeros": True}),
    "int4 in order": (INT4, 16, 256, {"group": 64, "zeros": True, "ordered": True}),
    "int4 of all": (INT4, 32, 330, {}),
    "int4 of all with zeros": (INT4, 80, 330, {"zeros": True}),
    "int8 of all": (INT8, 48, 200, {}),
    "int8 of 128 with zeros": (INT8, 16, 256, {"group": 128, "zeros": True}),
    "int8 of 32": (INT8, 32, 96, {"group": 32}),
    "fp8 by output": (FP8, 48, 200, {}),
    "fp8 in odd blocks": (FP8, 48, 192, {"group": 64, "rows": 5}),
    "fp8 in blocks": (FP8, 128, 160, {"group": 128, "rows": 128}),
}


@pytest.fixture(scope="session")
def products(beside: Callable[[str], ModuleType]) -> ModuleType:
    """The tests of plain products."""
    return beside("test_triton_quant")


def truth(x: Tensor, weight: QuantWeight, bias: Tensor | None) -> Tensor:
    columns = x if weight.order_I is None else x[:, weight.order_I]
    both = columns.double() @ weight.dequantized(torch.float32).double().t()
    gate, up = (both if bias is None else both + bias.double()).chunk(2, dim=1)
    return silu(gate) * up


def operation(products: ModuleType, config: Any, entry: Any) -> TritonQuantMatmulSiluMul:
    """Both ways take the same entry."""
    made = TritonQuantMatmulSiluMul(config)
    made._configs = products.Fixed(entry)
    made._multiply = products.operation(config, entry)
    return made


def check(made: TritonQuantMatmulSiluMul, x: Tensor, weight: QuantWeight, bias: Any) -> Tensor:
    """What came out, which has the bits of what the two operations make of the same entry."""
    packed = made._multiply.pack(weight, bias)
    in_two = TritonSiluMul(made._config)(made._multiply(x, packed))
    for _ in range(2):  # what the first call leaves behind must not disturb the second
        out = made(x, packed)
        assert out.dtype is x.dtype and out.shape == (x.shape[0], weight.shape[0] // 2)
        tolerance = TOLERANCES[x.dtype]
        wanted = truth(x, weight, bias)
        torch.testing.assert_close(out.double(), wanted, atol=tolerance, rtol=tolerance)
        assert torch.equal(out, in_two)
    assert not packed.counters.any()
    return out


@pytest.fixture
def in_one(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Notes what was launched for gate and up together: the shapes of what comes out."""
    launched: list[tuple[int, ...]] = []
    multiply = module.multiply_tiles

    def noted(x: Tensor, packed: Any, out: Tensor, config: Any, apart: int) -> None:
        launched.append(tuple(out.shape))
        multiply(x, packed, out, config, apart)

    monkeypatch.setattr(module, "multiply_tiles", noted)
    return launched


@pytest.mark.few_combinations
@pytest.mark.parametrize("shift", range(2))
@pytest.mark.parametrize("case", WEIGHTS)
def test_few_rows(
    config: Any, dtype: torch.dtype, case: str, shift: int, products: ModuleType, in_one: Any
) -> None:
    place = list(WEIGHTS).index(case) + shift
    rows, entry = ROWS[place % len(ROWS)], ENTRIES[place % len(ENTRIES)]
    kind, width, inputs, options = WEIGHTS[case]
    weight = products.quantized(kind, 2 * width, inputs, **options)
    bias = torch.randn(2 * width, dtype=dtype) if place % 2 else None
    made = operation(products, config, entry)
    check(made, torch.randn(rows, inputs, dtype=dtype), weight, bias)
    assert in_one == [(rows, width)] * 2


@pytest.mark.few_combinations
@pytest.mark.parametrize("entry", ENTRIES, ids=["pairs", "apart", "split", "wide", "four"])
def test_every_way_to_divide(
    config: Any, dtype: torch.dtype, entry: Any, products: ModuleType, in_one: Any
) -> None:
    weight = products.quantized(INT4, 96, 640, group=128, zeros=True)
    made, bias = operation(products, config, entry), torch.randn(96, dtype=dtype)
    check(made, torch.randn(9, 640, dtype=dtype), weight, bias)
    assert in_one == [(9, 48)] * 2


@pytest.mark.few_combinations
@pytest.mark.parametrize(
    ("width", "inputs", "group", "rows"), [(20, 256, 128, 3), (8, 96, 32, 1), (16, 144, 48, 3)]
)
def test_what_tiles_do_not_fit_takes_two_steps(
    config: Any,
    dtype: torch.dtype,
    width: int,
    inputs: int,
    group: int,
    rows: int,
    products: ModuleType,
    in_one: Any,
) -> None:
    weight = products.quantized(INT4, 2 * width, inputs, group=group, zeros=True)
    bias = torch.randn(2 * width, dtype=dtype)
    check(operation(products, config, PAIRS), torch.randn(rows, inputs, dtype=dtype), weight, bias)
    assert in_one == []


@pytest.mark.few_combinations
@pytest.mark.parametrize("kind", [INT4, INT8, FP8])
def test_more_rows_than_the_table_has_take_two_steps(
    config: Any, dtype: torch.dtype, kind: QuantKind, products: ModuleType, in_one: Any
) -> None:
    made = TritonQuantMatmulSiluMul(config)
    weight = products.quantized(kind, 64, 128, group=64)
    check(made, torch.randn(70, 128, dtype=dtype), weight, None)
    assert in_one == []
    made(torch.randn(64, 128, dtype=dtype), made._multiply.pack(weight, None))
    assert in_one == ([] if dtype is torch.float32 else [(64, 32)])


@pytest.mark.few_combinations
@pytest.mark.parametrize("entry", [PAIRS, APART])
def test_nothing_but_the_rows_and_inputs_is_read(
    config: Any, dtype: torch.dtype, entry: Any, products: ModuleType
) -> None:
    weight = products.quantized(INT4, 96, 202, group=64, zeros=True)
    around = torch.full((6, 400), torch.nan, dtype=dtype)
    around[:3, 8:210] = torch.randn(3, 202, dtype=dtype)
    made = operation(products, config, entry)
    rows = check(made, around[:3, 8:210], weight, None)
    turned = around[:3, 8:210].t().contiguous().t()
    assert torch.equal(check(made, turned, weight, None), rows)


def test_no_rows(config: Any, dtype: torch.dtype, products: ModuleType) -> None:
    made = TritonQuantMatmulSiluMul(config)
    packed = made._multiply.pack(products.quantized(INT8, 64, 64), None)
    assert made(torch.zeros(0, 64, dtype=dtype), packed).shape == (0, 32)


def test_it_serves_and_may_be_captured(config: Any, dtype: torch.dtype, device: Any) -> None:
    made = TritonQuantMatmulSiluMul(config)
    assert made.unsupported(OpSpec(dtype, 64, 16, 100), device) == []
    assert made.capturable()


def test_an_empty_entry_leaves_it_to_two_launches(
    config: Any, products: ModuleType, in_one: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a newer architecture stands before an older one's."""
    assert Configs("quant_gate_up").look_up("4_1_24576_4096", "any", "sm_90") == {}
    made = TritonQuantMatmulSiluMul(config)
    monkeypatch.setattr(made._configs._configs, "find", lambda *asked: {})
    weight = products.quantized(INT4, 64, 128, group=128, zeros=True)
    check(made, torch.randn(1, 128, dtype=torch.float16), weight, None)
    assert in_one == []


def test_the_table_gives_gate_and_up_as_many_tiles() -> None:
    """Also where a warp has one because of its scales."""
    forms = {"4": [(0, 128), (128, 128)], "4s": [(32, 128)], "8": [(0, 64), (32, 64), (128, 64)]}
    entries = list(Configs("quant_gate_up").entries())
    for entry in filter(lambda entry: entry.config, entries):
        label, rows, *_ = entry.shape.split("_")
        abreast = entry.config["num_warps"] // entry.config["PARTS"]
        height = min(max(int(rows), 8), entry.config["ROWS"])
        for group, inputs in forms[label]:
            assert tiles_of(group, inputs, height, entry.config) * abreast % 2 == 0, entry
    plain = {(e.shape.rsplit("_", 2)[0], e.architecture) for e in Configs("quant").entries()}
    assert {(e.shape.rsplit("_", 2)[0], e.architecture) for e in entries} == plain
