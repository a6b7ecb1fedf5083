"""Where the parts that ranks computed come together.

Shape suffixes: T tokens of the step, D model width.
"""

from dataclasses import replace

import torch
from torch import Tensor

from jackfield.core.api.collective import AllReduce
from jackfield.core.api.errors import ModelError
from jackfield.core.api.kernel import AddRmsNorm, Operations, OpSpec
from jackfield.core.api.model import Shard


class SummedAddRmsNorm:
    """Adds up `x` over ranks first. Stands for `all_reduce_add_rms_norm` where nobody serves it."""

    def __init__(self, all_reduce: AllReduce, add_rms_norm: AddRmsNorm) -> None:
        self._all_reduce, self._add_rms_norm = all_reduce, add_rms_norm

    def unsupported(self, spec: OpSpec, device: torch.device) -> list[str]:
        return self._add_rms_norm.unsupported(spec, device)

    def capturable(self) -> bool:
        return self._all_reduce.capturable() and self._add_rms_norm.capturable()

    def __call__(
        self, x_TD: Tensor, residual_TD: Tensor, weight_D: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        return self._add_rms_norm(self._all_reduce(x_TD), residual_TD, weight_D, eps)


def summed(ops: Operations, shard: Shard) -> Operations:
    """The same operations for a part of a model. Everything that ranks compute a part of goes
    through `add_rms_norm`, but for the vocabulary's, so that one kernel can do all of it. Raises
    `ModelError` if nobody joins the parts."""
    if shard.size == 1:
        return ops
    if ops.all_reduce is None or ops.all_gather is None:
        raise ModelError(
            f"The model cannot be divided among {shard.size} ranks: no kernel of the stack serves "
            f"'all_reduce' and 'all_gather'; add 'torch' to kernel.stack."
        )
    joint = ops.all_reduce_add_rms_norm or SummedAddRmsNorm(ops.all_reduce, ops.add_rms_norm)
    return replace(ops, add_rms_norm=joint)
