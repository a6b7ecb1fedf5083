"""The launch of a sum over ranks."""

import triton
from torch import Tensor

from jackfield.plugins.kernels.triton.all_reduce_kernel import all_reduce_kernel
from jackfield.plugins.kernels.triton.configs import Config
from jackfield.plugins.kernels.triton.symmetric import Peers, Way


def way_of(x: Tensor, peers: Peers, config: Config) -> Way:
    """How a tensor is summed that is cut into rows of the table's `BLOCK` entries."""
    return peers.way(triton.cdiv(x.numel(), config["BLOCK"]), config["BLOCK"] * x.itemsize)


def sum_in_place(x: Tensor, peers: Peers, config: Config, way: Way) -> None:
    """Of a tensor without gaps."""
    rows = triton.cdiv(x.numel(), config["BLOCK"])
    if rows:
        all_reduce_kernel[(peers.programs(rows),)](
            x,
            peers.table,
            peers.calls,
            x.numel(),
            peers.rank,
            **peers.constants,
            TWO=way is Way.TWO,
            # It is seldom called, and behind anything, perhaps what is no kernel.
            EARLY=False,
            **config,
        )
