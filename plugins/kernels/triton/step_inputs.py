"""A step's inputs from little news: one launch before the model.

A program has every so many chunks of the blocks and of the tokens of one slice. What is new of a
block table is read from the news alone, so no program waits for what another one writes.
"""

import triton
from torch import Tensor

from jackfield.core.api.kernel import SeatState, StepNews, StepTensors
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.step_inputs_kernel import step_inputs_kernel
from jackfield.plugins.kernels.triton.support import TritonConfig

PROGRAMS = 16
"""The most that work at one slice."""


class TritonStepInputs(TritonOperation):
    """The grid depends on the shapes alone."""

    def __init__(self, config: TritonConfig) -> None:
        super().__init__(config)
        self._configs = Configs("step_inputs")

    def __call__(
        self, news: StepNews, state: SeatState, block_size: int, into: StepTensors
    ) -> None:
        ids, positions, slots, lens, block_tables = into
        slices = len(news.seats_S)
        if slices == 0:
            return
        config = self._configs.find("any", ids.dtype, ids.device)
        # Every slice but the longest has a token at least.
        longest = max(len(ids) - slices + 1, block_tables.shape[1], len(news.new_blocks_U))
        programs = min(triton.cdiv(longest, config["BLOCK"]), PROGRAMS)
        step_inputs_kernel[(slices, programs)](
            *news,
            state.last_token_P,
            *_rows(state.tables_PB),
            ids,
            positions,
            slots,
            lens,
            *_rows(block_tables),
            BLOCK_SIZE=block_size,
            **config,
        )


def _rows(table: Tensor) -> tuple[Tensor, int]:
    assert table.stride(1) == 1
    return table, table.stride(0)
