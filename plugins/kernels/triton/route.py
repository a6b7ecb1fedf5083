"""Which experts each token goes to."""

import torch
from torch import Tensor

from jackfield.core.api.experts import Routing
from jackfield.plugins.kernels.triton.early import early
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.route_kernel import route_kernel

SMALL = 128
"""Experts up to which one warp is enough."""


class TritonRoute(TritonOperation):
    """From logits to ids and weights in one launch. Of experts that are worth the same the first is
    chosen."""

    def __call__(
        self,
        logits_TE: Tensor,
        routing: Routing,
        bias_E: Tensor | None = None,
        slots_T: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        if logits_TE.stride(1) != 1:
            logits_TE = logits_TE.contiguous()
        shape, device = (len(logits_TE), routing.top_k), logits_TE.device
        ids_TK = torch.empty(shape, dtype=torch.int64, device=device)
        weights_TK = torch.empty(shape, dtype=torch.float32, device=device)
        if len(logits_TE):
            route_kernel[(len(logits_TE),)](
                logits_TE,
                logits_TE if bias_E is None else bias_E,
                ids_TK if slots_T is None else slots_T,
                ids_TK,
                weights_TK,
                logits_TE.stride(0),
                **constants(routing),
                BIASED=bias_E is not None,
                SLOTTED=slots_T is not None,
                num_warps=warps(routing),
                **early(device),
            )
        return ids_TK, weights_TK


def constants(routing: Routing) -> dict[str, bool | int | float]:
    """What the kernel is compiled for."""
    return {
        "EXPERTS": routing.num_experts,
        "PADDED": power_of_two(routing.num_experts),
        "TOP": routing.top_k,
        "PADDED_TOP": power_of_two(routing.top_k),
        "GROUPS": routing.num_groups,
        "PADDED_GROUPS": power_of_two(routing.num_groups),
        "CHOSEN": routing.chosen_groups,
        "BEST_TWO": routing.group_score == "top2sum",
        "SIGMOID": routing.scoring == "sigmoid",
        "NORMALIZE": routing.normalize,
        "SCALE": float(routing.scale),
    }


def warps(routing: Routing) -> int:
    """Of a program."""
    return 1 if routing.num_experts <= SMALL else 2
