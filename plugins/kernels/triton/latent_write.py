"""Rotating queries of latent attention, and norming, rotating and storing what is kept of tokens:
one launch."""

from typing import Any

from torch import Tensor

from jackfield.core.api.kernel import KvLayer
from jackfield.core.api.latent import LatentProjected
from jackfield.plugins.kernels.triton.early import early
from jackfield.plugins.kernels.triton.encode import as_codes, kind_of
from jackfield.plugins.kernels.triton.latent_gather import LATENT
from jackfield.plugins.kernels.triton.latent_write_kernel import latent_write_kernel
from jackfield.plugins.kernels.triton.launch import power_of_two

HEADS = 8
"""Of one program."""


def norm_rope_write(projected: LatentProjected, layer: KvLayer, slots_T: Tensor) -> Tensor:
    """The queries, rotated in place. What is rounded, and when, is as if every operation ran by
    itself. A slot of -1: nothing is stored of that token."""
    q_TNQ, stored_TH = projected.q_TNQ, projected.stored_TH
    cos_TW, sin_TW = projected.cos_TW, projected.sin_TW
    pool, scales = as_codes(layer.tensors[LATENT]), layer.scales
    tokens, heads, query = q_TNQ.shape
    assert q_TNQ.stride()[1:] == (query, 1) and stored_TH.stride(1) == 1
    assert cos_TW.stride(1) == sin_TW.stride(1) == 1
    rank, width = len(projected.norm_R), cos_TW.shape[1]
    if tokens:
        sizes = write_sizes(heads, rank, width)
        latent_write_kernel[(tokens * (-(-heads // sizes["HEADS"]) + 1),)](
            q_TNQ,
            stored_TH,
            projected.norm_R,
            projected.eps,
            cos_TW,
            sin_TW,
            pool,
            cos_TW if scales is None else scales.k_K,
            slots_T,
            q_TNQ.stride(0),
            stored_TH.stride(0),
            cos_TW.stride(0),
            sin_TW.stride(0),
            pool.stride(0),
            PLAIN=query - 2 * width,
            BLOCK_SIZE=pool.shape[2],
            KIND=kind_of(layer.encoding),
            SCALED=scales is not None,
            INTERLEAVED=projected.interleaved,
            **sizes,
            **early(q_TNQ.device),
        )
    return q_TNQ


def write_sizes(heads: int, rank: int, width: int) -> dict[str, Any]:
    """How the kernel is compiled, beside what it reads. width: rotated pairs."""
    return {
        "NUM_HEADS": heads,
        "RANK": rank,
        "WIDTH": width,
        "BLOCK_R": power_of_two(rank),
        "PAIRS": power_of_two(width),
        "HEADS": min(HEADS, power_of_two(heads)),
        "num_warps": 4,
        "num_stages": 1,
    }
