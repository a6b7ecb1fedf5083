"""Sampling from a part of the vocabulary, as the sampler of all of it draws."""

import torch
from torch import Tensor

from jackfield.core.api.draw import NO_TOKEN, Best, SampleBatch
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.sample import TritonSample
from jackfield.plugins.kernels.triton.sample_kernels import WIDTH
from jackfield.plugins.kernels.triton.sample_part_kernel import pick_part_kernel
from jackfield.plugins.kernels.triton.support import TritonConfig


class TritonSamplePart(TritonOperation):
    """Of rows without filters, whose cuts depend on the whole vocabulary."""

    def __init__(self, config: TritonConfig, configs: Configs | None = None) -> None:
        super().__init__(config)
        self._configs = configs or Configs("sample")
        self._whole = TritonSample(config, self._configs)

    def draws(self, batch: SampleBatch) -> bool:
        return batch.all_greedy or not batch.filtered

    def __call__(self, logits_RP: Tensor, first: int, batch: SampleBatch) -> Best:
        rows, width = logits_RP.shape
        value_R = torch.full((rows,), float("-inf"), device=logits_RP.device)
        token_R = torch.full_like(value_R, NO_TOKEN, dtype=torch.int64)
        if rows and width:
            self._pick(logits_RP, first, batch, Best(value_R, token_R))
        return Best(value_R, token_R)

    def _pick(self, logits_RP: Tensor, first: int, batch: SampleBatch, best: Best) -> None:
        assert first % WIDTH.value == 0, f"the part begins at {first}, inside a block"
        if logits_RP.stride(1) != 1:
            logits_RP = logits_RP.contiguous()
        blocks = self._whole.summarize(logits_RP, batch._replace(filtered=False))
        count = blocks.maxima_RG.shape[1]
        pick_part_kernel[(len(logits_RP),)](
            logits_RP,
            blocks.maxima_RG,
            blocks.sums_RG,
            batch.temperature_R,
            batch.seeds_R,
            batch.positions_R,
            *best,
            logits_RP.stride(0),
            logits_RP.shape[1],
            count,
            first,
            SIZE=power_of_two(count),
            DRAWS=not batch.all_greedy,
            **self._configs.find("pick", logits_RP.dtype, logits_RP.device),
        )
