"""One dense attention of some rows of a sequence to a range of its keys."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.kernel import KvLayer
from jackfield.plugins.kernels.triton.gather_kernel import gather

Attended = tuple[Tensor, Tensor]
"""The result [N, S, H], and the logarithm of the sum of the weights [N, S] (float32)."""
Attend = Callable[[Tensor, Tensor, Tensor, bool, float], Attended]
"""q_NSH, k_KLH, v_KLH, whether it is causal (then S = L), and the scale of the scores -> the
result in the type of q, with any strides, and the logarithm."""


class DenseCall(NamedTuple):
    """table_B: the sequence's blocks. q_NSH: the rows that attend."""

    attend: Attend
    layer: KvLayer
    table_B: Tensor
    q_NSH: Tensor

    def __call__(self, begin: int, end: int, causal: bool) -> Attended:
        """To the keys of positions [begin, end), which are copied side by side."""
        kv_heads = self.layer.tensors["k"].shape[1]
        shape = (2, kv_heads, end - begin, self.q_NSH.shape[2])
        room = torch.empty(shape, dtype=self.q_NSH.dtype, device=self.q_NSH.device)
        gather(self.layer, self.table_B, begin, end, room)
        return self.attend(self.q_NSH, room[0], room[1], causal, self.layer.scale)
