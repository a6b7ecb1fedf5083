"""Refuses at the door what would come too late, while the caller can still go elsewhere."""

from collections import deque
from collections.abc import Sequence
from math import inf

from pydantic import Field, PositiveFloat

from jackfield.core.api import (
    Event,
    EventKind,
    LoadView,
    PolicyConfig,
    PolicyContext,
    RequestView,
    Shape,
    StepView,
    Verdict,
    hookimpl,
)

FEWEST_ENDS, MOST_ENDS = 8, 64
"""From so many ends of answers the pace at which seats become free is taken."""


class SloAdmissionConfig(PolicyConfig):
    """first_token: seconds that the first token may take; None = any time. tiers: the same for
    requests of some tiers.
    """

    first_token: PositiveFloat | None = None
    tiers: dict[str, PositiveFloat] = Field(default_factory=dict)


class SloAdmission:
    """Refuses requests whose first token is predicted to come after their limit or deadline.

    The prediction: all who wait and all prompts under way are computed before, in full steps that
    take as long as the engine's own fit says, beside the answers that run now. Where seats or
    blocks are short, the queue moves at the pace at which answers ended lately, which is a rougher
    guess. Until enough is known, everybody is let in. A refusal tells by how many seconds the
    request would be late: so long the queue needs to become as short as it should be.

    Guarantee: nobody is refused while nobody else runs or waits, nor without a limit or deadline.

    Source: early rejection by predicted load, Qin et al., Mooncake: Trading More Storage for Less
    Computation, FAST 2025.
    """

    Config = SloAdmissionConfig

    def __init__(self, config: SloAdmissionConfig, context: PolicyContext) -> None:
        self._config = config
        self._context = context
        self._prompts: dict[int, RequestView] = {}
        self._ends: deque[float] = deque(maxlen=MOST_ENDS)
        self._decodes = self._attended = 0

    @hookimpl
    def shape(self, step: StepView) -> Shape:
        self._decodes, self._attended = step.decodes, step.context_tokens
        return Shape()

    @hookimpl
    def observe(self, events: Sequence[Event]) -> None:
        for kind, request, now, _ in events:
            if kind is EventKind.ADMITTED:
                self._prompts[request.handle] = request
            elif kind is not EventKind.ARRIVED:
                self._prompts.pop(request.handle, None)
            if kind is EventKind.FINISHED:
                self._ends.append(now)

    @hookimpl
    def admit(self, requests: Sequence[RequestView], load: LoadView) -> Sequence[Verdict]:
        if not load.running:
            self._decodes = self._attended = 0
        verdicts, ahead, tokens = [], load.waiting, load.waiting_tokens
        backlog = self._backlog()
        for request in requests:
            new = tokens + request.num_prompt_tokens
            ends = self._ends_before(ahead + 1, new, load)
            computing = self._computing(backlog + new, load.in_flight)
            late = max(computing, self._passing(ends, load.now))
            late -= self._allowed(request, load.now)
            refused = late > 0 and (load.running or ahead)
            verdicts.append(Verdict.reject("too_late", late) if refused else Verdict.accept())
            if not refused:
                ahead, tokens = ahead + 1, new
        return verdicts

    def _backlog(self) -> int:
        left = {h: r.num_prompt_tokens - r.num_computed_tokens for h, r in self._prompts.items()}
        self._prompts = {h: r for h, r in self._prompts.items() if left[h] > 0}
        return sum(left[handle] for handle in self._prompts)

    def _computing(self, tokens: int, steps: int) -> float:
        """Seconds of so many steps and those for the tokens; a last one of several will be full."""
        chunk = max(self._context.max_num_batched_tokens - self._decodes, 1)
        predict, last = self._context.predict.step_seconds, min(tokens, chunk)
        each = predict(self._decodes, self._attended, last)
        steps += -(-tokens // chunk)
        return -inf if each is None else steps * each

    def _ends_before(self, requests: int, tokens: int, load: LoadView) -> float:
        """How many answers have to end before all of these have seats and blocks: as many as there
        are requests without, since running answers take what is free beside them."""
        seats = load.running + requests - self._context.max_num_seqs
        fits = load.free_blocks * self._context.block_size / tokens
        return max(seats, requests * (1 - fits))

    def _passing(self, ends: float, now: float) -> float:
        """Seconds in which so many answers end."""
        unknown = ends <= 0 or len(self._ends) < FEWEST_ENDS
        return -inf if unknown else ends * (now - self._ends[0]) / len(self._ends)

    def _allowed(self, request: RequestView, now: float) -> float:
        """Seconds from now."""
        context = request.context
        limit = self._config.tiers.get(context.tier, self._config.first_token)
        until = inf if limit is None else request.arrival + limit
        return min(until, inf if context.deadline is None else context.deadline) - now
