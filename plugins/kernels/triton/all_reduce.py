"""The sum over ranks of one host."""

import torch
from torch import Tensor

from jackfield.core.api.collective import Ranks
from jackfield.core.api.kernel import OpSpec
from jackfield.plugins.kernels.triton.all_reduce_launch import sum_in_place, way_of
from jackfield.plugins.kernels.triton.support import DTYPES
from jackfield.plugins.kernels.triton.symmetric import Way
from jackfield.plugins.kernels.triton.symmetric_exchange import Exchange


class TritonAllReduce:
    """In place where the tensor has no gaps. Summed in float32 and rounded once, but for large
    ones, which are left to the library that connects the ranks."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def unsupported(self, spec: OpSpec, device: torch.device) -> list[str]:
        return self._exchange.unsupported(spec, device)

    def capturable(self) -> bool:
        return True

    def join(self, ranks: Ranks, device: torch.device) -> None:
        self._exchange.join(ranks, device)

    def __call__(self, x: Tensor) -> Tensor:
        x, peers = x.contiguous(), self._exchange.peers
        config = self._exchange.configs.find("sum", x.dtype, x.device)
        way = Way.APART
        if peers is not None and x.dtype in DTYPES:
            way = way_of(x, peers, config)
        if peers is None or way is Way.APART:
            self._exchange.sum_apart(x)
        else:
            sum_in_place(x, peers, config, way)
        return x
