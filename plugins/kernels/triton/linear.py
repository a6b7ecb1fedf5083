"""Dense products: of few rows by kernels that read weights at full speed, of more by cuBLAS."""

from math import log2
from typing import NamedTuple

import torch
import triton
from torch import Tensor
from torch.nn.functional import linear

from jackfield.plugins.kernels.triton.attention_step import exact
from jackfield.plugins.kernels.triton.configs import Config, Configs
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.linear_kernels import tile_kernel, vector_kernel
from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.support import TritonConfig

FEWEST_OUTPUTS = 16
"""Outputs of the smallest group that programs share."""
FEWEST_ROWS = 8
"""Rows of the narrowest tile."""
WARP_BYTES = 32 * 16
"""What a warp loads in one go."""


class PackedLinear(NamedTuple):
    """As the checkpoint has it. counters: of programs that share a group of outputs; always 0
    between launches."""

    weight_OI: Tensor
    bias_O: Tensor | None
    counters: Tensor


class LinearConfigs:
    """The table by rows, outputs and inputs: `16_4096_1024` is for 9 to 16 rows.

    Shapes that are not in it take the nearest one's entry. Left to torch is what has an empty
    entry, because it is faster there, or none, as more rows and unmeasured architectures; and
    float32.
    """

    def __init__(self) -> None:
        self._configs = Configs("linear")
        names = [entry.shape.split("_") for entry in self._configs.entries()]
        self._shapes = sorted({(int(outputs), int(inputs)) for _, outputs, inputs in names})
        self._most_rows = max((int(rows) for rows, _, _ in names), default=0)
        self._found: dict[tuple[int, torch.Size, torch.dtype, torch.device], Config | None] = {}

    def find(self, rows: int, weight_OI: Tensor) -> Config | None:
        """What to launch with; None = leave it to torch. Every question is looked up once."""
        if rows > self._most_rows or weight_OI.dtype is torch.float32:
            return None
        key = (power_of_two(rows), weight_OI.shape, weight_OI.dtype, weight_OI.device)
        if key not in self._found:
            self._found[key] = self._look_up(*key)
        return self._found[key]

    def _look_up(
        self, rows: int, shape: torch.Size, dtype: torch.dtype, device: torch.device
    ) -> Config | None:
        outputs, inputs = min(self._shapes, key=lambda known: _distance(known, shape))
        try:
            return self._configs.find(f"{rows}_{outputs}_{inputs}", dtype, device) or None
        except LookupError:
            return None


class TritonLinear(TritonOperation):
    """Sums in float32, rounded once. What a row gives depends on how many there are only through
    the class of the table that they belong to."""

    def __init__(self, config: TritonConfig) -> None:
        super().__init__(config)
        self._configs = LinearConfigs()

    def pack(self, weight_OI: Tensor, bias_O: Tensor | None) -> PackedLinear:
        groups = triton.cdiv(weight_OI.shape[0], FEWEST_OUTPUTS)
        counters = torch.zeros(groups, dtype=torch.int32, device=weight_OI.device)
        return PackedLinear(weight_OI.contiguous(), bias_O, counters)

    def __call__(self, x_TI: Tensor, packed: PackedLinear) -> Tensor:
        rows = x_TI.shape[0]
        config = self._configs.find(rows, packed.weight_OI) if rows and x_TI.shape[1] else None
        if config is None:
            return linear(x_TI, packed.weight_OI, packed.bias_O)
        if x_TI.stride(1) != 1:
            x_TI = x_TI.contiguous()
        out_TO = x_TI.new_empty(rows, packed.weight_OI.shape[0])
        (_multiply_tiles if "PARTS" in config else _multiply_vectors)(x_TI, packed, out_TO, config)
        return out_TO


def _multiply_vectors(x_TI: Tensor, packed: PackedLinear, out_TO: Tensor, config: Config) -> None:
    weight_OI, bias_O, _ = packed
    rows, outputs = out_TO.shape
    vector_kernel[(triton.cdiv(outputs, config["OUTPUTS"]),)](
        x_TI,
        weight_OI,
        weight_OI if bias_O is None else bias_O,
        out_TO,
        rows,
        outputs,
        x_TI.stride(0),
        WIDTH=weight_OI.shape[1],
        BIASED=bias_O is not None,
        ROWS=power_of_two(rows),
        BLOCK=config["num_warps"] * (WARP_BYTES // x_TI.element_size()),
        **config,
        **_overlap(config),
    )


def _multiply_tiles(x_TI: Tensor, packed: PackedLinear, out_TO: Tensor, config: Config) -> None:
    weight_OI, bias_O, counters = packed
    (rows, outputs), width = out_TO.shape, weight_OI.shape[1]
    tile_rows = max(power_of_two(rows), FEWEST_ROWS)
    groups, splits = triton.cdiv(outputs, config["OUTPUTS"]), config["SPLITS"]
    partials = out_TO
    if splits > 1:
        size = splits * groups * config["OUTPUTS"] * tile_rows
        partials = torch.empty(size, dtype=torch.float32, device=x_TI.device)
    tile_kernel[(groups, splits)](
        x_TI,
        weight_OI,
        weight_OI if bias_O is None else bias_O,
        out_TO,
        partials,
        counters,
        rows,
        outputs,
        x_TI.stride(0),
        width,
        BIASED=bias_O is not None,
        EVEN=width % (config["BLOCK"] * config["PARTS"]) == 0,
        EXACT=exact(x_TI.dtype),
        ROWS=tile_rows,
        STAGES=config["num_stages"],
        **config,
        **_overlap(config),
    )


def _overlap(config: Config) -> dict[str, bool]:
    """Other than for this the launch must not have the argument: older GPUs do not know it."""
    return {"launch_pdl": True} if config["AHEAD"] else {}


def _distance(known: tuple[int, int], shape: torch.Size) -> float:
    return sum(abs(log2(one / max(other, 1))) for one, other in zip(known, shape, strict=True))
