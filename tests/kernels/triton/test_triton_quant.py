"""Products with quantized weights against float64, at shapes that no block divides."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from jackfield.core.api.kernel import OpSpec
from jackfield.core.api.quant import QuantKind, QuantWeight
from jackfield.plugins.kernels.triton import configs as tables
from jackfield.plugins.kernels.triton import quant_matmul as module
from jackfield.plugins.kernels.triton.quant_matmul import QuantConfigs, TritonQuantMatmul
from jackfield.plugins.kernels.triton.quant_pack import PackedQuant

# Triton's interpreter makes scalars of arrays.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
CPU = torch.device("cpu")
NARROW = {"TILES": 1, "PARTS": 2, "BLOCKS": 1, "ROWS": 64, "SPLITS": 1, "AHEAD": 0}
NARROW |= {"num_warps": 2, "num_stages": 1}
SPLIT = {**NARROW, "TILES": 2, "PARTS": 1, "ROWS": 32, "SPLITS": 3, "num_warps": 1}
WIDE = {**NARROW, "TILES": 2, "BLOCKS": 2, "SPLITS": 2, "num_warps": 4}
ENTRIES = [NARROW, SPLIT, WIDE]
ROWS = [1, 2, 16, 17, 64]
INT4, INT8, FP8 = QuantKind.INT4, QuantKind.INT8, QuantKind.FP8


class Fixed:
    """A table with one entry."""

    def __init__(self, config: dict[str, int] | None) -> None:
        self.config = config

    def find(self, rows: int, packed: PackedQuant, dtype: torch.dtype) -> dict[str, int] | None:
        if self.config and dtype is torch.float32 and torch.cuda.is_available():
            pytest.skip("on a GPU, float32 is left to plain matrices")
        return self.config


def quantized(
    kind: QuantKind,
    outputs: int,
    inputs: int,
    group: int = 0,
    rows: int = 1,
    zeros: bool = False,
    ordered: bool = False,
) -> QuantWeight:
    """group: 0 = all inputs."""
    group = group or inputs
    table = (-(-outputs // rows), -(-inputs // group))
    columns = inputs // 2 if kind is INT4 else inputs
    values = torch.randint(0, 256, (outputs, columns), dtype=torch.uint8)
    if kind is FP8:
        values[(values & 127) == 127] = 3  # those are no numbers
        values = values.view(torch.float8_e4m3fn)
    size = {INT4: 8, INT8: 128, FP8: 150}[kind] * inputs**0.5
    scales = (torch.rand(table) + 0.5) / size
    most = 2 * kind.middle
    points = torch.randint(0, most, table, dtype=torch.uint8) if zeros else None
    order_I = torch.randperm(inputs) if ordered else None
    return QuantWeight(kind, values, scales, points, group, rows, (outputs, inputs), order_I)


def operation(config: Any, entry: dict[str, int] | None) -> TritonQuantMatmul:
    made = TritonQuantMatmul(config)
    made._configs = Fixed(entry)  # type: ignore[assignment]
    return made


def check(made: TritonQuantMatmul, x: Tensor, weight: QuantWeight, bias: Tensor | None) -> None:
    columns = x if weight.order_I is None else x[:, weight.order_I]
    want = columns.double() @ weight.dequantized(torch.float32).double().t()
    want = want if bias is None else want + bias.double()
    packed = made.pack(weight, bias)
    shared = (made._configs.config or {}).get("SPLITS", 1) > 1  # type: ignore[attr-defined]
    for _ in range(1 + shared):  # what the first call leaves behind must not disturb the second
        out = made(x, packed)
        assert out.dtype is x.dtype
        tolerance = TOLERANCES[x.dtype]
        torch.testing.assert_close(out.double(), want, atol=tolerance, rtol=tolerance)
    assert not packed.counters.any()


WEIGHTS = {
    "int4 of 128": (INT4, 40, 512, {"group": 128}),
    "int4 of 128 with zeros": (INT4, 40, 512, {"group": 128, "zeros": True}),
    "int4 of 64 with zeros": (INT4, 33, 320, {"group": 64, "zeros": True}),
    "int4 of 32 with zeros": (INT4, 16, 160, {"group": 32, "zeros": True}),
    "int4 of 32": (INT4, 40, 160, {"group": 32}),
    "int4 of 96 with zeros": (INT4, 35, 200, {"group": 96, "zeros": True}),
    "int4 that ends early": (INT4, 20, 202, {"group": 128, "zeros": True}),
    "int4 of 32 that ends early": (INT4, 20, 106, {"group": 32, "zeros": True}),
    "int4 in order": (INT4, 20, 256, {"group": 64, "zeros": True, "ordered": True}),
    "int4 of all": (INT4, 40, 330, {}),
    "int4 of all with zeros": (INT4, 40, 330, {"zeros": True}),
    "int8 of all": (INT8, 35, 200, {}),
    "int8 of all with zeros": (INT8, 35, 200, {"zeros": True}),
    "int8 of 128 with zeros": (INT8, 20, 256, {"group": 128, "zeros": True}),
    "int8 of 32": (INT8, 20, 96, {"group": 32, "ordered": True}),
    "fp8 by output": (FP8, 37, 200, {}),
    "fp8 in odd blocks": (FP8, 37, 192, {"group": 64, "rows": 5}),
    "fp8 in blocks": (FP8, 140, 160, {"group": 128, "rows": 128}),
}
PLAIN = {
    **WEIGHTS,
    "int8 of 16": (INT8, 20, 80, {"group": 16, "zeros": True}),
    "int4 of 48": (INT4, 20, 144, {"group": 48, "zeros": True}),
}
"""Those and others, whose groups are no multiples of 32."""


def weight_of(case: str) -> QuantWeight:
    kind, outputs, inputs, options = PLAIN[case]
    return quantized(kind, outputs, inputs, **options)


@pytest.fixture
def only_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> Tensor:
        raise AssertionError("made a plain matrix")

    monkeypatch.setattr(module, "dense", refuse)


@pytest.mark.few_combinations
@pytest.mark.usefixtures("only_kernels")
@pytest.mark.parametrize("shift", range(2))
@pytest.mark.parametrize("case", WEIGHTS)
def test_few_rows(config: Any, dtype: torch.dtype, case: str, shift: int) -> None:
    place = list(WEIGHTS).index(case) + shift
    rows, entry = ROWS[place % len(ROWS)], ENTRIES[place % len(ENTRIES)]
    weight = weight_of(case)
    x = torch.randn(rows, weight.shape[1], dtype=dtype)
    bias = torch.randn(weight.shape[0], dtype=dtype) if rows % 2 else None
    check(operation(config, entry), x, weight, bias)


@pytest.mark.few_combinations
@pytest.mark.parametrize("at_once", [6000, 1 << 20])
@pytest.mark.parametrize("case", list(WEIGHTS)[1::6])
def test_more_rows(
    config: Any, dtype: torch.dtype, case: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DENSE_ELEMENTS", at_once)
    weight = weight_of(case)
    x = torch.randn(65, weight.shape[1], dtype=dtype)
    bias = torch.randn(weight.shape[0], dtype=dtype) if "zeros" in case else None
    check(operation(config, None), x, weight, bias)


@pytest.mark.few_combinations
@pytest.mark.parametrize("case", PLAIN)
def test_a_plain_matrix_is_what_the_weight_stands_for(
    config: Any, dtype: torch.dtype, case: str
) -> None:
    weight = weight_of(case)
    packed = TritonQuantMatmul(config).pack(weight, None)
    first = 16 if weight.shape[0] > 20 else 0
    found = module.dense(packed, first, weight.shape[0] - 2, dtype)
    assert torch.equal(found, weight.dequantized(dtype)[first:-2])


@pytest.mark.few_combinations
@pytest.mark.parametrize(("group", "inputs"), [(48, 144), (20, 80), (6, 64)])
def test_groups_that_products_do_not_fit_become_plain(
    config: Any, dtype: torch.dtype, group: int, inputs: int
) -> None:
    weight = quantized(INT4, 20, inputs, group=group, zeros=True)
    check(operation(config, NARROW), torch.randn(3, inputs, dtype=dtype), weight, None)


@pytest.mark.few_combinations
@pytest.mark.usefixtures("only_kernels")
@pytest.mark.parametrize("entry", [NARROW, SPLIT])
def test_nothing_but_the_rows_and_inputs_is_read(
    config: Any, dtype: torch.dtype, entry: Any
) -> None:
    weight = quantized(INT4, 20, 202, group=64, zeros=True)
    around = torch.full((6, 400), torch.nan, dtype=dtype)
    around[:3, 8:210] = torch.randn(3, 202, dtype=dtype)
    check(operation(config, entry), around[:3, 8:210], weight, None)
    check(operation(config, entry), around[:3, 8:210].t().contiguous().t(), weight, None)


@pytest.mark.few_combinations
@pytest.mark.usefixtures("only_kernels")
@pytest.mark.parametrize("entry", [NARROW, SPLIT])
def test_a_row_does_not_depend_on_the_others(config: Any, dtype: torch.dtype, entry: Any) -> None:
    weight = quantized(INT4, 20, 256, group=32, zeros=True)
    made = operation(config, entry)
    packed = made.pack(weight, None)
    x = torch.randn(4, 256, dtype=dtype)
    three = made(x[1:], packed)
    assert torch.equal(made(x, packed)[1:], three)
    x[1] = torch.nan
    assert torch.equal(made(x[1:], packed)[1:], three[1:])


@pytest.mark.few_combinations
@pytest.mark.usefixtures("only_kernels")
def test_scales_of_every_type(config: Any, dtype: torch.dtype) -> None:
    weight = quantized(INT4, 20, 128, group=64)
    for kind in (torch.float16, torch.bfloat16, torch.float32):
        if kind is torch.bfloat16 and not torch.cuda.is_available():
            continue  # the interpreter gets it wrong
        scaled = replace(weight, scales_RG=weight.scales_RG.to(kind))
        check(operation(config, NARROW), torch.randn(2, 128, dtype=dtype), scaled, None)


def test_packed_weights_are_no_larger(config: Any) -> None:
    made = TritonQuantMatmul(config)
    for kind in QuantKind:
        weight = quantized(kind, 64, 256, group=64)
        packed = made.pack(weight, None)
        assert packed.words.nbytes == weight.values.nbytes
        assert packed.scales_GR.nbytes == weight.scales_RG.nbytes


def test_no_rows(config: Any, dtype: torch.dtype) -> None:
    made = TritonQuantMatmul(config)
    packed = made.pack(quantized(INT8, 20, 64), None)
    assert made(torch.zeros(0, 64, dtype=dtype), packed).shape == (0, 20)


def test_it_serves_and_may_be_captured(config: Any, dtype: torch.dtype, device: Any) -> None:
    made = TritonQuantMatmul(config)
    assert made.unsupported(OpSpec(dtype, 64, 16, 100), device) == []
    assert made.capturable()


@pytest.fixture
def table(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> QuantConfigs:
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    (tmp_path / "quant.json").write_text(
        """{
        "4_1_64_64": {"any": {"sm_80": {"PARTS": 7}}},
        "4_8_64_64": {"any": {"sm_80": {"PARTS": 1}}},
        "8_8_64_64": {"any": {"sm_80": {"PARTS": 2}}},
        "4_16_64_64": {"any": {"sm_80": {"PARTS": 3}}},
        "4_32_64_64": {"any": {"sm_90": {"PARTS": 4}}},
        "4_8_4096_64": {"any": {"sm_80": {"PARTS": 5}}},
        "4s_8_64_64": {"any": {"sm_80": {"PARTS": 6}}}
        }"""
    )
    monkeypatch.setattr(tables, "architecture", lambda device: "sm_80")
    return QuantConfigs()


@pytest.mark.parametrize(
    ("kind", "rows", "shape", "parts"),
    [
        (INT4, 1, (64, 64), 7),
        (INT4, 2, (64, 64), 1),
        (INT4, 8, (70, 50), 1),
        (INT8, 2, (64, 64), 2),
        (FP8, 2, (64, 64), 2),
        (INT4, 9, (64, 64), 3),
        (INT4, 17, (64, 64), None),
        (INT4, 33, (64, 64), None),
        (INT4, 3, (5000, 64), 5),
        (INT8, 1, (5000, 64), None),
    ],
)
def test_the_nearest_shape_decides(
    table: QuantConfigs, kind: QuantKind, rows: int, shape: tuple[int, int], parts: int | None
) -> None:
    packed = TritonQuantMatmul(module.TritonConfig()).pack(quantized(kind, *shape), None)
    for _ in range(2):
        found = table.find(rows, packed, torch.float16)
        assert (found and found["PARTS"]) == parts
    assert table.find(rows, packed, torch.float32) is None


@pytest.mark.parametrize(("group", "parts"), [(0, 1), (128, 1), (64, 6), (32, 6)])
def test_a_block_with_several_scales_is_another_class(
    table: QuantConfigs, group: int, parts: int
) -> None:
    weight = quantized(INT4, 64, 256, group)
    packed = TritonQuantMatmul(module.TritonConfig()).pack(weight, None)
    found = table.find(4, packed, torch.float16)
    assert found is not None and found["PARTS"] == parts
