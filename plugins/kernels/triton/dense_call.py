"""One dense attention of some rows of a sequence to a range of its keys."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.kernel import KvLayer
from jackfield.plugins.kernels.triton.gather import Attended, gather

Attend = Callable[[Tensor, Tensor, Tensor, bool, float], Attended]
"""q_NSH, k_KLH, v_KLH, whether it is causal (then S = L), and the scale of the scores -> the
result in the type of q, and the logarithm, with strides that follow from q alone."""

Call = Callable[[int, int, bool], Attended]
"""The ends of a range of positions, and whether it is causal."""


class DenseCall(NamedTuple):
    """table_B: the sequence's blocks. native: as for `gather`. q_NSH: the rows that attend."""

    attend: Attend
    layer: KvLayer
    table_B: Tensor
    native: bool
    q_NSH: Tensor

    def __call__(self, begin: int, end: int, causal: bool) -> Attended:
        """To the keys of positions [begin, end), which are copied side by side."""
        q_NSH, layer = self.q_NSH, self.layer
        shape = (2, layer.tensors["k"].shape[1], end - begin, q_NSH.shape[2])
        room = torch.empty(shape, dtype=q_NSH.dtype, device=q_NSH.device)
        gather(layer, self.table_B, begin, end, room, self.native)
        return self.attend(q_NSH, room[0], room[1], causal, layer.scale)
