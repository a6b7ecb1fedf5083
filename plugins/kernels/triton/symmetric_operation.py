"""What operations over the memory of ranks have in common."""

import torch

from jackfield.core.api.collective import Ranks
from jackfield.core.api.kernel import OpSpec
from jackfield.plugins.kernels.triton.symmetric_exchange import Exchange


class SymmetricOperation:
    """They share an exchange, which the first of them joins."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def unsupported(self, spec: OpSpec, device: torch.device) -> list[str]:
        return self._exchange.unsupported(spec, device)

    def capturable(self) -> bool:
        return True

    def join(self, ranks: Ranks, device: torch.device) -> None:
        self._exchange.join(ranks, device)
