"""Made-up weights of a model whose config says that they are quantized."""

from hashlib import sha256
from math import ceil

import torch
from torch import Tensor

from jackfield.core.api.model import Shard, Split
from jackfield.core.api.quant import QuantKind, QuantWeight
from jackfield.core.checkpoint.dummy_weights import POOL_SIZE, SPREAD, DummyWeights, stretch
from jackfield.core.checkpoint.quant_part import quant_part
from jackfield.core.checkpoint.quant_plan import QuantPlan
from jackfield.core.checkpoint.quant_scheme import Scheme

WEIGHT = ".weight"
DEVIATIONS = {QuantKind.INT4: 4.61, QuantKind.INT8: 73.9, QuantKind.FP8: 0.598}
"""Of random bytes from what they mean in the middle."""
SMALL = 0xBF
"""Bits that codes of e4m3 may have: numbers below two, and none that is no number."""


class DummyQuantWeights(DummyWeights):
    """Implements `QuantizedWeights`: products have random codes, in the groups that the plan says,
    and spread like plain ones. They are never held in floats. Inputs are in order.

    What is taken plain is plain. Codes too are stretches of a pool, and depend on seed and name.
    """

    def __init__(
        self, dtype: torch.dtype, device: torch.device, shard: Shard, seed: int, plan: QuantPlan
    ) -> None:
        super().__init__(dtype, device, shard, seed)
        generator = torch.Generator().manual_seed(seed)
        codes = torch.randint(0, 256, (POOL_SIZE,), dtype=torch.uint8, generator=generator)
        self._codes = codes.to(device)
        self._plan = plan

    def take_quantized(
        self,
        name: str,
        shape: tuple[int, int],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> QuantWeight | None:
        """As `QuantizedWeights.take_quantized`; a rank holds all of a weight for a moment."""
        scheme = self._plan.scheme(name.removesuffix(WEIGHT))
        if scheme is None or not name.endswith(WEIGHT):
            return None
        return quant_part(name, self._made_up(name, shape, scheme), split, self._shard, part)

    def _made_up(self, name: str, shape: tuple[int, int], scheme: Scheme) -> QuantWeight:
        (outputs, inputs), kind = shape, scheme.kind
        group = scheme.group or inputs
        table = (ceil(outputs / scheme.rows), ceil(inputs / group))
        columns = ceil(inputs / 2) if kind is QuantKind.INT4 else inputs
        values = self._bytes(name, outputs * columns).view(outputs, columns)
        if kind is QuantKind.FP8:
            values = (values & SMALL).view(torch.float8_e4m3fn)
        scales_RG = torch.full(
            table, SPREAD / DEVIATIONS[kind], dtype=_scale_type(kind), device=values.device
        )
        zeros_RG = None
        if not scheme.symmetric:
            odd = self._bytes(f"{name} zeros", table[0] * table[1]).view(table) & 1
            zeros_RG = kind.middle - odd
        return QuantWeight(kind, values, scales_RG, zeros_RG, group, scheme.rows, shape)

    def _bytes(self, name: str, count: int) -> Tensor:
        start = int.from_bytes(sha256(name.encode()).digest()[:8], "big")
        return stretch(self._codes, start, count)


def made_up_weights(
    dtype: torch.dtype, device: torch.device, shard: Shard, seed: int, plan: QuantPlan | None
) -> DummyWeights:
    """plan: None = nothing is quantized."""
    if plan is None:
        return DummyWeights(dtype, device, shard, seed)
    return DummyQuantWeights(dtype, device, shard, seed, plan)


def _scale_type(kind: QuantKind) -> torch.dtype:
    """As most checkpoints have it."""
    return torch.float32 if kind is QuantKind.FP8 else torch.float16
