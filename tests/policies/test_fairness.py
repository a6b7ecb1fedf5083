"""Fair shares against the bound of the virtual token counter, measured from outside."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import pytest

from jackfield.core.api import PolicyContext, RequestContext
from jackfield.core.testing.conformance import check_scheduler
from jackfield.core.testing.engines import Sizes
from jackfield.core.testing.jobs import ROOMY, Job, Simulation
from jackfield.core.testing.lives import TIGHT, life
from jackfield.core.testing.stacks import Factory
from jackfield.plugins.schedulers.fairness import Fairness, FairnessConfig
from jackfield.plugins.schedulers.priority import Priority


def policy(**settings: Any) -> Factory:
    def make(context: PolicyContext) -> list[Fairness]:
        return [Fairness(FairnessConfig(**settings), context)]

    return make


class Meter:
    """Service of each tenant by the furthest position that each request ever reached."""

    def __init__(self, simulation: Simulation, prefill: float = 1.0, decode: float = 2.0) -> None:
        self._simulation = simulation
        self._prices = prefill, decode
        self._furthest: dict[str, int] = {}
        self._served: dict[str, float] = {}

    def read(self) -> dict[str, float]:
        """Records of requests that have ended are dropped."""
        records = self._simulation.records
        for one in [record.request for record in records.values()]:
            before = self._furthest.get(one.id, 0)
            after = self._furthest[one.id] = max(before, one.computed)
            prompt = min(after, len(one.prompt)) - min(before, len(one.prompt))
            price = self._prices[0] * prompt + self._prices[1] * (after - before - prompt)
            tenant = one.context.tenant
            self._served[tenant] = self._served.get(tenant, 0.0) + price
            if one.is_done:
                del records[one.id]
        return self._served


class Setting(NamedTuple):
    sizes: Sizes
    longest: int
    answer: int
    weights: dict[str, float]
    config: dict[str, Any]

    @property
    def bound(self) -> float:
        prefill, decode = self.config["prefill"], self.config["decode"]
        pool = self.sizes.num_blocks * self.sizes.block_size
        at_once = min(pool, self.sizes.max_seqs * (self.longest + self.answer))
        most = 2 * max(prefill * self.longest, decode * at_once)
        step = self.sizes.overlap * max(prefill, decode) * self.sizes.max_tokens
        return (most + step) / min(self.weights.values())


def setting(seed: int) -> Setting:
    random = Random(seed)
    weights = {name: random.choice((0.5, 1.0, 1.0, 3.0)) for name in "ab"}
    longest, answer = random.choice((20, 60, 200)), random.choice((1, 10, 40))
    block = random.choice((4, 16))
    least = -(-(longest + answer + 1) // block)
    sizes = replace(
        ROOMY,
        block_size=block,
        num_blocks=least * random.choice((1, 2, 20)) + 2,
        max_tokens=random.choice((16, 64, 256)),
        max_seqs=random.choice((1, 2, 8)),
        overlap=random.choice((0, 1)),
    )
    config = {
        "weights": weights,
        "prefill": random.choice((0.0, 1.0)),
        "decode": random.choice((1.0, 2.0)),
        "preempt_margin": random.choice((None, None, 50.0)),
    }
    return Setting(sizes, longest, answer, weights, config)


def compete(
    simulation: Simulation, seed: int, longest: int, answer: int, depth: int = 6
) -> Iterator[None]:
    """Two tenants that always have requests waiting, of lengths that differ by tenant."""
    random = Random(seed)
    while True:
        for name, factor in (("a", 1.0), ("b", random.choice((0.2, 1.0)))):
            waiting = [one for one in simulation.waiting if one.context.tenant == name]
            for _ in range(depth - len(waiting)):
                prompt = random.randint(1, max(int(longest * factor), 1))
                simulation.add(
                    Job(0, prompt, random.randint(1, answer), RequestContext(tenant=name))
                )
        simulation.step()
        yield


@pytest.mark.parametrize("seed", range(40))
def test_two_backlogged_tenants_stay_within_the_bound(seed: int) -> None:
    chosen = setting(seed)
    simulation = Simulation(policy(**chosen.config), chosen.sizes)
    meter = Meter(simulation, chosen.config["prefill"], chosen.config["decode"])
    life = compete(simulation, seed, chosen.longest, chosen.answer)
    for _ in range(400):
        next(life)
        served = meter.read()
        one, other = (served.get(name, 0.0) / chosen.weights[name] for name in "ab")
        assert abs(one - other) <= chosen.bound
    assert min(served.values()) > 0 or chosen.config["prefill"] == 0
    assert not simulation.engine.fault_counts()


LAG = 8 * 2 * 2
"""Weighted tokens of two running answers in the steps that may be uncharged."""


def accounts(simulation: Simulation) -> dict[str, Any]:
    tree = simulation.engine.lifecycle.tree
    tree.settle()
    nodes = tree.nodes()
    return {str(node.state.key): node.state.state for node in nodes if node.parent is not None}


@pytest.mark.parametrize("seed", range(8))
def test_what_is_billed_is_what_was_computed_for_the_first_time(seed: int) -> None:
    """Through preemptions, answers that end early and prompts that are never finished."""
    random = Random(seed)
    sizes = replace(ROOMY, block_size=4, num_blocks=40, max_tokens=16, max_seqs=5)
    simulation = Simulation(policy(prefill=1.0, decode=2.0, preempt_margin=30.0), sizes)
    meter, life = Meter(simulation), compete(simulation, seed, 60, 30)
    for _ in range(400):
        next(life)
        names = [name for name, one in simulation.records.items() if one.ended is None]
        served = dict(meter.read())
        for name, account in accounts(simulation).items():
            assert account.served == served.get(name, 0.0)
            prompts = [
                max(len(one.prompt) - max(one.computed, one.recompute_until), 0)
                for one in simulation.running
                if one.context.tenant == name
            ]
            assert account.owed == sum(prompts)
        if random.random() < 0.2:
            simulation.engine.abort(random.choice(names))
    assert simulation.engine.metrics.preemptions > 5


def tenant(name: str, prompt: int = 20, answer: int = 10, **context: Any) -> Job:
    return Job(0, prompt, answer, RequestContext(tenant=name, **context))


def seats(simulation: Simulation) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in simulation.running:
        found[one.context.tenant] = found.get(one.context.tenant, 0) + 1
    return found


def test_no_tenant_takes_all_seats_of_a_step() -> None:
    simulation = Simulation(policy(weights={"c": 2}), replace(ROOMY, max_seqs=8))
    for name in "abc":
        for _ in range(20):
            simulation.add(tenant(name))
    simulation.step()
    assert seats(simulation) == {"a": 2, "b": 2, "c": 4}


def keep_waiting(simulation: Simulation, name: str, depth: int = 20) -> None:
    waiting = sum(one.context.tenant == name for one in simulation.waiting)
    for _ in range(depth - waiting):
        simulation.add(tenant(name))


@pytest.mark.parametrize("break_between", [False, True])
def test_who_was_idle_has_saved_nothing(break_between: bool) -> None:
    """b works a little, then only a does; b comes back, or both pause and b comes back first."""
    sizes = replace(ROOMY, max_seqs=4)
    simulation = Simulation(policy(), sizes)
    simulation.add(tenant("b"))
    meter = Meter(simulation)
    for _ in range(200):
        keep_waiting(simulation, "a")
        simulation.step()
        meter.read()
    if break_between:
        for record in list(simulation.records.values()):
            simulation.engine.abort(record.request.id)
        simulation.step()
        simulation.add(tenant("b"))
        simulation.step()
    before = dict(meter.read())
    assert before["a"] > 40 * before["b"]
    for _ in range(200):
        for name in "ab":
            keep_waiting(simulation, name)
        simulation.step()
        gained = {name: value - before[name] for name, value in meter.read().items()}
        assert abs(gained["a"] - gained["b"]) <= 2 * max(20, 2 * 4 * 30)
    assert min(gained.values()) > 1000


def test_a_new_tenant_does_not_stop_the_old_ones() -> None:
    simulation = Simulation(policy(), replace(ROOMY, max_seqs=3))
    meter = Meter(simulation)
    for number in range(600):
        for name in ("a", "b") if number < 300 else ("a", "b", "c"):
            keep_waiting(simulation, name)
        simulation.step()
        served = dict(meter.read())
        if number == 299:
            before = served
    gained = [served[name] - before.get(name, 0.0) for name in "abc"]
    assert max(gained) - min(gained) <= 2 * 2 * 3 * 30


@pytest.mark.parametrize("overlap", [0, 1])
def test_a_light_tenant_gets_the_next_seat_beside_one_that_sends_much_more(overlap: int) -> None:
    simulation = Simulation(policy(), replace(ROOMY, max_seqs=4, overlap=overlap))
    metrics, asked = simulation.engine.metrics, []
    for number in range(600):
        keep_waiting(simulation, "heavy")
        if number % 40 == 10:
            asked.append((simulation.add(tenant("light")), metrics.admissions))
        simulation.step()
        if asked and asked[-1][0].admitted is None:
            assert metrics.admissions == asked[-1][1], "somebody else got a seat first"
    assert all(record.ended is not None for record, _ in asked[:-1]) and len(asked) == 15


def test_no_seat_stays_empty() -> None:
    simulation = Simulation(policy(), replace(ROOMY, max_seqs=4))
    random = Random(0)
    for number in range(200):
        simulation.add(tenant("ab"[number % 2], random.randint(1, 20), random.randint(2, 30)))
    finished, ended = simulation.engine.metrics.finished, 0
    while simulation.waiting or not simulation.engine.metrics.steps:
        simulation.step()
        assert len(simulation.running) + finished["length"] - ended == 4
        ended = finished["length"]


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({}, 1.0),
        ({"tier": "gold"}, 4.0),
        ({"labels": {"weight": "2.5"}, "tier": "gold"}, 2.5),
        ({"labels": {"other": "2"}, "tier": "gold"}, 4.0),
    ],
)
def test_where_a_weight_comes_from(context: dict[str, Any], expected: float) -> None:
    for name, weight in (("a", expected), ("named", 7.0)):
        simulation = Simulation(policy(weights={"named": 7, "gold": 4}))
        simulation.add(tenant(name, **context))
        simulation.step()
        assert accounts(simulation)[name].weight == weight


@pytest.mark.parametrize("text", ["", "much", "0", "-1", "nan", "inf"])
def test_a_label_that_is_no_weight_is_said_once_and_counts_for_nothing(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    simulation = Simulation(policy(weights={"gold": 4}))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            simulation.add(tenant("a", labels={"weight": text}, tier="gold"))
            simulation.step()
    assert accounts(simulation)["a"].weight == 4.0
    assert len(caplog.messages) == 1 and "weight" in caplog.text and " a " in caplog.text
    assert not simulation.engine.fault_counts()


def test_tiers_share_instead_of_tenants() -> None:
    simulation = Simulation(policy(by="tier", weights={"gold": 3}))
    for name in "abcdefgh":
        simulation.add(tenant(name, tier="gold"))
    for _ in range(8):
        simulation.add(tenant("z", tier="free"))
    simulation.step()
    assert sum(one.context.tier == "gold" for one in simulation.running) == 6


@pytest.mark.parametrize("margin", [None, 100.0, 300.0])
def test_a_margin_takes_a_seat_once_somebody_is_so_far_ahead(margin: float | None) -> None:
    simulation = Simulation(policy(preempt_margin=margin), replace(ROOMY, max_seqs=2))
    meter = Meter(simulation)
    for _ in range(2):
        simulation.add(tenant("a", 100, 150))
    for _ in range(20):
        simulation.step()
    before = meter.read()["a"]
    late = simulation.add(tenant("b", 100, 20))
    while not late.admitted:
        ahead = meter.read()["a"] - before
        assert margin is None or ahead <= margin + LAG
        simulation.step()
    assert simulation.engine.metrics.preemptions == (margin is not None)
    assert (ahead > margin - LAG) if margin is not None else ahead > 300
    simulation.run([])
    assert simulation.engine.metrics.preemptions <= 2


def test_inside_each_priority_there_are_shares_of_its_own() -> None:
    """What one priority's tenants were served says nothing about the other's."""

    def both(context: PolicyContext) -> list[Any]:
        fair = Fairness(FairnessConfig(), context)
        return [Priority(Priority.Config(), context), fair]

    simulation = Simulation(both, replace(ROOMY, max_seqs=4))
    for _ in range(10):
        simulation.add(tenant("a", 100, priority=0))
    simulation.run([])
    for name in "ab":
        for _ in range(10):
            simulation.add(tenant(name, priority=1))
    simulation.step()
    assert seats(simulation) == {"a": 2, "b": 2}


@pytest.mark.parametrize("settings", [{}, {"preempt_margin": 10.0, "cached": 0.5}])
def test_the_laws_hold(settings: dict[str, float]) -> None:
    check_scheduler(policy(**settings), examples=4, steps=20)
    for seed in range(3):
        life(policy(**settings), TIGHT, seed=seed)
