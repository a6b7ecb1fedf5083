"""Launches that put what is stored of positions side by side."""

from typing import NamedTuple

import triton
from torch import Tensor

from jackfield.core.api.kernel import KvLayer
from jackfield.plugins.kernels.triton.encode import as_codes, kind_of, knows_e4m3
from jackfield.plugins.kernels.triton.latent_gather_kernel import latent_gather_kernel
from jackfield.plugins.kernels.triton.launch import power_of_two

LATENT = "latent"
"""The one tensor of a layer, `[num_blocks, 1, block_size, H]`."""
TILE = 16
"""Positions of a program."""


class Spots(NamedTuple):
    """Where to read. ranges: rows of `Range`. positions: of all of them; longest: of one."""

    ranges: Tensor
    positions: int
    longest: int


def gather_latents(
    layer: KvLayer, tables_SB: Tensor, spots: Spots, rank: int, like: Tensor
) -> Tensor:
    """`[positions, H]` in the type of `like`, restored if they are encoded."""
    pool, scales = as_codes(layer.tensors[LATENT]), layer.scales
    _, _, page, stored = pool.shape
    room_LH = like.new_empty(spots.positions, stored)
    latent_gather_kernel[(len(spots.ranges), triton.cdiv(spots.longest, TILE))](
        pool,
        room_LH,
        tables_SB,
        spots.ranges,
        spots.ranges if scales is None else scales.k_K,
        tables_SB.stride(0),
        pool.stride(0),
        RANK=rank,
        ROTATED=stored - rank,
        BLOCK_R=power_of_two(rank),
        BLOCK_W=power_of_two(stored - rank),
        PAGE=page,
        BLOCK_L=TILE,
        KIND=kind_of(layer.encoding),
        NATIVE=knows_e4m3(like.device),
        SCALED=scales is not None,
        num_warps=4,
    )
    return room_LH
