"""Rotary position embedding in the GPT-NeoX order: the halves of a head are rotated."""

import torch
from torch import Tensor

from jackfield.plugins.kernels.cpu.compiled import CompiledOperation
from jackfield.plugins.kernels.cpu.library import dense_rows


class CpuRope(CompiledOperation):
    """In place; strided views of a merged projection are fine."""

    name = "jackfield_rope"
    letters = "pnnnpnnnpnpnnni"

    def __call__(
        self, q_TNH: Tensor, k_TKH: Tensor, cos_TW: Tensor, sin_TW: Tensor
    ) -> tuple[Tensor, Tensor]:
        q_TNH, q_strides = dense_rows(q_TNH)
        k_TKH, k_strides = dense_rows(k_TKH)
        cos_TW, cos_strides = dense_rows(cos_TW)
        sin_TW, sin_strides = dense_rows(sin_TW)
        tokens, width = cos_TW.shape
        self._functions[q_TNH.dtype](
            q_TNH.data_ptr(),
            q_strides[0],
            q_strides[1],
            q_TNH.shape[1],
            k_TKH.data_ptr(),
            k_strides[0],
            k_strides[1],
            k_TKH.shape[1],
            cos_TW.data_ptr(),
            cos_strides[0],
            sin_TW.data_ptr(),
            sin_strides[0],
            tokens,
            width,
            torch.get_num_threads(),
        )
        return q_TNH, k_TKH
