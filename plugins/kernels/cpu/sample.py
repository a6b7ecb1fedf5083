"""Sampling without a sort: one pass for the temperature, a radix selection for top_k and top_p.

Filters and their order are those of the C source: temperature, min_p, top_k, top_p.
"""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from jackfield.core.api.kernel import OpSpec, SampleBatch
from jackfield.plugins.kernels.cpu.library import Library, dense_rows

BLOCK = 256
"""Logits of which the greedy kernel notes one maximum."""


class CpuSample:
    """One thread per row, so no result depends on the other rows. Logits are not changed."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._scratch = torch.empty(0)

    def unsupported(self, spec: OpSpec, device: torch.device) -> list[str]:
        return self._library.refusals(device)

    def capturable(self) -> bool:
        return False

    def __call__(self, logits_RV: Tensor, batch: SampleBatch) -> Tensor:
        logits_RV, strides = dense_rows(logits_RV.float())
        tokens_R = torch.empty(logits_RV.shape[0], dtype=torch.int64)
        shape = (logits_RV.data_ptr(), strides[0], *logits_RV.shape)
        if batch.all_greedy:
            self._argmax(shape, tokens_R)
        else:
            self._draw(shape, batch, tokens_R)
        unsound_R = logits_RV.gather(1, tokens_R.unsqueeze(1)).isnan().squeeze(1)
        return torch.where(unsound_R, -1 - tokens_R, tokens_R)

    def _argmax(self, shape: tuple[int, ...], tokens_R: Tensor) -> None:
        scratch = self._floats(shape[2] * (shape[3] // BLOCK + 1))
        threads = torch.get_num_threads()
        self._argmax_kernel(*shape, scratch, tokens_R.data_ptr(), threads)

    def _draw(self, shape: tuple[int, ...], batch: SampleBatch, tokens_R: Tensor) -> None:
        threads = torch.get_num_threads()
        columns = (
            batch.temperature_R.to(torch.float32).contiguous(),
            batch.top_k_R.to(torch.int64).contiguous(),
            batch.top_p_R.to(torch.float32).contiguous(),
            batch.min_p_R.to(torch.float32).contiguous(),
            batch.seeds_R.contiguous(),
            batch.positions_R.contiguous(),
        )
        pointers = [column.data_ptr() for column in columns]
        scratch = self._floats(threads * _scratch_floats(shape[3]))
        self._draw_kernel(*shape, *pointers, scratch, tokens_R.data_ptr(), threads)

    def _floats(self, count: int) -> int:
        if self._scratch.numel() < count:
            self._scratch = torch.empty(count)
        return self._scratch.data_ptr()

    @cached_property
    def _argmax_kernel(self) -> Any:
        return self._library.function("jackfield_argmax", "pnnnppi")

    @cached_property
    def _draw_kernel(self) -> Any:
        return self._library.function("jackfield_sample", "pnnnppppppppi")


def _scratch_floats(vocabulary: int) -> int:
    """What one thread needs: the C source says how it is divided."""
    floats = 3 * (vocabulary + 1) + 3 * (vocabulary // BLOCK + 2)
    return (floats + 15) // 16 * 16
