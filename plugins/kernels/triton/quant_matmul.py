"""Products with weights of few bits: of few rows by a kernel that reads them as they are packed, of
more by cuBLAS, after a kernel has made a plain matrix of them."""

from math import gcd, log2
from typing import Any

import torch
import triton
from torch import Tensor
from torch.nn.functional import linear

from jackfield.core.api.quant import QuantKind, QuantWeight
from jackfield.plugins.kernels.triton.attention_step import exact
from jackfield.plugins.kernels.triton.configs import Config, Configs
from jackfield.plugins.kernels.triton.early import early
from jackfield.plugins.kernels.triton.encode import knows_e4m3
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.quant_dense_kernel import quant_dense_kernel
from jackfield.plugins.kernels.triton.quant_kernel import quant_tile_kernel
from jackfield.plugins.kernels.triton.quant_pack import (
    AT_ONCE,
    KINDS,
    SIDE,
    PackedQuant,
    packed,
    values_of,
)
from jackfield.plugins.kernels.triton.support import TritonConfig, capability

FEWEST_ROWS = 8
"""Rows of the narrowest tile."""
MANY_ROWS = 16
"""Of a program, for which registers get scarce beyond."""
DENSE_ELEMENTS = 1 << 26
"""Of the plain matrix that is there at once, of whatever weight."""
DENSE_OUTPUTS = 64
"""Of a program that makes it."""


class QuantConfigs:
    """The table by bits, rows, outputs and inputs: `4_16_4096_1024` is for 9 to 16 rows, `4_8_...`
    for 2 to 8. `4s_...`: a block of 4-bit codes has several scales.

    Shapes that are not in it take the nearest one's entry. What has none, as more rows, and float32
    are left to a plain matrix. name: of the table's file.
    """

    def __init__(self, name: str = "quant") -> None:
        self._configs = Configs(name)
        names = [entry.shape.split("_") for entry in self._configs.entries()]
        self._shapes = sorted({(int(outputs), int(inputs)) for *_, outputs, inputs in names})
        self._most_rows = max((int(rows) for _, rows, *_ in names), default=0)
        self._found: dict[tuple[Any, ...], Config | None] = {}

    def find(self, rows: int, weight: PackedQuant, dtype: torch.dtype) -> Config | None:
        """What to launch with; None = a plain matrix. Every question is looked up once."""
        if not 0 < rows <= self._most_rows or dtype is torch.float32:
            return None
        label = label_of(weight.kind, weight.group)
        key = (label, class_of(rows), weight.shape, dtype, weight.words.device)
        if key not in self._found:
            self._found[key] = self._look_up(*key)
        return self._found[key]

    def _look_up(
        self,
        label: str,
        rows: int,
        shape: tuple[int, int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> Config | None:
        outputs, inputs = min(self._shapes, key=lambda known: _distance(known, shape))
        try:
            return self._configs.find(f"{label}_{rows}_{outputs}_{inputs}", dtype, device) or None
        except LookupError:
            return None


class TritonQuantMatmul(TritonOperation):
    """Weight-only. Few rows: exact codes, products in the type of x, sums and scales in float32. A
    code of e4m3 that is no number counts as 480 where x is bfloat16 and there are few rows."""

    def __init__(self, config: TritonConfig) -> None:
        super().__init__(config)
        self._configs = QuantConfigs()

    def pack(self, weight: QuantWeight, bias_O: Tensor | None) -> PackedQuant:
        return packed(weight, bias_O)

    def __call__(self, x_TI: Tensor, packed: PackedQuant) -> Tensor:
        config = self._configs.find(x_TI.shape[0], packed, x_TI.dtype)
        if config is None or packed.group % AT_ONCE:
            return _multiply_dense(in_order(x_TI, packed), packed)
        out_TO = x_TI.new_empty(x_TI.shape[0], packed.shape[0])
        multiply_tiles(x_TI, packed, out_TO, config)
        return out_TO


def label_of(kind: QuantKind, group: int) -> str:
    """Of the table. group: inputs that share a scale; 0 = all."""
    if kind is not QuantKind.INT4:
        return "8"
    return "4s" if 0 < group < AT_ONCE * values_of(kind) else "4"


def class_of(rows: int) -> int:
    """Of the table."""
    return max(power_of_two(rows), FEWEST_ROWS) if rows > 1 else 1


def tile_rows(rows: int, config: Config) -> int:
    """Of a program."""
    return min(max(power_of_two(rows), FEWEST_ROWS), config["ROWS"])


def tiles_of(group: int, inputs: int, height: int, config: Config) -> int:
    """Of a warp. Many scales and many rows leave no registers for a second one. inputs: of a
    block; height: rows of a program."""
    return 1 if 0 < group < inputs and height > MANY_ROWS else config["TILES"]


def in_order(x_TI: Tensor, packed: PackedQuant) -> Tensor:
    """Inputs as the weight has them."""
    return x_TI if packed.order_I is None else x_TI.index_select(1, packed.order_I)


def multiply_tiles(
    x_TI: Tensor, packed: PackedQuant, out: Tensor, config: Config, apart: int = 0
) -> None:
    """Fills out, `[T, O]`. apart: tiles of gate, behind which those of up lie, if out is to be
    `silu(gate) * up`, `[T, O / 2]`; 0 = it is not."""
    x_TI = in_order(x_TI, packed)
    if x_TI.stride(1) != 1:
        x_TI = x_TI.contiguous()
    rows, (outputs, inputs) = out.shape[0], packed.shape
    height = tile_rows(rows, config)
    abreast = config["num_warps"] // config["PARTS"]
    step = config["PARTS"] * config["BLOCKS"] * packed.inputs
    splits = min(config["SPLITS"], triton.cdiv(inputs, step))
    tiles = tiles_of(packed.group, packed.inputs, height, config)
    assert apart == 0 or tiles * abreast % 2 == 0, "half of them are of gate, half of up"
    width = SIDE * tiles * abreast
    grid = triton.cdiv(rows, height), triton.cdiv(outputs, width), splits
    partials = out
    if splits > 1:
        size = grid[0] * grid[1] * splits * width * height
        assert grid[0] * grid[1] <= packed.counters.shape[0], f"{rows} rows in parts of {height}"
        partials = torch.empty(size, dtype=torch.float32, device=x_TI.device)
    rest = {name: value for name, value in config.items() if name not in ("SPLITS", "ROWS")}
    rest |= {"TILES": tiles, "AHEAD": 0 if exact(x_TI.dtype) else config["AHEAD"]}
    quant_tile_kernel[grid](
        x_TI,
        *tensors_of(packed),
        out,
        partials,
        packed.counters,
        rows,
        outputs,
        x_TI.stride(0),
        inputs,
        packed.blocks,
        apart or 1,
        SECTION=gcd(packed.group, packed.inputs),
        GATED=apart > 0,
        EVEN=inputs % step == 0,
        ROWS=height,
        ABREAST=abreast,
        SPLIT=splits > 1,
        **constants_of(x_TI, packed),
        **early(x_TI.device),
        **rest,
    )


def constants_of(x_TI: Tensor, packed: PackedQuant) -> dict[str, Any]:
    """How codes become numbers, and what is added to them meanwhile, depends on the type of x."""
    plain = exact(x_TI.dtype)
    left_in = packed.kind is QuantKind.INT4 and x_TI.dtype is torch.bfloat16 and not plain
    return {
        "BIASED": packed.bias_O is not None,
        "EXACT": plain,
        "ASSEMBLY": 0 if plain else capability(x_TI.device),
        "BASE": -128 if left_in else packed.kind.middle,
        **_kind(packed),
    }


def _kind(packed: PackedQuant) -> dict[str, Any]:
    return {
        "KIND": KINDS[packed.kind],
        "MIDDLE": packed.kind.middle,
        "GROUP": packed.group,
        "SHARING": packed.rows,
        "ZEROS": packed.zeros_GR is not None,
    }


def tensors_of(packed: PackedQuant) -> tuple[Tensor, ...]:
    """Words, scales, zero points, bias; what there is not is never read."""
    words = packed.words
    zeros = words if packed.zeros_GR is None else packed.zeros_GR
    return words, packed.scales_GR, zeros, words if packed.bias_O is None else packed.bias_O


def _multiply_dense(x_TI: Tensor, packed: PackedQuant) -> Tensor:
    outputs, inputs = packed.shape
    step = max(DENSE_ELEMENTS // inputs // SIDE, 1) * SIDE
    if step >= outputs:
        return linear(x_TI, dense(packed, 0, outputs, x_TI.dtype), packed.bias_O)
    out_TO = x_TI.new_empty(x_TI.shape[0], outputs)
    for first in range(0, outputs, step):
        part = slice(first, min(first + step, outputs))
        weight_IO = dense(packed, part.start, part.stop, x_TI.dtype).t()
        if packed.bias_O is None:
            torch.mm(x_TI, weight_IO, out=out_TO[:, part])
        else:
            torch.addmm(packed.bias_O[part], x_TI, weight_IO, out=out_TO[:, part])
    return out_TO


def dense(packed: PackedQuant, first: int, end: int, dtype: torch.dtype) -> Tensor:
    """Outputs from `first`, a multiple of 16, up to `end` as a plain matrix, inputs as stored."""
    outputs, inputs = packed.shape
    device = packed.words.device
    out_OI = torch.empty(end - first, inputs, dtype=dtype, device=device)
    quant_dense_kernel[(triton.cdiv(end - first, DENSE_OUTPUTS), packed.blocks)](
        *tensors_of(packed)[:3],
        out_OI,
        first,
        end,
        outputs,
        inputs,
        packed.blocks,
        WHOLE=packed.group % AT_ONCE == 0,
        NATIVE=knows_e4m3(device),
        OUTPUTS=DENSE_OUTPUTS,
        num_warps=4,
        **_kind(packed),
    )
    return out_OI


def _distance(known: tuple[int, int], shape: tuple[int, int]) -> float:
    return sum(abs(log2(one / max(other, 1))) for one, other in zip(known, shape, strict=True))
