"""Steps of decodes as CUDA graphs: launched in one go, at sizes padded to a few.

A graph holds everything from the news of a step to the tokens that are fed to the next one. It is
captured at the start, the largest first, so that all others fit into the memory that it took; those
with filters or common beginnings when their size has come a few times, which takes tens of
milliseconds. Until then a graph of up to twice that size stands in.
"""

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from jackfield.core.engine.batch import Batch, Rows
from jackfield.core.engine.capture_streams import CaptureStreams
from jackfield.core.engine.device_inputs import Arrays, DeviceInputs, Shape, Views, views_of
from jackfield.core.engine.packing import Packing
from jackfield.core.engine.prefix_groups import SMALLEST_GROUP
from jackfield.core.engine.token_ring import NOBODYS, TokenRing

log = logging.getLogger("jackfield.engine")
SMALL_SIZES = (1, 2, 4, 8)
FINE, FINE_UNTIL = 8, 256
COARSE = 32
LARGEST = 512
WORTH = 8
"""Steps of a size from which on a graph of its own is worth being captured."""
"""Slices; larger steps take so long that their launches do not count."""


class Variant(NamedTuple):
    """What is captured. size: slices. samples: whether it draws the tokens, too; filtered: from
    parts of the vocabulary. grouped: whether common beginnings are read once. short: whether no
    sequence is longer than those of `ShortSteps`."""

    size: int
    samples: bool = True
    filtered: bool = False
    grouped: bool = False
    short: bool = False


class Outputs(NamedTuple):
    """What a step gives: the rows' tokens if it samples, else their logits."""

    logits_RV: Tensor | None
    tokens_R: Tensor | None


Compute = Callable[[Batch, bool], Outputs]
"""One step from its tensors to its outputs; the flag says whether it samples and feeds."""


@dataclass(slots=True)
class Captured:
    """One graph, where its news go, and the logits that it gives if it does not sample."""

    size: int
    graph: torch.cuda.CUDAGraph
    news: Tensor
    packing: Packing
    rows: Rows
    logits_RV: Tensor | None


class ShortSteps(NamedTuple):
    """Steps of at most so many decodes, none of them longer, that are not launched like others."""

    decodes: int
    positions: int


NO_SHORT_STEPS = ShortSteps(0, 0)


class Sizes(NamedTuple):
    """slices: that steps are padded to, ascending. max_len: of a sequence."""

    slices: Sequence[int]
    max_len: int
    short_steps: ShortSteps = NO_SHORT_STEPS

    def variant(self, shape: Shape, samples: bool) -> Variant:
        """The one for a step of decodes."""
        size = self.slices[bisect_left(self.slices, shape.num_tokens)]
        short = size <= self.short_steps.decodes and shape.max_len <= self.short_steps.positions
        return Variant(size, samples, shape.filtered and samples, shape.grouped, short)

    def plain(self, samples: bool) -> Iterator[Variant]:
        """All without filters and common beginnings, the largest first."""
        for size in reversed(self.slices):
            yield Variant(size, samples)
            if size <= self.short_steps.decodes:
                yield Variant(size, samples, short=True)

    def longest(self, variant: Variant) -> int:
        """Positions that its sequences may have."""
        return min(self.max_len, self.short_steps.positions) if variant.short else self.max_len


def padded_sizes(most: int) -> list[int]:
    """Sizes for steps of up to `most` slices, ascending."""
    sizes = [*SMALL_SIZES, *range(2 * FINE, FINE_UNTIL + 1, FINE)]
    sizes += range(FINE_UNTIL + COARSE, LARGEST + 1, COARSE)
    limit = min(most, LARGEST)
    return [*(size for size in sizes if size < limit), limit]


class DecodeGraphs:
    """Captures and replays. All calls come from the thread that runs the model."""

    streams: ClassVar = CaptureStreams(torch.cuda.Stream)

    def __init__(
        self,
        inputs: DeviceInputs,
        compute: Compute,
        sizes: Sizes,
        device: torch.device,
    ) -> None:
        self._inputs = inputs
        self._compute = compute
        self._sizes = sizes
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._side: torch.cuda.Stream | None = None
        self.ring = TokenRing(sizes.slices[-1], device)
        self._logits_RV: Tensor | None = None
        self._graphs: dict[Variant, Captured | None] = {}
        self._asked: Counter[Variant] = Counter()
        self._begun: list[torch.cuda.CUDAGraph] = []

    def fits(self, num_slices: int) -> bool:
        """Whether there is a size for so many decodes."""
        return num_slices <= self._sizes.slices[-1]

    def warm_up(self, *, samples: bool) -> None:
        """Capture all plain sizes, the largest first, and see that whatever kernels others need
        are there."""
        for variant in self._sizes.plain(samples):
            self._captured(variant)
        for size in (self._sizes.slices[-1], self._sizes.slices[0]):
            if self._sizes.slices[-1] >= SMALLEST_GROUP:
                self._captured(Variant(size, samples, grouped=True))
            self._captured(Variant(size, samples, filtered=samples))

    def find(self, shape: Shape, *, samples: bool) -> Captured | None:
        """The graph for a step of decodes; None if it could not be captured."""
        return self._captured(self._standing_in(self._sizes.variant(shape, samples)))

    def run(self, found: Captured, arrays: Arrays, shape: Shape) -> int:
        """One step of decodes. If it samples, its tokens are in the ring's slot that this returns;
        its logits may be overwritten by the next step."""
        size = found.size
        if len(arrays.new_blocks_U) > size:
            self._inputs.tell(arrays, shape)
        slot = self.ring.take()
        arrays.ring_1 = self.ring.told(slot)
        self._inputs.fill(found.news, found.packing, self._inputs.padded(arrays, size))
        found.graph.replay()
        return slot

    def close(self) -> None:
        """Destroy the graphs, and leave the stream to the next engine. Nothing is run afterwards.

        All at once: with any of them, scratch memory may go that the others hold the address of.
        """
        with suppress(RuntimeError):  # a device that is broken has shown that before
            torch.cuda.current_stream(self._device).synchronize()
        self._graphs.clear()
        for graph in self._begun:
            graph.reset()
        self._begun.clear()
        self._logits_RV = None
        if self._side is not None:
            self.streams.give_back(self._side, self._device)
            self._side = None

    def _standing_in(self, variant: Variant) -> Variant:
        """Itself, or a larger one that is there, as long as it is asked for only now and then."""
        if variant in self._graphs:
            return variant
        self._asked[variant] += 1
        if self._asked[variant] > WORTH:
            return variant
        sizes = self._sizes.slices
        larger = (variant._replace(size=size) for size in sizes[bisect_left(sizes, variant.size) :])
        there = (one for one in larger if self._graphs.get(one) is not None)
        found = next(there, variant)
        return found if found.size <= 2 * variant.size else variant

    def _captured(self, variant: Variant) -> Captured | None:
        if variant not in self._graphs:
            try:
                self._graphs[variant] = self._capture(variant)
            except RuntimeError as error:
                self._graphs[variant] = None
                told = "%s is launched kernel by kernel from now on: capturing it failed: %s"
                log.warning(told, variant, error)
        return self._graphs[variant]

    def _capture(self, variant: Variant) -> Captured:
        shape = Shape(
            variant.size, variant.size, 1, self._sizes.longest(variant), (), False,
            variant.filtered, variant.grouped,
        )  # fmt: skip
        nothing = self._inputs.nothing(shape)
        nothing.ring_1 = self.ring.told(NOBODYS)
        arrays = nothing.listed()
        packing = Packing.of(arrays)
        news = torch.empty(packing.size, dtype=torch.uint8, device=self._device)
        self._inputs.fill(news, packing, nothing)
        views = views_of(nothing, packing.views(news), shape)
        side = self._side = self._side or self.streams.lend(self._device)
        graph = torch.cuda.CUDAGraph()
        self._begun.append(graph)  # whether or not it succeeds: it must last as long as the others
        current = torch.cuda.current_stream(self._device)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            # Once without capturing: kernels are compiled and libraries make their handles.
            self._compute_once(views, shape, variant)
            side.synchronize()
            # Not by `torch.cuda.graph`, which collects garbage each time. Threads that copy blocks
            # to and from tiers go on meanwhile.
            graph.capture_begin(self._pool, capture_error_mode="thread_local")
            try:
                rows, logits_RV = self._compute_once(views, shape, variant)
            finally:
                graph.capture_end()
        current.wait_stream(side)
        log.debug("captured %s", variant)
        return Captured(variant.size, graph, news, packing, rows, logits_RV)

    def _compute_once(
        self, views: Views, shape: Shape, variant: Variant
    ) -> tuple[Rows, Tensor | None]:
        """Tokens go to the ring. Logits are copied out, so that all graphs can compute theirs in
        the same memory."""
        batch = self._inputs.batch(views, shape)
        assert batch.rows is not None and views.ring_1 is not None, "decodes always sample"
        logits_RV, tokens_R = self._compute(batch, variant.samples)
        if tokens_R is not None:
            self.ring.write(tokens_R, views.ring_1)
        if logits_RV is None:
            return batch.rows, None
        rows, vocabulary = logits_RV.shape
        if self._logits_RV is None:
            self._logits_RV = logits_RV.new_empty((self._sizes.slices[-1], vocabulary))
        return batch.rows, self._logits_RV[:rows].copy_(logits_RV)
