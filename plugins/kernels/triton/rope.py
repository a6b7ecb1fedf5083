"""Rotary position embedding in the GPT-NeoX order: the halves of a head are rotated."""

import triton
from torch import Tensor

from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.launch import amount_config, power_of_two
from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.rope_kernel import rope_kernel
from jackfield.plugins.kernels.triton.support import TritonConfig


class TritonRope(TritonOperation):
    """In place, in float32, rounded once; strided views of a merged projection are fine."""

    def __init__(self, config: TritonConfig) -> None:
        super().__init__(config)
        self._configs = Configs("rope")

    def __call__(
        self, q_TNH: Tensor, k_TKH: Tensor, cos_TW: Tensor, sin_TW: Tensor
    ) -> tuple[Tensor, Tensor]:
        q_TNH, k_TKH, cos_TW, sin_TW = map(_dense, (q_TNH, k_TKH, cos_TW, sin_TW))
        tokens, width = cos_TW.shape
        heads, kv_heads = q_TNH.shape[1], k_TKH.shape[1]
        config = amount_config(self._configs, q_TNH.numel(), q_TNH.dtype, q_TNH)
        size = config["HEADS"]
        if tokens and width:
            rope_kernel[(tokens, triton.cdiv(heads, size) + triton.cdiv(kv_heads, size))](
                q_TNH,
                k_TKH,
                cos_TW,
                sin_TW,
                *q_TNH.stride()[:2],
                *k_TKH.stride()[:2],
                cos_TW.stride(0),
                sin_TW.stride(0),
                NUM_HEADS=heads,
                NUM_KV_HEADS=kv_heads,
                WIDTH=width,
                PAIRS=power_of_two(width),
                **config,
            )
        return q_TNH, k_TKH


def _dense(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()
