"""The sum over ranks of one host, residual sum, and root mean square norm."""

from torch import Tensor

from jackfield.plugins.kernels.triton.add_rms_norm import TritonAddRmsNorm
from jackfield.plugins.kernels.triton.all_reduce import TritonAllReduce
from jackfield.plugins.kernels.triton.all_reduce_add_rms_norm_kernel import (
    all_reduce_add_rms_norm_kernel,
)
from jackfield.plugins.kernels.triton.early import early
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.support import TritonConfig
from jackfield.plugins.kernels.triton.symmetric import Peers, Way
from jackfield.plugins.kernels.triton.symmetric_exchange import Exchange
from jackfield.plugins.kernels.triton.symmetric_operation import SymmetricOperation

NARROWEST, WIDEST = 64, 16384
"""Entries of a row that the table knows."""


class TritonAllReduceAddRmsNorm(SymmetricOperation):
    """One launch, unless rows are so wide, or so many, that two are better. Rounded as by the
    operations that it stands for: the sum over ranks once, then what is kept, then the norm."""

    def __init__(self, exchange: Exchange, config: TritonConfig) -> None:
        super().__init__(exchange)
        self._all_reduce = TritonAllReduce(exchange)
        self._add_rms_norm = TritonAddRmsNorm(config)

    def __call__(
        self, x_TD: Tensor, residual_TD: Tensor, weight_D: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        peers, (rows, width) = self._exchange.peers, x_TD.shape
        way = Way.APART if peers is None else peers.way(rows, width * x_TD.itemsize)
        if peers is None or way is Way.APART or width > WIDEST:
            return self._add_rms_norm(self._all_reduce(x_TD), residual_TD, weight_D, eps)
        x_TD, residual_TD = _dense(x_TD), _dense(residual_TD)
        out_TD = x_TD.new_empty(x_TD.shape)
        if rows:
            self._launch(peers, way, x_TD, residual_TD, weight_D, out_TD, eps)
        return out_TD, residual_TD

    def _launch(
        self,
        peers: Peers,
        way: Way,
        x_TD: Tensor,
        residual_TD: Tensor,
        weight_D: Tensor,
        out_TD: Tensor,
        eps: float,
    ) -> None:
        rows, width = x_TD.shape
        block = power_of_two(width)
        shape = f"norm_{max(block, NARROWEST)}"
        config = self._exchange.configs.find(shape, x_TD.dtype, x_TD.device)
        all_reduce_add_rms_norm_kernel[(peers.programs(rows),)](
            x_TD,
            residual_TD,
            weight_D,
            out_TD,
            peers.table,
            peers.calls,
            rows,
            peers.rank,
            x_TD.stride(0),
            residual_TD.stride(0),
            float(eps),
            **peers.constants,
            WIDTH=width,
            BLOCK=block,
            TWO=way is Way.TWO,
            **config,
            **early(x_TD.device),
        )


def _dense(x: Tensor) -> Tensor:
    """Its rows' entries lie side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()
