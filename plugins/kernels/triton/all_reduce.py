"""The sum over ranks of one host."""

from torch import Tensor

from jackfield.plugins.kernels.triton.all_reduce_launch import sum_in_place, way_of
from jackfield.plugins.kernels.triton.support import DTYPES
from jackfield.plugins.kernels.triton.symmetric import Way
from jackfield.plugins.kernels.triton.symmetric_operation import SymmetricOperation


class TritonAllReduce(SymmetricOperation):
    """In place where the tensor has no gaps. Summed in float32 and rounded once, but for large
    ones, which are left to the library that connects the ranks."""

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
