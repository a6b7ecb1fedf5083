"""Shortest prompt first, with ageing: a long prompt waits longer, but not for ever."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from jackfield.core.api import Claim, Discipline, PolicyConfig, Rank, RequestView, WorkConserving


class ShortestFirstConfig(PolicyConfig):
    """seconds_per_token: how much later than it did a prompt seems to arrive, for each token."""

    seconds_per_token: float = Field(0.01, ge=0, le=60)


class ShortestFirst(Discipline[None]):
    """Orders a leaf by arrival plus a handicap for length.

    All prompts age at one speed, so that their order never changes while they wait: the key can
    be static, which costs nothing per step.
    """

    Config = ShortestFirstConfig
    claims: ClassVar[Sequence[Claim]] = (WorkConserving(),)

    def key(self, request: RequestView, now: float) -> Rank:
        handicap: float = self.config.seconds_per_token * request.num_prompt_tokens
        return request.arrival + handicap
