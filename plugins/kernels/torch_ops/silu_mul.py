"""The gate of a feed-forward layer."""

from torch import Tensor
from torch.nn.functional import silu

from jackfield.plugins.kernels.torch_ops.everywhere import Everywhere


class TorchSiluMul(Everywhere):
    """`silu(gate) * up` of `[..., 2F]`."""

    def __call__(self, gate_up_T2F: Tensor) -> Tensor:
        gate, up = gate_up_T2F.chunk(2, dim=-1)
        return silu(gate).mul_(up)
