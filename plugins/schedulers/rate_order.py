"""The soft form of a rate limit: who is over it waits behind the others, but nothing is refused."""

from collections.abc import Hashable, Sequence
from typing import ClassVar

from pydantic import Field, PositiveFloat

from jackfield.core.api import (
    Claim,
    ClassState,
    Discipline,
    Fcfs,
    PolicyConfig,
    Rank,
    RequestView,
    Work,
    WorkConserving,
)


class RateOrderConfig(PolicyConfig):
    """tokens_per_minute: of everybody. tenants: the same of some, by name.

    burst: seconds of its rate that a tenant who comes back may use before it shares with others.
    """

    tokens_per_minute: PositiveFloat = 60_000.0
    tenants: dict[str, PositiveFloat] = Field(default_factory=dict)
    burst: float = Field(60.0, ge=0)


class RateOrder(Discipline[float]):
    """One class per tenant, ordered by a clock that each computed token moves on by 1 / rate.

    A clock never lags behind the engine's, so nobody saves up. Who comes back is at most `burst`
    seconds behind the others, however far they ran ahead while there was nobody else.

    Guarantee: who stays within its rate goes before all that do not. Tenants that all want more
    than their rates share what there is in proportion to them, but for bursts, so nobody starves.
    Without competition everybody is served at once.

    Source: Zhang, VirtualClock: A New Traffic Control Algorithm for Packet Switching Networks,
    SIGCOMM 1990; the bound for who comes back is that of start-time fair queueing (Goyal, Vin and
    Cheng, SIGCOMM 1996).
    """

    Config = RateOrderConfig
    claims: ClassVar[Sequence[Claim]] = (Fcfs(), WorkConserving())

    def classify(self, request: RequestView) -> Hashable:
        return request.context.tenant

    def activate(self, cls: ClassState[float], active_min: float | None) -> None:
        if active_min is not None:
            cls.state = max(cls.state or 0.0, active_min - self.config.burst)

    def rank(self, cls: ClassState[float], now: float) -> Rank:
        return cls.state or 0.0

    def charge(self, cls: ClassState[float], work: Work) -> None:
        rate = self.config.tenants.get(str(cls.key), self.config.tokens_per_minute) / 60
        clock = max(cls.state or 0.0, self.context.now())
        cls.state = clock + (work.prefill + work.decode) / rate
