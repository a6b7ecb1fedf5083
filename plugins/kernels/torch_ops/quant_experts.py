"""Experts with quantized weights in plain torch: one after the other, each dequantized anew.

Shape suffixes beside those of the contract: A assignments, one per token and expert of it, P those
of one expert.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from jackfield.core.api.quant_experts import QuantExpert
from jackfield.plugins.kernels.torch_ops.everywhere import Everywhere
from jackfield.plugins.kernels.torch_ops.experts import (
    count_tokens,
    gated,
    sort_by_expert,
    weighted_sum,
)
from jackfield.plugins.kernels.torch_ops.quant_matmul import PackedQuant, TorchQuantMatmul


class TorchQuantExperts(Everywhere):
    """Only experts that have tokens are dequantized, a block of outputs at a time, so the host
    waits once a layer for how many each has."""

    def __init__(self) -> None:
        self._multiply = TorchQuantMatmul()

    def capturable(self) -> bool:
        return False

    def pack(self, experts: Iterable[QuantExpert], count: int) -> list[QuantExpert]:
        return list(experts)

    def __call__(
        self,
        x_TD: Tensor,
        ids_TK: Tensor,
        weights_TK: Tensor,
        packed: Sequence[QuantExpert],
        counts_E: Tensor | None = None,
    ) -> Tensor:
        if len(x_TD) == 0:
            return torch.empty_like(x_TD)
        if counts_E is not None:
            count_tokens(ids_TK, counts_E)
        order = sort_by_expert(ids_TK, len(packed))
        x_AD = x_TD.index_select(0, order.token_A)
        made_AD = torch.empty_like(x_AD)
        ends = order.ends_E.tolist()
        for expert, (begin, end) in zip(packed, pairwise([0, *ends]), strict=True):
            if begin < end:
                made_AD[begin:end] = self._one(x_AD[begin:end], expert)
        return weighted_sum(made_AD, order.place_TK, weights_TK)

    def _one(self, x_PD: Tensor, expert: QuantExpert) -> Tensor:
        hidden_PF = gated(self._multiply(x_PD, PackedQuant(expert.gate_up, None)))
        return self._multiply(hidden_PF, PackedQuant(expert.down, None))
