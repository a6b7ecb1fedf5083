"""Sizes of the weights of a model whose config.json is all there is."""

from math import ceil, prod

import torch
from torch import Tensor

from jackfield.core.api import QuantWeight, Split
from jackfield.core.api.quant import QuantKind
from jackfield.core.checkpoint.quant_plan import QuantPlan
from jackfield.core.checkpoint.quant_scheme import Scheme
from jackfield.core.checkpoint.quantized_weights import WEIGHT

FLOAT32_BYTES = 4


class MadeUpSizes:
    """Implements `QuantizedWeights` on the device "meta". bytes: of all that was taken, quantized
    as the plan says where the model would hold it so."""

    def __init__(self, plan: QuantPlan, dtype: torch.dtype) -> None:
        self._plan, self._dtype = plan, dtype
        self._asked: set[str] = set()
        self.bytes = 0

    def has(self, name: str) -> bool:
        """Nothing is stored."""
        return False

    def take(
        self,
        name: str,
        shape: tuple[int, ...],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> Tensor:
        """Something of that shape. There is one rank."""
        scheme = self._plan.scheme(name.removesuffix(WEIGHT)) if name in self._asked else None
        if scheme is None:
            self.bytes += prod(shape) * self._dtype.itemsize
        else:
            self.bytes += _bytes(scheme, shape[0], shape[1])
        return torch.empty(shape, dtype=self._dtype, device="meta")

    def take_exact(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """As `Weights.take_exact`."""
        self.bytes += prod(shape) * FLOAT32_BYTES
        return torch.empty(shape, dtype=torch.float32, device="meta")

    def take_quantized(
        self,
        name: str,
        shape: tuple[int, int],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> QuantWeight | None:
        """None; but that it was asked for tells that the weight would be held as it is."""
        self._asked.add(name)
        return None

    def ignore(self, pattern: str) -> None:
        """Nothing is stored."""


def _bytes(scheme: Scheme, outputs: int, inputs: int) -> int:
    """Codes, scales and zero points."""
    four = scheme.kind is QuantKind.INT4
    table = ceil(outputs / scheme.rows) * ceil(inputs / (scheme.group or inputs))
    scale = FLOAT32_BYTES if scheme.kind is QuantKind.FP8 else FLOAT32_BYTES // 2
    return outputs * ceil(inputs / (1 + four)) + table * (scale + (not scheme.symmetric))
