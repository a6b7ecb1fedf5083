"""At most so many requests of one tenant run at once."""

from collections.abc import Hashable
from math import inf
from typing import Literal

from pydantic import Field, PositiveInt

from jackfield.core.api import ClassState, Discipline, PolicyConfig, Rank, RequestView


class ConcurrencyCapConfig(PolicyConfig):
    """by: whose requests are counted. cap: of everybody; none: no cap. caps: of some, by name."""

    by: Literal["tenant", "tier"] = "tenant"
    cap: PositiveInt | None = None
    caps: dict[str, PositiveInt] = Field(default_factory=dict)


class ConcurrencyCap(Discipline[float]):
    """A tenant with all its seats taken is held back until one of them is free.

    Its requests keep their place meanwhile, and hold nobody else up. Between tenants below their
    caps, the one whose last admitted request came first goes first, which is nearly first come,
    first served; put a level that orders between tenants above this one.

    Guarantee: no tenant has more requests running than its cap, unless some of them have waited
    for more than `engine.park_timeout`. Nobody below the cap starves.

    Source: window flow control (Gerla and Kleinrock, Flow Control: A Comparative Survey, IEEE
    Transactions on Communications 1980).
    """

    Config = ConcurrencyCapConfig

    def classify(self, request: RequestView) -> Hashable:
        context = request.context
        return context.tenant if self.config.by == "tenant" else context.tier

    def eligible_at(self, cls: ClassState[float], now: float) -> float:
        cap = self.config.caps.get(str(cls.key), self.config.cap)
        return inf if cap is not None and cls.running >= cap else 0.0

    def rank(self, cls: ClassState[float], now: float) -> Rank:
        return cls.state or 0.0

    def admitted(self, cls: ClassState[float], request: RequestView) -> None:
        cls.state = max(cls.state or 0.0, request.arrival)
