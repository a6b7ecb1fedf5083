"""What one step may hold: the folded shape, and what is left of it for prompts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from jackfield.core.api import Shape
from jackfield.core.engine.planner import Planner
from jackfield.core.engine.reasons import Code
from jackfield.core.engine.request import Request

UNLIMITED = 2**31
KEPT = 7, 8
"""Of a chunk of a prompt: the least that may be left of it, for its end to be at a good place."""
LONG = 4
"""Times the alignment: prompts that want more are not begun, or gone on with, by the small rest of
a step at a place that is not good. All their later parts would be of other lengths than usual."""


class Caps(NamedTuple):
    """A folded `Shape` with the core's own limits filled in."""

    tokens: int
    prefill_tokens: int
    seqs: int
    new_seqs: int
    partial_prefills: int
    reserve_blocks: int

    @staticmethod
    def of(shape: Shape, max_tokens: int, max_seqs: int) -> "Caps":
        """No opinion means the core's limit."""
        return Caps(
            tokens=_at_most(shape.tokens, max_tokens),
            prefill_tokens=_at_most(shape.prefill_tokens, max_tokens),
            seqs=_at_most(shape.seqs, max_seqs),
            new_seqs=_at_most(shape.new_seqs, max_seqs),
            partial_prefills=_at_most(shape.partial_prefills, UNLIMITED),
            reserve_blocks=shape.reserve_blocks or 0,
        )

    def are_tighter(self, planner: Planner) -> bool:
        """Whether policies make the step smaller than the core would."""
        limits = planner.limits
        fewest = min(self.tokens, self.prefill_tokens)
        return fewest < limits.max_tokens or self.seqs < limits.max_seqs

    def full(self, planner: Planner) -> Code:
        """Why a step has no more positions."""
        return Code.STEP_LIMITED if self.are_tighter(planner) else Code.STEP_FULL

    def fits(self, planner: Planner, request: Request, needed: int = 0) -> bool:
        """Whether there are blocks for an admission, `needed` others left aside."""
        reserve = self.reserve_blocks if planner.running else 0
        wanted = planner.admission_blocks(request) + reserve + needed
        return wanted <= planner.pool.num_free

    def shortage(self, planner: Planner, request: Request) -> Code | None:
        """Why there are no blocks for an admission; None = there are."""
        if self.fits(planner, request):
            return None
        is_full = planner.admission_blocks(request) > planner.pool.num_free
        return Code.NO_BLOCKS if is_full else Code.BLOCKS_RESERVED


@dataclass(slots=True)
class Room:
    """What is left of the step for prompts: positions and sequences.

    alignment: of the ends of chunks. whole: positions before the first prompt. is_cut: a prompt has
    got less than it wanted; what the place of its end leaves is for those that want no more. A part
    of another prompt would only be a small one, end at a place that is not good, and come again in
    the next step.
    """

    tokens: int
    seqs: int
    alignment: int = 1
    whole: int = 0
    is_cut: bool = False

    @staticmethod
    def of(planner: Planner, caps: Caps) -> "Room":
        """After the decodes were granted."""
        used = planner.limits.max_tokens - planner.tokens_left
        tokens = min(caps.tokens - used, caps.prefill_tokens, planner.tokens_left)
        alignment = planner.limits.prompt_alignment
        return Room(max(tokens, 0), max(caps.seqs - used, 0), alignment, tokens)

    def after(self, prompts: Sequence[Request], limits: dict[int, int]) -> "Room":
        """What is left when these prompts get what they need, or what they are limited to."""
        left = replace(self, seqs=max(self.seqs - len(prompts), 0))
        for one in prompts:
            left.promise(one, min(one.need, limits.get(one.handle, UNLIMITED)))
        return left

    def promise(self, request: Request, wanted: int) -> None:
        """Keep its chunk for a prompt."""
        self.take(self.chunk(request, wanted), wanted)

    def chunk(self, request: Request, wanted: int) -> int:
        """How many of its next positions a prompt gets. wanted: what it needs, or what policies
        limit it to; only where the step has less than that, the end's place is looked at."""
        return self._part(request.computed, wanted, request.need)

    def take(self, length: int, wanted: int) -> None:
        """A prompt that wanted so much has got that chunk."""
        self.tokens -= length
        self.is_cut = self.is_cut or length < wanted

    def serves(self, planner: Planner, request: Request) -> bool:
        """Whether who waits can use what is left."""
        start = planner.cached_tokens(request)
        needed = request.total - start
        return needed <= 0 or self._part(start, needed, needed) > 0

    def _part(self, start: int, wanted: int, needed: int) -> int:
        if wanted <= self.tokens:
            return wanted
        if self.is_cut:
            return 0
        end = (start + self.tokens) // self.alignment * self.alignment
        shorter = max(end - start, 0)
        if 2 * self.tokens < self.whole and needed >= LONG * self.alignment:
            return shorter
        kept, of = KEPT
        return shorter if shorter > 0 and of * shorter >= kept * self.tokens else self.tokens


def admission_limit(
    planner: Planner, caps: Caps, left: Room, admitted: int, seats: int = 0
) -> Code | None:
    """Why nobody more can be admitted in this step; None = somebody can.

    left: what prompts before them leave, without what they are promised. admitted: in this round,
    `seats` before it.
    """
    if not planner.seats_left:
        return Code.NO_SEAT
    if left.tokens <= 0 or admitted >= left.seqs:
        return caps.full(planner)
    if admitted + seats >= caps.new_seqs:
        return Code.ADMISSIONS_LIMITED
    return None


def _at_most(limit: int | None, maximum: int) -> int:
    return maximum if limit is None else min(limit, maximum)
