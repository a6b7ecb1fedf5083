"""Collectives of `torch.distributed`: NCCL between GPUs, gloo between CPUs, whatever the group is.

Shape suffix: S ranks.
"""

from typing import Any

import torch
from torch import Tensor

from jackfield.core.api.collective import Ranks
from jackfield.plugins.kernels.torch_ops.everywhere import Everywhere


class TorchCollective(Everywhere):
    """What both have. A first sum, of one number, has the group open its connections."""

    def __init__(self) -> None:
        self._size = 1
        self._group: Any = None
        self._distributed: Any = None

    def join(self, ranks: Ranks, device: torch.device) -> None:
        # Whoever has one rank never pays for this import.
        import torch.distributed

        self._size, self._group, self._distributed = ranks.size, ranks.group, torch.distributed
        torch.distributed.all_reduce(torch.zeros(1, device=device), group=ranks.group)


class TorchAllReduce(TorchCollective):
    """In place where the tensor has no gaps. Sums are made in the type of `x`."""

    def __call__(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        self._distributed.all_reduce(x, group=self._group)
        return x


class TorchAllGather(TorchCollective):
    """Into one tensor."""

    def __call__(self, x: Tensor) -> Tensor:
        out_S = x.new_empty((self._size, *x.shape))
        # Newer versions of torch warn about the older name.
        name = "all_gather_single"
        if not hasattr(self._distributed, name):
            name = "all_gather_into_tensor"
        gather = getattr(self._distributed, name)
        gather(out_S.flatten(), x.contiguous().flatten(), group=self._group)
        return out_S
