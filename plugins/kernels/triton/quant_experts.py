"""What the experts of each token make of it, with weights of few bits."""

from collections.abc import Iterable

import torch
from torch import Tensor

from jackfield.core.api.quant_experts import QuantExpert
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.experts import Limits, is_sparse, largest_class
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.quant_experts_dense import multiply_dense
from jackfield.plugins.kernels.triton.quant_experts_pack import PackedExperts, pack_experts
from jackfield.plugins.kernels.triton.quant_experts_tiles import multiply_direct, multiply_sorted
from jackfield.plugins.kernels.triton.quant_experts_work import QuantWork
from jackfield.plugins.kernels.triton.support import TritonConfig


class TritonQuantExperts(TritonOperation):
    """Of few tokens, kernels that read the packed weights of the experts that somebody chose, once
    for a tile of rows; of many, plain matrices of some experts at a time, as for float32 and for
    groups that are no multiples of 32 inputs.

    Exact codes, products in the type of x, sums and scales in float32. What a token gives depends
    on the others only through the class of the table that their number belongs to.
    """

    def __init__(self, config: TritonConfig) -> None:
        super().__init__(config)
        self._configs, self._plain = Configs("quant_experts"), Configs("experts")
        self._largest = largest_class(self._plain)

    def pack(self, experts: Iterable[QuantExpert], count: int) -> PackedExperts:
        return pack_experts(experts, count)

    def __call__(
        self,
        x_TD: Tensor,
        ids_TK: Tensor,
        weights_TK: Tensor,
        packed: PackedExperts,
        counts_E: Tensor | None = None,
    ) -> Tensor:
        if x_TD.stride(1) != 1:
            x_TD = x_TD.contiguous()
        work = QuantWork(x_TD, ids_TK.contiguous(), weights_TK.contiguous(), counts_E, packed)
        if work.tokens == 0:
            return torch.empty_like(x_TD)
        limits = Limits.of(self._configs.find("limits", x_TD.dtype, x_TD.device))
        if work.load >= limits.groups or not packed.kernels_fit:
            name = str(min(power_of_two(work.load), self._largest))
            return multiply_dense(work, name, self._plain)
        if is_sparse(work, limits):
            return multiply_direct(work, self._configs, self._plain)
        return multiply_sorted(work, self._configs, self._plain)
