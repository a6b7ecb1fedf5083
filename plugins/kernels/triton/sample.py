"""Sampling that never asks the device: argmax, Gumbel noise, and filters that find a cut.

Shape suffixes beside those of the contract: G blocks of the vocabulary, L programs of a row.
"""

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from jackfield.core.api.kernel import SampleBatch
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.filter_kernels import cut_kernel, restrict_kernel
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.rank_kernels import ROOM
from jackfield.plugins.kernels.triton.sample_kernels import WIDTH, pick_kernel, summarize_kernel
from jackfield.plugins.kernels.triton.support import TritonConfig

UNUSED_BITS = {torch.float32: 0, torch.float16: 13, torch.bfloat16: 16}
"""The lowest bits of a float32 that are 0 in every number of a type."""

FEW_ROWS = 128
"""As many as there are processors on the smallest GPUs that matter: each has one row, or none."""


RESTRICTING = 2048
"""Programs that look at blocks behind a cut: if all rows are done already, they cost little."""


class Cut(NamedTuple):
    """What is kept of a row: logits above logit_R, and its equals up to the id last_R.

    count_R: how many of the row's listed_RG blocks still count as if all of them was kept.
    """

    logit_R: Tensor
    last_R: Tensor
    count_R: Tensor
    listed_RG: Tensor

    @classmethod
    def empty(cls, rows: int, blocks: int, device: torch.device) -> "Cut":
        return cls(
            torch.empty(rows, dtype=torch.float32, device=device),
            torch.empty(rows, dtype=torch.int32, device=device),
            torch.empty(rows, dtype=torch.int32, device=device),
            torch.empty(rows, blocks, dtype=torch.int32, device=device),
        )


class Blocks(NamedTuple):
    """A row in blocks: largest logit, sum of weights, lowest logit of what a program sees."""

    maxima_RG: Tensor
    sums_RG: Tensor
    lows_RL: Tensor

    @classmethod
    def empty(cls, rows: int, blocks: int, programs: int, device: torch.device) -> "Blocks":
        return cls(
            torch.empty(rows, blocks, dtype=torch.float32, device=device),
            torch.empty(rows, blocks, dtype=torch.int32, device=device),
            torch.empty(rows, programs, dtype=torch.float32, device=device),
        )


class TritonSample(TritonOperation):
    """Logits are read as they come and are not changed. No result depends on the other rows.

    A token that no filter leaves out is drawn as if there were no filter.
    """

    def __init__(self, config: TritonConfig, configs: Configs | None = None) -> None:
        super().__init__(config)
        self._configs = configs or Configs("sample")

    def __call__(self, logits_RV: Tensor, batch: SampleBatch) -> Tensor:
        tokens_R = torch.empty(len(logits_RV), dtype=torch.int64, device=logits_RV.device)
        if len(logits_RV) == 0:
            return tokens_R
        if logits_RV.stride(1) != 1:
            logits_RV = logits_RV.contiguous()
        blocks = self.summarize(logits_RV, batch)
        cut = None
        if batch.filtered and not batch.all_greedy:
            cut = self._cut(logits_RV, batch, blocks)
            self._restrict(logits_RV, batch, blocks, cut)
        self._pick(logits_RV, batch, blocks, cut, tokens_R)
        return tokens_R

    def cut(self, logits_RV: Tensor, batch: SampleBatch) -> Cut:
        """What the filters keep."""
        return self._cut(logits_RV, batch, self.summarize(logits_RV, batch))

    def summarize(self, logits_RV: Tensor, batch: SampleBatch) -> Blocks:
        """Of all rows, whose tokens lie side by side."""
        rows, vocabulary = logits_RV.shape
        config = self._configs.find("summarize", logits_RV.dtype, logits_RV.device)
        count = triton.cdiv(vocabulary, WIDTH.value)
        programs = triton.cdiv(count, config["TILE"])
        blocks = Blocks.empty(rows, count, programs, logits_RV.device)
        summarize_kernel[(programs, rows)](
            logits_RV,
            *blocks,
            batch.temperature_R,
            logits_RV.stride(0),
            vocabulary,
            count,
            DRAWS=not batch.all_greedy,
            FILTERED=batch.filtered,
            **config,
        )
        return blocks

    def _cut(self, logits_RV: Tensor, batch: SampleBatch, blocks: Blocks) -> Cut:
        rows, vocabulary = logits_RV.shape
        count, programs = blocks.maxima_RG.shape[1], blocks.lows_RL.shape[1]
        device = logits_RV.device
        cut = Cut.empty(rows, count, device)
        shape = "cut_few" if rows <= FEW_ROWS else "cut_many"
        cut_kernel[(rows,)](
            logits_RV,
            *blocks,
            cut.listed_RG,
            torch.empty(rows, ROOM.value, dtype=torch.int64, device=device),
            cut.logit_R,
            cut.last_R,
            cut.count_R,
            batch.temperature_R,
            batch.top_k_R,
            batch.top_p_R,
            batch.min_p_R,
            logits_RV.stride(0),
            vocabulary,
            count,
            programs,
            SIZE=power_of_two(count),
            PARTS=power_of_two(programs),
            UNUSED=UNUSED_BITS[logits_RV.dtype],
            **self._configs.find(shape, logits_RV.dtype, device),
        )
        return cut

    def _restrict(self, logits_RV: Tensor, batch: SampleBatch, blocks: Blocks, cut: Cut) -> None:
        rows, vocabulary = logits_RV.shape
        config = self._configs.find("restrict", logits_RV.dtype, logits_RV.device)
        count = blocks.maxima_RG.shape[1]
        programs = min(triton.cdiv(count, config["TILE"]), triton.cdiv(RESTRICTING, rows))
        restrict_kernel[(programs, rows)](
            logits_RV,
            blocks.maxima_RG,
            blocks.sums_RG,
            cut.listed_RG,
            cut.logit_R,
            cut.last_R,
            cut.count_R,
            batch.temperature_R,
            logits_RV.stride(0),
            vocabulary,
            count,
            **config,
        )

    def _pick(
        self,
        logits_RV: Tensor,
        batch: SampleBatch,
        blocks: Blocks,
        cut: Cut | None,
        tokens_R: Tensor,
    ) -> None:
        count = blocks.maxima_RG.shape[1]
        # Without filters no cut is read.
        logit_R, last_R = cut[:2] if cut else (blocks.maxima_RG, blocks.sums_RG)
        pick_kernel[(len(tokens_R),)](
            logits_RV,
            blocks.maxima_RG,
            blocks.sums_RG,
            logit_R,
            last_R,
            batch.temperature_R,
            batch.seeds_R,
            batch.positions_R,
            tokens_R,
            logits_RV.stride(0),
            logits_RV.shape[1],
            count,
            SIZE=power_of_two(count),
            DRAWS=not batch.all_greedy,
            FILTERED=cut is not None,
            **self._configs.find("pick", logits_RV.dtype, logits_RV.device),
        )
