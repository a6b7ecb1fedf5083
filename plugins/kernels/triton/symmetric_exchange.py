"""What operations over ranks of one host have in common: one memory, opened and tried once."""

import logging
from functools import partial

import torch
from torch import Tensor

from jackfield.core.api.collective import Ranks
from jackfield.core.api.kernel import OpSpec
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.support import TritonConfig
from jackfield.plugins.kernels.triton.symmetric import (
    OpenMemory,
    Peers,
    Sizes,
    bytes_of,
    leave,
    leaving_word,
    open_memory,
)
from jackfield.plugins.kernels.triton.symmetric_support import apart, sizes_of
from jackfield.plugins.kernels.triton.symmetric_trial import Trial

log = logging.getLogger("jackfield.kernels")


class Exchange:
    """Joined by each operation; the first one does it. peers: None = no rank reads another's
    memory, since that was found not to work."""

    def __init__(
        self,
        config: TritonConfig,
        sizes: Sizes | None = None,
        opens: OpenMemory = open_memory,
    ) -> None:
        """sizes: None = those of the table."""
        self.configs = Configs("all_reduce")
        self.peers: Peers | None = None
        self._config, self._sizes, self._opens = config, sizes, opens
        self._ranks: Ranks | None = None
        self._leaving = torch.empty(0)

    def unsupported(self, spec: OpSpec, device: torch.device) -> list[str]:
        return apart(spec, device, self._config, self.configs)

    def join(self, ranks: Ranks, device: torch.device) -> None:
        if self._ranks is not None:
            return
        self._ranks = ranks
        peers, why = self._opened(ranks, device)
        # Nobody launches before all have cleared their flags, which this makes sure of, too.
        if not self._agreed(peers is not None, device):
            why = why or "another rank could not open it"
        elif not self._agreed(self._tried(peers, device), device):
            why = "a sum was wrong, or did not come"
        else:
            self.peers = peers
            return
        log.warning(
            "sums over ranks are left to torch.distributed, since memory that ranks share does not "
            "work here: %s", why,
        )  # fmt: skip

    def sum_apart(self, x: Tensor) -> None:
        """In place, by the library that connects the ranks. Of a tensor without gaps."""
        import torch.distributed

        assert self._ranks is not None, "it has not been joined"
        torch.distributed.all_reduce(x, group=self._ranks.group)

    def _opened(self, ranks: Ranks, device: torch.device) -> tuple[Peers | None, str]:
        sizes = self._sizes or sizes_of(self.configs, ranks.size, device)
        try:
            memory = self._opens(ranks, device, bytes_of(ranks, sizes))
        except RuntimeError as error:
            return None, str(error).partition("\n")[0]
        leaving = self._leaving = leaving_word(device)
        ranks.when_lost(partial(leave, leaving))
        return Peers(ranks, sizes, memory, leaving), ""

    def _tried(self, peers: Peers | None, device: torch.device) -> bool:
        assert peers is not None and self._ranks is not None
        config = self.configs.find("sum", torch.float32, device)
        return Trial(self._ranks, peers, config, device, self._leaving).passed()

    def _agreed(self, fine: bool, device: torch.device) -> bool:
        """Whether all ranks say so."""
        said = torch.tensor([int(fine)], device=device)
        import torch.distributed as distributed

        assert self._ranks is not None
        distributed.all_reduce(said, op=distributed.ReduceOp.MIN, group=self._ranks.group)
        return bool(said.item())
