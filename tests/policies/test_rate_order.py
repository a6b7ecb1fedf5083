"""The soft rate limit: shares in proportion to rates, what a rate promises, and no starvation."""

from dataclasses import replace
from typing import Any

import pytest

from jackfield.core.api import PolicyContext, RequestContext
from jackfield.core.testing.jobs import ROOMY, Job, Simulation
from jackfield.core.testing.stacks import Factory
from jackfield.plugins.schedulers.rate_order import RateOrder, RateOrderConfig

FEW = replace(ROOMY, max_seqs=2)
SIZE = 30
"""Tokens that each request here computes: the last one of the answer is not."""


def policy(tokens_per_second: float = 100.0, **settings: Any) -> Factory:
    tenants = {name: 60 * rate for name, rate in settings.pop("tenants", {}).items()}

    def make(context: PolicyContext) -> list[RateOrder]:
        config = RateOrderConfig(
            tokens_per_minute=60 * tokens_per_second, tenants=tenants, **settings
        )
        return [RateOrder(config, context)]

    return make


def job(name: str) -> Job:
    return Job(0, SIZE - 9, 10, RequestContext(tenant=name))


class Flow:
    """Steps a simulation in which some tenants always have requests waiting."""

    def __init__(self, simulation: Simulation, greedy: str) -> None:
        self.simulation = simulation
        self.greedy = greedy
        self.served: dict[str, int] = {}

    def run(self, seconds: float) -> None:
        end = self.simulation.clock.now() + seconds
        while self.simulation.clock.now() < end:
            for name in self.greedy:
                waiting = [one.context.tenant for one in self.simulation.waiting]
                for _ in range(4 - waiting.count(name)):
                    self.simulation.add(job(name))
            self.simulation.step()
            records = self.simulation.records
            for key in [key for key, one in records.items() if one.ended is not None]:
                name = records.pop(key).job.context.tenant
                self.served[name] = self.tokens(name) + SIZE

    def tokens(self, name: str) -> int:
        return self.served.get(name, 0)


def test_all_that_want_more_share_in_proportion_to_their_rates() -> None:
    flow = Flow(Simulation(policy(100.0, tenants={"a": 300.0}), FEW), "abc")
    flow.run(5.0)
    shares = [flow.tokens(name) for name in "abc"]
    assert sum(shares) > 5.0 * 500, "there is more than the rates"
    assert shares[0] / shares[1] == pytest.approx(3.0, rel=0.1)
    assert shares[1] / shares[2] == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("window", [1.0, 4.0])
def test_a_rate_is_had_in_any_window_whatever_others_send(window: float) -> None:
    """a wants exactly its rate; b and c want everything."""
    simulation = Simulation(policy(100.0, tenants={"a": 600.0}), FEW)
    flow, waits = Flow(simulation, "bc"), []
    for _ in range(int(window * 20)):
        flow.run(0.05)
        waits.append(simulation.add(job("a")))
    flow.run(0.2)
    assert all(one.ended is not None for one in waits)
    assert max(one.waited for one in waits) < 0.05, "about two requests of the others"


def test_without_competition_nobody_waits_for_a_rate() -> None:
    flow = Flow(Simulation(policy(1.0), FEW), "a")
    flow.run(2.0)
    assert flow.tokens("a") > 1000


def test_who_was_alone_for_long_is_not_punished_for_long() -> None:
    """a has run hours ahead; b comes, uses its burst, and then they share."""
    simulation = Simulation(policy(10.0, burst=20.0), FEW)
    flow = Flow(simulation, "a")
    flow.run(4.0)
    alone = flow.tokens("a")
    assert alone > 4.0 * 10.0 * 20
    flow.greedy = "ab"
    flow.run(2.0)
    ahead = flow.tokens("b") - (flow.tokens("a") - alone)
    assert 0 < ahead <= 10.0 * 20.0 + 4 * SIZE
    flow.run(2.0)
    assert flow.tokens("b") - (flow.tokens("a") - alone) <= 10.0 * 20.0 + 4 * SIZE


def test_idling_saves_up_nothing_but_a_burst() -> None:
    simulation = Simulation(policy(10.0, burst=20.0), FEW)
    flow = Flow(simulation, "ab")
    flow.run(1.0)
    flow.greedy = "a"
    flow.run(3.0)
    before = flow.tokens("a"), flow.tokens("b")
    flow.greedy = "ab"
    flow.run(2.0)
    gained = flow.tokens("a") - before[0], flow.tokens("b") - before[1]
    assert 0 < gained[1] - gained[0] <= 10.0 * 20.0 + 4 * SIZE


def test_nobody_starves() -> None:
    """Slow tenants against fast ones: everybody gets some."""
    rates = {"a": 200.0, "b": 10.0, "c": 200.0}
    flow = Flow(Simulation(policy(tenants=rates, burst=0.0), FEW), "abc")
    flow.run(8.0)
    assert flow.tokens("b") >= 2 * SIZE
