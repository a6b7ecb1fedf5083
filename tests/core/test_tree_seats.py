"""What disciplines learn of seats, of moves between classes, and whose turn it is among equals."""

from collections.abc import Hashable
from dataclasses import replace

import pytest

from jackfield.core.api import (
    ClassState,
    Discipline,
    PolicyConfig,
    RequestContext,
    RequestView,
    Work,
)
from jackfield.core.engine.services import Services
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, context_for, make_engine, request, run
from jackfield.core.testing.jobs import ROOMY, Job, Simulation


class Tenants(Discipline[None]):
    """Classes of equal rank."""

    def classify(self, request: RequestView) -> Hashable:
        return request.context.tenant


@pytest.mark.parametrize("arrivals", ["", "aaaaaaaa", "bbbbbbbb", "abababab", "baabbaab"])
def test_classes_of_equal_rank_take_turns_whoever_arrives(arrivals: str) -> None:
    """One is admitted in each step, and before each step somebody arrives."""
    sizes = replace(ROOMY, max_seqs=1)
    simulation = Simulation(lambda context: [Tenants(PolicyConfig(), context)], sizes)
    for name in "aaaaaabbbbbb":
        simulation.add(Job(0, 4, 1, RequestContext(tenant=name)))
    seen = ""
    for step in range(8):
        for name in arrivals[step : step + 1]:
            simulation.add(Job(0, 4, 1, RequestContext(tenant=name)))
        simulation.step()
        (admitted,) = [key for key, one in simulation.records.items() if one.admitted is not None]
        seen += simulation.records.pop(admitted).job.context.tenant
    assert seen == "abababab"


class Follows(Discipline[int]):
    """Knows who holds seats, by class; classes are what the test says."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.where: dict[str, str] = {}
        self.told: list[str] = []
        self.work: dict[Hashable, int] = {}

    def classify(self, request: RequestView) -> Hashable:
        return self.where.get(request.id, "first")

    def admitted(self, cls: ClassState[int], request: RequestView) -> None:
        self.told.append(f"+{request.id} {cls.key} {cls.running}")

    def left(self, cls: ClassState[int], request: RequestView) -> None:
        self.told.append(f"-{request.id} {cls.key} {cls.running}")

    def charge(self, cls: ClassState[int], work: Work) -> None:
        self.work[cls.key] = self.work.get(cls.key, 0) + work.prefill + work.decode


def test_a_running_request_moves_with_its_seat_and_its_charges() -> None:
    services, clock, sizes = Services(), ManualClock(), Sizes(num_blocks=64)
    context = context_for(sizes, clock, services)
    policy = Follows(PolicyConfig(), context)
    engine = make_engine(sizes, disciplines=[policy], clock=clock, services=services)
    for name in "ab":
        engine.add(request(name, [1, 2, 3], GREEDY.with_(max_tokens=6)))
    engine.step()
    assert policy.told == ["+a first 1", "+b first 2"]
    view = engine._requests["a"][0].view
    policy.where["a"] = "second"
    context.rekey(view)
    assert len(policy.told) == 2, "nothing changes before the next look"
    engine.step()
    assert policy.told[2:] == ["-a first 1", "+a second 1"]
    assert policy.work == {"first": 7, "second": 1}
    context.rekey(view)
    engine.step()
    assert len(policy.told) == 4, "it is where it belongs"
    run(engine)
    context.rekey(view)
    assert policy.told[4:] == ["-a second 0", "-b first 0"]
    assert policy.work == {"first": 3 + 3 + 5, "second": 5}


def test_who_runs_is_told_again_when_the_tree_is_built_anew() -> None:
    """Another plugin used up its faults; all classes are new ones."""

    class Faulty(Discipline[None]):
        def charge(self, cls: ClassState[None], work: Work) -> None:
            raise ValueError

        def classify(self, request: RequestView) -> Hashable:
            return "all"

    clock, sizes = ManualClock(), Sizes(num_blocks=64, fault_limit=2)
    context = context_for(sizes, clock)
    policy = Follows(PolicyConfig(), context)
    stack = [Faulty(PolicyConfig(), context), policy]
    engine = make_engine(sizes, disciplines=stack, clock=clock)
    engine.add(request("a", [1, 2, 3]))
    run(engine)
    assert engine.faults() and policy.told == ["+a first 1", "+a first 1", "-a first 0"]
