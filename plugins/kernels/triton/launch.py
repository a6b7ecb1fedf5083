"""How rows are laid out for the kernels, and which class of the tables a launch belongs to."""

from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.plugins.kernels.triton.configs import Config, Configs

FEW = 1 << 18
"""Elements up to which a launch counts as small: what it costs is then latency, not bandwidth."""
WIDEST = 1 << 15
"""The widest class; wider rows take its configuration."""


class Rows(NamedTuple):
    """A tensor as `outer * inner` rows whose entries lie side by side."""

    tensor: Tensor
    outer: int
    inner: int
    outer_stride: int
    inner_stride: int


def power_of_two(size: int) -> int:
    """The least one that is not smaller, and at least 1."""
    return 1 << max(size - 1, 0).bit_length()


def rows_of(x: Tensor) -> Rows:
    """Of any number of axes. Copied only if two strides cannot say where its rows are."""
    if x.stride(-1) != 1:
        x = x.contiguous()
    if x.dim() > 3:
        x = x.flatten(0, -3)
    if x.dim() == 3:
        return Rows(x, x.shape[0], x.shape[1], x.stride(0), x.stride(1))
    if x.dim() == 2:
        return Rows(x, x.shape[0], 1, x.stride(0), 0)
    return Rows(x, 1, 1, 0, 0)


def row_config(configs: Configs, rows: int, width: int, x: Tensor) -> Config:
    """For kernels that hold whole rows of `width` entries."""
    block = power_of_two(width)
    amount = "few" if rows * block <= FEW else "many"
    return configs.find(f"{amount}_{min(max(block, 64), WIDEST)}", x.dtype, x.device)


def amount_config(configs: Configs, elements: int, dtype: torch.dtype, x: Tensor) -> Config:
    """For kernels whose blocks do not depend on the width."""
    return configs.find("few" if elements <= FEW else "many", dtype, x.device)
