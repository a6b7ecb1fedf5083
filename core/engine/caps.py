"""What one step may hold: the folded shape, and what is left of it for prompts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jackfield.core.api import Shape
from jackfield.core.engine.planner import Planner
from jackfield.core.engine.reasons import Code
from jackfield.core.engine.request import Request

UNLIMITED = 2**31


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
    """What is left of the step for prompts: positions and sequences."""

    tokens: int
    seqs: int

    @staticmethod
    def of(planner: Planner, caps: Caps) -> "Room":
        """After the decodes were granted."""
        used = planner.limits.max_tokens - planner.tokens_left
        tokens = min(caps.tokens - used, caps.prefill_tokens, planner.tokens_left)
        return Room(max(tokens, 0), max(caps.seqs - used, 0))

    def after(self, prompts: Sequence[Request], limits: dict[int, int]) -> "Room":
        """What is left when these prompts get what they need, or what they are limited to."""
        needs = [min(one.need, limits.get(one.handle, UNLIMITED)) for one in prompts]
        return Room(max(self.tokens - sum(needs), 0), max(self.seqs - len(prompts), 0))


def admission_limit(
    planner: Planner, caps: Caps, left: Room, tokens: int, admitted: int, seats: int = 0
) -> Code | None:
    """Why nobody more can be admitted in this step; None = somebody can.

    left: what prompts before them leave, `tokens` of which are not promised yet. admitted: in
    this round, `seats` before it.
    """
    if not planner.seats_left:
        return Code.NO_SEAT
    if tokens <= 0 or admitted >= left.seqs:
        return Code.STEP_LIMITED if caps.are_tighter(planner) else Code.STEP_FULL
    if admitted + seats >= caps.new_seqs:
        return Code.ADMISSIONS_LIMITED
    return None


def _at_most(limit: int | None, maximum: int) -> int:
    return maximum if limit is None else min(limit, maximum)
