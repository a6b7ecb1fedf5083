"""Residual sum, then root mean square norm."""

from torch import Tensor
from torch.nn.functional import rms_norm

from jackfield.plugins.kernels.torch_ops.everywhere import Everywhere


class TorchAddRmsNorm(Everywhere):
    """The sum is kept in the place of the residual."""

    def __call__(
        self, x_TD: Tensor, residual_TD: Tensor, weight_D: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        residual_TD.add_(x_TD)
        return rms_norm(residual_TD, weight_D.shape, weight_D, eps), residual_TD
