"""Multi-level feedback: who has been served little goes before who has been served much."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from pydantic import Field

from jackfield.core.api import (
    ClassState,
    Discipline,
    PolicyConfig,
    PolicyContext,
    Rank,
    RequestView,
    Work,
)

LOOKS = 8
"""How often per quantum a running request is looked at."""


class MlfqConfig(PolicyConfig):
    """quantum: tokens of service at the first level; each further level holds twice as many.

    levels: how many there are. preempt: whether a waiting request takes the seat of a running one
    at a worse level.
    """

    quantum: int = Field(128, ge=1)
    levels: int = Field(8, ge=2, le=32)
    preempt: bool = True


@dataclass(slots=True)
class Runners:
    """The running requests of a level, by handle, and in how many steps they worked."""

    requests: dict[int, RequestView] = field(default_factory=dict)
    steps: int = 0


class Mlfq(Discipline[Runners]):
    """One class per level of attained service, which is prompt and answer tokens so far.

    A request joins at the level that holds its prompt, so a long one skips the levels that it
    would only pass through, and sinks while it runs. No guess of the length of answers is needed:
    short ones end before they sink.

    Guarantee: nobody is admitted while somebody of a better level waits, except through the
    starvation valve, and thanks to the valve nobody starves: keep `engine.starvation_share` above
    0. With `preempt` who runs at a worse level gives its seat up in the next step, and computes
    its tokens again later.

    Source: Wu et al., Fast Distributed Inference Serving for Large Language Models, NSDI 2026
    (skip-join multi-level feedback queue).
    """

    Config = MlfqConfig

    def __init__(self, config: MlfqConfig, context: PolicyContext) -> None:
        super().__init__(config, context)
        self.preempt_margin = 0.0 if config.preempt else None
        self._last = config.levels - 1
        self._quantum = config.quantum
        self._every = max(config.quantum // LOOKS, 1)

    def classify(self, request: RequestView) -> Hashable:
        service = request.num_prompt_tokens + request.num_output_tokens
        quanta = -(-service // self._quantum)
        return min(max(quanta - 1, 0).bit_length(), self._last)

    def rank(self, cls: ClassState[Runners], now: float) -> Rank:
        return cls.key if isinstance(cls.key, int) else self._last + 1

    def admitted(self, cls: ClassState[Runners], request: RequestView) -> None:
        cls.state = cls.state or Runners()
        cls.state.requests[request.handle] = request

    def left(self, cls: ClassState[Runners], request: RequestView) -> None:
        if cls.state is not None:
            cls.state.requests.pop(request.handle, None)

    def charge(self, cls: ClassState[Runners], work: Work) -> None:
        runners = cls.state
        if runners is None or cls.key == self._last:
            return
        runners.steps += 1
        if runners.steps % self._every == 0:
            for request in runners.requests.values():
                if self.classify(request) != cls.key:
                    self.context.rekey(request)
