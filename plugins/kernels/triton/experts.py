"""What the experts of each token make of it."""

from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.plugins.kernels.triton.configs import Config, Configs
from jackfield.plugins.kernels.triton.experts_grouped import have_groups, multiply_groups
from jackfield.plugins.kernels.triton.experts_tiles import multiply_tiles
from jackfield.plugins.kernels.triton.experts_vectors import multiply_vectors
from jackfield.plugins.kernels.triton.experts_work import Assigned, ExpertWork
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.silu_mul import TritonSiluMul
from jackfield.plugins.kernels.triton.support import TritonConfig

TILES = "gate_up_"
"""What the table has in front of a class of tiles: assignments of an expert, a power of two."""
VECTOR = "vector"


class Limits(NamedTuple):
    """tokens: up to which nothing is sorted, if the experts are also at least so many times as many
    as assignments; one token is never sorted. groups: assignments of an expert from which torch's
    grouped products are taken."""

    tokens: int
    times: int
    groups: int

    @staticmethod
    def of(config: Config) -> "Limits":
        """As the table has them."""
        return Limits(config["TOKENS"], config["TIMES"], config["GROUPS"])


class TritonExperts(TritonOperation):
    """Of few tokens, kernels that read the weights of the experts that somebody chose once, at full
    speed; of many, tiles of rows, or torch's grouped products where there are some for the type.

    Sums in float32. What a token gives depends on the others only through the class of the table
    that their number belongs to.
    """

    def __init__(self, config: TritonConfig) -> None:
        super().__init__(config)
        self._configs = Configs("experts")
        self._gate = TritonSiluMul(config)
        self._largest = largest_class(self._configs)

    def __call__(
        self,
        x_TD: Tensor,
        ids_TK: Tensor,
        weights_TK: Tensor,
        gate_up_E2FD: Tensor,
        down_EDF: Tensor,
        counts_E: Tensor | None = None,
    ) -> Tensor:
        if x_TD.stride(1) != 1:
            x_TD = x_TD.contiguous()
        chosen = ids_TK.contiguous(), weights_TK.contiguous()
        work = ExpertWork(x_TD, *chosen, counts_E, gate_up_E2FD, down_EDF)
        if work.tokens == 0:
            return torch.empty_like(x_TD)
        limits = Limits.of(self._configs.find("limits", x_TD.dtype, x_TD.device))
        if is_sparse(work, limits):
            return multiply_vectors(work, self._configs)
        if work.load >= limits.groups and have_groups(work):
            return multiply_groups(work, self._gate, self._configs)
        name = str(min(power_of_two(work.load), self._largest))
        return multiply_tiles(work, name, self._configs)


def is_sparse(work: Assigned, limits: Limits) -> bool:
    """Whether hardly two tokens have an expert in common."""
    few = work.assignments * limits.times <= work.experts
    return work.tokens == 1 or (work.tokens <= limits.tokens and few)


def largest_class(configs: Configs) -> int:
    """Of tiles in the table."""
    names = (entry.shape.removeprefix(TILES) for entry in configs.entries())
    return max(int(name) for name in names if name.isdecimal())
