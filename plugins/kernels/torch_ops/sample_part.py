"""Greedy sampling from a part of the vocabulary.

Shape suffix beside those of the contract: P tokens of the part.
"""

import torch
from torch import Tensor

from jackfield.core.api.draw import NO_TOKEN, Best, SampleBatch
from jackfield.plugins.kernels.torch_ops.everywhere import Everywhere


class TorchSamplePart(Everywhere):
    """Rows that are not greedy need the logits of all tokens: they are drawn from a sum over the
    vocabulary."""

    def draws(self, batch: SampleBatch) -> bool:
        return batch.all_greedy

    def __call__(self, logits_RP: Tensor, first: int, batch: SampleBatch) -> Best:
        rows, width = logits_RP.shape
        if width == 0:
            nothing_R = logits_RP.new_full((rows,), float("-inf"), dtype=torch.float32)
            return Best(nothing_R, torch.full_like(nothing_R, NO_TOKEN, dtype=torch.int64))
        logits_RP = logits_RP.float()
        token_R = logits_RP.argmax(-1)
        value_R = logits_RP.gather(1, token_R.unsqueeze(1)).squeeze(1)
        return Best(value_R, token_R + first)
