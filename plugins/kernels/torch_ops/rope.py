"""Rotary position embedding in the GPT-NeoX order: the halves of a head are rotated."""

from torch import Tensor

from jackfield.plugins.kernels.torch_ops.everywhere import Everywhere


class TorchRope(Everywhere):
    """In place; strided views of a merged projection are fine."""

    def __call__(
        self, q_TNH: Tensor, k_TKH: Tensor, cos_TW: Tensor, sin_TW: Tensor
    ) -> tuple[Tensor, Tensor]:
        cos, sin = cos_TW.unsqueeze(1), sin_TW.unsqueeze(1)
        _rotate(q_TNH, cos, sin)
        _rotate(k_TKH, cos, sin)
        return q_TNH, k_TKH


def _rotate(x_TNH: Tensor, cos_T1W: Tensor, sin_T1W: Tensor) -> None:
    width = cos_T1W.shape[-1]
    low, high = x_TNH[..., :width], x_TNH[..., width : 2 * width]
    rotated_low = (low * cos_T1W).addcmul_(high, sin_T1W, value=-1)
    rotated_high = (high * cos_T1W).addcmul_(low, sin_T1W)
    low.copy_(rotated_low)
    high.copy_(rotated_high)
