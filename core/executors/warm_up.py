"""Steps of all kinds before the first request comes: kernels are compiled, and graphs captured.

Their content means nothing. It goes to blocks that nobody has yet.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import cycle, islice

import torch

from jackfield.core.api import KernelPlugin, SamplingParams, SharedPrefixes
from jackfield.core.engine.graphs import padded_sizes
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.runner import LoadedModel, Runner
from jackfield.core.engine.steps import BlockUpdate, Join, Slice, StepPlan

Part = tuple[int, int]
"""Where a slice of a prompt starts, and its length."""
PROMPTS: Sequence[Sequence[Part]] = (
    [(0, 5)],
    [(0, 40)],
    [(0, 300)],
    [(1024, 4)],
    [(1024, 40)],
    [(3000, 300)],
    [(0, 16)] * 64,
    [(0, 100)] * 16,
    [(0, 4096)],
    [(2048, 4096)],
    [(0, 8192)],
    [(24_000, 8192)],
)
"""Few and many, short and long ones, with and without a past: kernels tell these apart."""
MIXED: Sequence[tuple[int, Part]] = ((2, (0, 5)), (40, (0, 100)), (40, (1024, 40)))
"""Decodes, and a part of a prompt beside them."""
SOME = SamplingParams(temperature=0.7)
FILTERED = SamplingParams(temperature=0.7, top_p=0.9, top_k=20)


def warm_up(
    runner: Runner, limits: Limits, block_size: int, num_blocks: int, device: torch.device
) -> None:
    """Run all kinds of steps once. On a CPU, where nothing is compiled at first use, it does
    nothing."""
    if device.type != "cuda":
        return
    runner.warm_up()
    with torch.inference_mode():
        for plan in warm_up_steps(limits, block_size, num_blocks):
            ticket = runner.forward(plan)
            runner.sample(ticket, {})
            runner.collect(ticket)


def rehearse(
    kernels: Sequence[KernelPlugin],
    loaded: LoadedModel,
    limits: Limits,
    block_size: int,
    device: torch.device,
) -> None:
    """Let plugins that want to see what steps launch before anything is launched see it.

    loaded: with a small pool.
    """
    contexts = [context for context in (one.rehearsal() for one in kernels) if context is not None]
    if not contexts:
        return
    # Inputs come from the host, since what the device makes is not there.
    plain = loaded._replace(operations=replace(loaded.operations, step_inputs=None))
    runner = Runner(plain, limits, block_size, device)
    num_blocks = len(next(iter(loaded.layers[0].tensors.values())))
    with torch.inference_mode(), ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        for plan in rehearsed_decodes(limits, block_size, num_blocks):
            runner.rehearse(plan)
            runner.rehearse(plan, _nothing_shared(plan, device))
        for plan in warm_up_steps(limits, block_size, num_blocks):
            runner.rehearse(plan)


def rehearsed_decodes(limits: Limits, block_size: int, num_blocks: int) -> list[StepPlan]:
    """Decodes of sizes that kernels tell apart, without filters and with them."""
    maker = _Maker(limits, block_size, num_blocks)
    powers = [size for size in padded_sizes(limits.max_seqs) if size & (size - 1) == 0]
    sizes = sorted({*powers, limits.max_seqs})
    plans = [maker.decodes(size, SOME) for size in sizes]
    return plans + [maker.decodes(size, FILTERED) for size in {sizes[0], sizes[-1]}]


def _nothing_shared(plan: StepPlan, device: torch.device) -> SharedPrefixes:
    order_S = torch.arange(len(plan.slices), dtype=torch.int32, device=device)
    zeros_S = torch.zeros_like(order_S)
    return SharedPrefixes(order_S, zeros_S, zeros_S + 1, zeros_S)


def warm_up_steps(limits: Limits, block_size: int, num_blocks: int) -> list[StepPlan]:
    """As far as the limits allow them."""
    maker = _Maker(limits, block_size, num_blocks)
    plans = [maker.plan(0, parts) for parts in PROMPTS]
    return plans + [maker.plan(decodes, [part]) for decodes, part in MIXED]


class _Maker:
    def __init__(self, limits: Limits, block_size: int, num_blocks: int) -> None:
        self._limits = limits
        count = -(-limits.max_model_len // block_size)
        self._blocks = list(islice(cycle(range(num_blocks)), count))
        self._number = 0

    def plan(self, decodes: int, parts: Sequence[Part]) -> StepPlan:
        """Decodes on the first seats, the parts on those behind them."""
        limits = self._limits
        plan = StepPlan(self._number)
        self._number += 1
        plan.num_decodes = min(decodes, limits.max_seqs - 1)
        for seat in range(plan.num_decodes):
            plan.slices.append(Slice(seat, seat, limits.max_model_len - 1, 1, None, 1, False))
        left = limits.max_tokens - plan.num_decodes
        for seat, (start, length) in enumerate(parts, plan.num_decodes):
            length = min(length, left, limits.max_model_len)
            if seat < limits.max_seqs and length > 0:
                start = min(start, limits.max_model_len - length)
                plan.slices.append(Slice(seat, seat, start, length, [0] * length, 1, False))
                left -= length
        return self._seated(plan, SOME)

    def decodes(self, count: int, params: SamplingParams) -> StepPlan:
        """Decodes alone."""
        plan = self.plan(min(count, self._limits.max_seqs - 1), [])
        for seat in range(plan.num_decodes, count):
            last = self._limits.max_model_len - 1
            plan.slices.append(Slice(seat, seat, last, 1, None, 1, False))
        plan.num_decodes = count
        return self._seated(plan, params)

    def _seated(self, plan: StepPlan, params: SamplingParams) -> StepPlan:
        seats = range(len(plan.slices))
        plan.joins = [Join(seat, seat, params, 0, (0,), (), frozenset(), ()) for seat in seats]
        plan.blocks = [BlockUpdate(seat, 0, self._blocks) for seat in seats]
        return plan
