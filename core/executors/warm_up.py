"""Steps of all kinds before the first request comes: kernels are compiled, and graphs captured.

Their content means nothing. It goes to blocks that nobody has yet.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import cycle, islice
from typing import Any, NamedTuple

import torch

from jackfield.core.api import KernelPlugin, SamplingParams, SeatState, StepNews, StepTensors
from jackfield.core.engine.device_inputs import MakeInputs
from jackfield.core.engine.graphs import padded_sizes
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.prompt_scores import SCORE_ROWS
from jackfield.core.engine.runner import LoadedModel, Runner
from jackfield.core.engine.steps import BlockUpdate, Join, Slice, StepPlan

log = logging.getLogger("jackfield.engine")

Part = tuple[int, int]
"""Where a slice of a prompt starts, and its length."""
LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Of prompts: kernels tell these apart, or some of them."""
PASTS = (0, 3000)
"""Of prompts of these lengths."""
PROMPTS: Sequence[Sequence[Part]] = (
    *([(past, length)] for length in LENGTHS for past in PASTS),
    [(900, 16)],
    [(0, 16)] * 64,
    [(0, 100)] * 16,
    [(0, 4096)],
    [(2051, 4099)],
    [(0, 8192)],
    [(24_003, 8189)],
    [(60_003, 4093)],
)
"""Few and many, short and long ones, with and without a past: kernels tell these apart."""
FEW, SHORT = 32, 1000
"""Decodes up to which it may count whether they are short; positions of those that are. Others are
as long as they may be."""


class Mixed(NamedTuple):
    """Decodes, and parts of prompts beside them. alike: whether the decodes begin with the same
    blocks; short: whether they are of `SHORT` positions."""

    decodes: int
    parts: Sequence[Part]
    params: SamplingParams
    alike: bool = False
    short: bool = False


SOME = SamplingParams(temperature=0.7)
FILTERED = SamplingParams(temperature=0.7, top_p=0.9, top_k=20)
GREEDY = SamplingParams(temperature=0.0)
SCORED = SamplingParams(temperature=0.7, prompt_logprobs=0)
MIXED: Sequence[Mixed] = (
    Mixed(2, [(0, 5)], SOME, short=True),
    Mixed(8, [(0, 5)], SOME, alike=True, short=True),
    Mixed(2, [(0, 1024)] * 3, GREEDY, short=True),
    Mixed(40, [(0, 100)], SOME),
    Mixed(40, [(1024, 40)], SOME, alike=True),
    Mixed(40, [(0, 4096)], SOME),
)
"""Few and many, alone with what they read and not, beside little and beside much: kernels may tell
all of these apart."""


def warm_up(
    runner: Runner, limits: Limits, block_size: int, num_blocks: int, device: torch.device
) -> None:
    """Run all kinds of steps once. On a CPU, where nothing is compiled at first use, it does
    nothing."""
    if device.type != "cuda":
        return
    runner.warm_up()
    run_steps(runner, warm_up_steps(limits, block_size, num_blocks))


def run_steps(runner: Runner, plans: Sequence[StepPlan]) -> None:
    """One after the other, as they are run for requests."""
    with torch.inference_mode():
        for plan in plans:
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

    loaded: with a small pool. Nobody depends on it, so what fails in a step only ends it.
    """
    contexts = [context for context in (one.rehearsal() for one in kernels) if context is not None]
    if not contexts:
        return
    make = loaded.operations.step_inputs
    if make is not None:
        bounded: Any = _WithinBounds(make)
        loaded = loaded._replace(operations=replace(loaded.operations, step_inputs=bounded))
    runner = Runner(loaded, limits, block_size, device)
    num_blocks = len(next(iter(loaded.layers[0].tensors.values())))
    with torch.inference_mode(), closing(runner), ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        try:
            for plan, grouped in rehearsed_steps(limits, block_size, num_blocks):
                runner.rehearse(plan, grouped=grouped)
        except Exception as error:
            told = "kernels are compiled when they are first needed, since rehearsing failed: %s"
            log.warning(told, error, exc_info=True)


class _WithinBounds:
    """Where launches are left out, a step's inputs are whatever lay in their memory. Nothing may
    read past the end of anything for that, so they become what everybody can read."""

    def __init__(self, make: MakeInputs) -> None:
        self._make = make

    def __call__(
        self, news: StepNews, state: SeatState, block_size: int, into: StepTensors
    ) -> None:
        self._make(news, state, block_size, into)
        for tensor in (into.ids_T, into.positions_T, into.slots_T, into.block_tables_SB):
            tensor.zero_()
        torch.add(news.starts_S, news.lengths_S, out=into.lens_S)


def rehearsed_steps(
    limits: Limits, block_size: int, num_blocks: int
) -> Iterator[tuple[StepPlan, bool]]:
    """Steps, and whether their decodes may share beginnings. What takes longest to compile comes
    first."""
    for plan in rehearsed_decodes(limits, block_size, num_blocks):
        yield plan, False
        yield plan, True
    for plan in warm_up_steps(limits, block_size, num_blocks):
        yield plan, True


def rehearsed_decodes(limits: Limits, block_size: int, num_blocks: int) -> list[StepPlan]:
    """Decodes of sizes that kernels tell apart, filtered, greedy and plain, and few short ones."""
    maker = _Maker(limits, block_size, num_blocks)
    powers = [size for size in padded_sizes(limits.max_seqs) if size & (size - 1) == 0]
    sizes = sorted({*powers, limits.max_seqs})
    plans = [maker.decodes(size, FILTERED) for size in sorted({sizes[0], sizes[-1]})]
    plans.append(maker.decodes(sizes[0], GREEDY))
    plans += [maker.decodes(size, SOME) for size in sizes]
    if limits.max_model_len <= SHORT:
        return plans
    few = max(size for size in powers if size <= FEW)
    return plans + [maker.decodes(size, SOME, SHORT) for size in sorted({sizes[0], few})]


def warm_up_steps(limits: Limits, block_size: int, num_blocks: int) -> list[StepPlan]:
    """As far as the limits allow them; none that is the same as another within them."""
    maker = _Maker(limits, block_size, num_blocks)
    plans = [maker.mixed(Mixed(0, parts, SOME)) for parts in PROMPTS]
    plans += [maker.mixed(one) for one in MIXED]
    return list({_shape(plan): plan for plan in plans}.values())


def _shape(plan: StepPlan) -> tuple[int, tuple[Part, ...]]:
    return plan.num_decodes, tuple((part.start, part.length) for part in plan.slices)


class _Maker:
    def __init__(self, limits: Limits, block_size: int, num_blocks: int) -> None:
        self._limits = limits
        self._count = -(-limits.max_model_len // block_size)
        self._num_blocks = num_blocks
        self._blocks = list(islice(cycle(range(num_blocks)), self._count + num_blocks))
        self._number = 0

    def mixed(self, wanted: Mixed) -> StepPlan:
        """Decodes on the first seats, the parts on those behind them. A short part at a prompt's
        beginning has its own tokens scored."""
        limits, parts = self._limits, wanted.parts
        decodes = min(wanted.decodes, limits.max_seqs - 1)
        plan = self._begun(decodes, SHORT if wanted.short else limits.max_model_len)
        left = limits.max_tokens - decodes
        for seat, (start, length) in enumerate(parts, decodes):
            length = min(length, left, limits.max_model_len)
            if seat < limits.max_seqs and length > 0:
                start = min(start, limits.max_model_len - length)
                scores = start == 0 and len(parts) == 1 and length <= SCORE_ROWS
                plan.slices.append(Slice(seat, seat, start, length, [0] * length, 1, scores))
                left -= length
        return self._seated(plan, wanted.params, alike=wanted.alike)

    def decodes(self, count: int, params: SamplingParams, length: int | None = None) -> StepPlan:
        """Decodes alone, which begin with the same blocks. length: positions, None = the most."""
        plan = self._begun(count, length or self._limits.max_model_len)
        return self._seated(plan, params, alike=True)

    def _begun(self, decodes: int, length: int) -> StepPlan:
        """length: positions of each of the decodes, if there may be so many."""
        plan = StepPlan(self._number, num_decodes=decodes)
        self._number += 1
        last = min(length, self._limits.max_model_len) - 1
        plan.slices = [Slice(seat, seat, last, 1, None, 1, False) for seat in range(decodes)]
        return plan

    def _seated(self, plan: StepPlan, params: SamplingParams, *, alike: bool) -> StepPlan:
        plan.joins = [_join(part, SCORED if part.scores else params) for part in plan.slices]
        plan.blocks = [
            BlockUpdate(part.seat, 0, self._table(0 if alike else part.seat))
            for part in plan.slices
        ]
        return plan

    def _table(self, first: int) -> list[int]:
        """As long as any may be. first: the block that it begins with."""
        first %= self._num_blocks
        return self._blocks[first : first + self._count]


def _join(part: Slice, params: SamplingParams) -> Join:
    """Whose prompt reaches beyond the part if it is scored."""
    prompt = (0,) * (part.length + 1 if part.scores else 1)
    return Join(part.seat, part.handle, params, 0, prompt, (), frozenset(), ())
