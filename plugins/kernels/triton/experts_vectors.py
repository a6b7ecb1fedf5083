"""Products of very few tokens, which are not sorted.

Shape suffixes beside those of the contract: A assignments, one per token and expert of it.
"""

import torch
import triton
from torch import Tensor

from jackfield.plugins.kernels.triton.configs import Config, Configs
from jackfield.plugins.kernels.triton.early import early
from jackfield.plugins.kernels.triton.experts_vector_kernel import (
    down_vector_kernel,
    gate_up_vector_kernel,
)
from jackfield.plugins.kernels.triton.experts_work import ExpertWork
from jackfield.plugins.kernels.triton.launch import power_of_two

WARP_BYTES = 32 * 16
"""What a warp loads in one go."""


def multiply_vectors(work: ExpertWork, configs: Configs) -> Tensor:
    """Two launches, the second of which sums up, too."""
    dtype, device = work.x_TD.dtype, work.x_TD.device
    hidden_AF = gate_up_vectors(work, configs.find("gate_up_vector", dtype, device))
    return down_vectors(work, hidden_AF, configs.find("down_vector", dtype, device))


def down_vectors(work: ExpertWork, hidden_AF: Tensor, config: Config) -> Tensor:
    """The weighted sum of what each token's experts make."""
    out_TD = torch.empty_like(work.x_TD, memory_format=torch.contiguous_format)
    padded = power_of_two(work.top)
    # Each warp has an expert of its own, if there are as many.
    block = max(config["num_warps"] // padded, 1) * warp_entries(out_TD)
    down_vector_kernel[(triton.cdiv(work.hidden, config["OUTPUTS"]), work.tokens)](
        hidden_AF,
        work.ids_TK,
        work.shares_TK,
        work.down_EDF,
        out_TD,
        TOP=work.top,
        EXPERTS=work.experts,
        PADDED=padded,
        WIDTH=work.width,
        HIDDEN=work.hidden,
        BLOCK=block,
        **unrolled(config, work.width, block),
        **early(out_TD.device),
    )
    return out_TD


def gate_up_vectors(work: ExpertWork, config: Config) -> Tensor:
    """`silu(gate) * up` of each assignment."""
    hidden_AF = work.x_TD.new_empty(work.assignments, work.width)
    block = config["num_warps"] * warp_entries(hidden_AF)
    gate_up_vector_kernel[(triton.cdiv(work.width, config["OUTPUTS"]), work.assignments)](
        work.x_TD,
        work.ids_TK,
        work.gate_up_E2FD,
        hidden_AF,
        work.ids_TK if work.counts_E is None else work.counts_E,
        work.x_TD.stride(0),
        TOP=work.top,
        EXPERTS=work.experts,
        INPUTS=work.hidden,
        WIDTH=work.width,
        BLOCK=block,
        COUNTED=work.counts_E is not None,
        **unrolled(config, work.hidden, block),
        **early(hidden_AF.device),
    )
    return hidden_AF


def warp_entries(x: Tensor) -> int:
    """Entries that a warp loads in one go."""
    return WARP_BYTES // x.element_size()


def unrolled(config: Config, width: int, block: int) -> dict[str, int]:
    """The same, with no longer a loop than there are blocks."""
    return {**config, "UNROLL": min(config["UNROLL"], triton.cdiv(width, block))}
