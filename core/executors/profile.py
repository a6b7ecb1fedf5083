"""One run of the largest steps, before the pool is sized: how much memory they take."""

from collections.abc import Callable
from contextlib import closing
from typing import Protocol

import torch

from jackfield.core.api import CapacityError
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.runner import LoadedModel, Runner
from jackfield.core.executors.profile_steps import blocks_needed, largest_steps


class MemoryProbe(Protocol):
    """Watches what this process takes of a device."""

    def begin(self) -> None:
        """From now on."""

    def peak(self) -> int:
        """The most bytes since then beside those that were held before. Called once."""


class CudaProbe:
    """What torch reserves on a GPU, so that gaps between its tensors count too."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = 0

    def begin(self) -> None:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        self._before = torch.cuda.memory_reserved(self._device)

    def peak(self) -> int:
        torch.cuda.synchronize(self._device)
        peak = torch.cuda.max_memory_reserved(self._device)
        return peak - self._before


def profile(
    load: Callable[[int], LoadedModel],
    limits: Limits,
    block_size: int,
    device: torch.device,
    probe: MemoryProbe,
) -> int:
    """Bytes that the largest step holds at most beside weights and pool.

    load: the model with a pool of so many blocks. Raises `CapacityError` if such a step cannot run
    even without more of a pool.
    """
    num_blocks = blocks_needed(limits, block_size)
    try:
        loaded = load(num_blocks)
        for layer in loaded.layers:
            for tensor in layer.tensors.values():
                tensor.view(torch.uint8).zero_()
        probe.begin()
        _run(loaded, limits, block_size, num_blocks, device)
        return probe.peak()
    except torch.OutOfMemoryError as error:
        raise CapacityError(
            f"the largest step, of {limits.max_tokens} tokens in {limits.max_seqs} sequences of "
            f"up to {limits.max_model_len} positions, does not fit beside the weights: "
            f"{str(error).splitlines()[0]} Lower engine.max_num_batched_tokens, "
            f"engine.max_num_seqs or model.max_model_len"
        ) from error


def _run(
    loaded: LoadedModel, limits: Limits, block_size: int, num_blocks: int, device: torch.device
) -> None:
    runner = Runner(loaded, limits, block_size, device)
    with torch.inference_mode(), closing(runner):
        for plan in largest_steps(limits, block_size, num_blocks):
            ticket = runner.forward(plan)
            runner.sample(ticket, {})
            runner.collect(ticket)
