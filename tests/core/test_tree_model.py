"""The waiting tree against a plain sort, with branches, shaping, windows and keys that change."""

from collections import Counter
from collections.abc import Hashable, Sequence
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.core.api import (
    ClassState,
    Discipline,
    PolicyConfig,
    Rank,
    RequestView,
    Work,
)
from jackfield.core.engine.branch import Branch
from jackfield.core.engine.guard import Guard
from jackfield.core.engine.level import Level
from jackfield.core.engine.node import Node, leaf_of, path_of
from jackfield.core.engine.request import Request
from jackfield.core.engine.tree import TreeLimits, WaitingTree
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes, context_for
from jackfield.core.testing.naive_tree import NaiveOrder
from jackfield.core.testing.tree_laws import make_request

PATIENCE = 40.0
TENANTS = ("red", "green", "blue")


class Fair(Discipline[int]):
    """Served least first; no two tenants have one rank."""

    def classify(self, request: RequestView) -> Hashable:
        return request.context.tenant

    def rank(self, cls: ClassState[int], now: float) -> Rank:
        return (float(cls.state or 0), float(TENANTS.index(str(cls.key))))

    def charge(self, cls: ClassState[int], work: Work) -> None:
        cls.state = (cls.state or 0) + work.decode


class Priority(Discipline[None]):
    """Lower first."""

    def classify(self, request: RequestView) -> Hashable:
        return request.context.priority

    def rank(self, cls: ClassState[None], now: float) -> Rank:
        return float(cls.key)  # type: ignore[arg-type]


class Moving(Fair):
    """Like fair, but requests may change their tenant."""

    tenants: ClassVar[dict[str, str]] = {}

    def classify(self, request: RequestView) -> Hashable:
        return self.tenants.get(request.id, request.context.tenant)


class Seated(Moving):
    """Who has seats goes last; knows of each seat, and of nothing else."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seats: dict[Any, set[int]] = {}

    def rank(self, cls: ClassState[int], now: float) -> Rank:
        return (float(len(self.seats.get(cls, ()))), float(TENANTS.index(str(cls.key))))

    def admitted(self, cls: ClassState[int], request: RequestView) -> None:
        seats = self.seats.setdefault(cls, set())
        assert request.handle not in seats
        seats.add(request.handle)
        assert len(seats) == cls.running

    def left(self, cls: ClassState[int], request: RequestView) -> None:
        self.seats[cls].remove(request.handle)
        assert len(self.seats[cls]) == cls.running


class Metered(Fair):
    """After each charge a tenant is held back for a while."""

    def eligible_at(self, cls: ClassState[int], now: float) -> float:
        return float(3 * (cls.state or 0))


class Never(Priority):
    """One class is only served once it has waited too long."""

    def eligible_at(self, cls: ClassState[None], now: float) -> float:
        return 1e12 if cls.key == -1 else 0.0


class Shortest(Discipline[None]):
    """By length; the length that counts may change."""

    bonus: ClassVar[dict[str, int]] = {}

    def key(self, request: RequestView, now: float) -> Rank:
        return request.num_prompt_tokens - self.bonus.get(request.id, 0)


class Window(Shortest):
    """Prefers even handles within four."""

    lookahead = 4

    def pick(self, heads: Sequence[RequestView], now: float) -> int:
        return next((i for i, one in enumerate(heads) if one.handle % 2 == 0), 0)


class Stubborn(Discipline[None]):
    """Always the last of two."""

    lookahead = 2

    def pick(self, heads: Sequence[RequestView], now: float) -> int:
        return len(heads) - 1


LEVELS = [Fair, Priority, Metered, Never, Moving, Seated]
LEAVES = [Discipline, Shortest, Window, Stubborn]


def level(cls: type[Discipline[Any]]) -> Level:
    plugin = cls(PolicyConfig(), context_for(Sizes(), ManualClock()))
    return Level(cls.__name__, plugin, Guard(cls.__name__, 10**9, 60.0))


def branches(random: Random, depth: int = 0) -> Branch:
    """A random stack; below some classes another one."""
    if depth == 3 or random.random() < 0.25 * depth:
        return Branch(level(random.choice(LEAVES)))
    names = random.sample(["-1", "0", "1", *TENANTS], random.randrange(3))
    inner = {name: branches(random, depth + 1) for name in names}
    return Branch(level(random.choice(LEVELS)), branches(random, depth + 1), inner)


class Life:
    """Random events for a tree and its model, compared at every look."""

    def __init__(self, branch: Branch, seed: int) -> None:
        self.tree = WaitingTree(branch, TreeLimits(PATIENCE, 1e9, 1000))
        self.model = NaiveOrder(PATIENCE)
        self.random = Random(seed)
        self.now = 0.0
        self.count = 0
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        Shortest.bonus.clear()
        Moving.tenants.clear()

    def check(self) -> Request | None:
        head = self.tree.head(self.now)
        assert head is self.model.next(self.waiting, self.now)
        if self.tree.shapes:
            assert self.tree.oldest(self.now) is self.model.oldest(self.waiting, self.now)
        assert self.tree.is_held == bool(self.waiting and head is None)
        assert len(self.tree) == len(self.waiting)
        alarm = self.tree.next_alarm
        assert head is not None or not self.waiting or (alarm is not None and alarm > self.now)
        if self.waiting:
            self.check_classes()
        return head

    def check_classes(self) -> None:
        """Everybody is where its classes are asked to be, and is counted there."""
        waiting, running = Counter[Node](), Counter[Node]()
        for found, requests in ((waiting, self.waiting), (running, self.running)):
            for request in requests:
                found.update(path := path_of(request))
                for node in path[1:]:
                    assert node.state.key == node.above.classify(request)
        for node in self.tree.nodes():
            assert node.state.waiting == waiting.pop(node, 0)
            assert node.state.running == running.pop(node, 0)
        assert not waiting and not running

    def act(self, action: int) -> None:
        if action < 5:
            request = make_request(self.count)
            request.arrival = self.now
            self.count += 1
            self.tree.push(request, self.now)
            self.waiting.append(request)
        elif action < 8:
            self.admit(self.check())
        elif action == 8 and self.waiting:
            self.tree.remove(self.waiting.pop(self.random.randrange(len(self.waiting))))
        elif action == 9:
            work: dict[Node, Work] = {}
            for request in self.running:
                leaf = leaf_of(request)
                work[leaf] = work.get(leaf, Work()).plus(Work(decode=1))
            self.tree.charge((), work)
        elif action == 10 and self.running:
            self.tree.leave(self.running.pop(self.random.randrange(len(self.running))))
        elif action == 11 and self.waiting + self.running:
            request = self.random.choice(self.waiting + self.running)
            Shortest.bonus[request.id] = self.random.randrange(20)
            if self.random.random() < 0.7:
                Moving.tenants[request.id] = self.random.choice(TENANTS)
            self.tree.rekey(request)
        else:
            self.now += self.random.choice((0.5, 3.0, 20.0))
            self.tree.begin(self.now)

    def admit(self, request: Request | None) -> None:
        if self.random.random() < 0.1 and self.tree.shapes:
            request = self.tree.oldest(self.now)
        if request is None:
            return
        self.model.admitted(request, self.waiting, self.now)
        self.tree.admit(request)
        self.waiting.remove(request)
        self.running.append(request)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6))
def test_the_tree_agrees_with_a_sort_at_every_look(seed: int) -> None:
    random = Random(seed)
    life = Life(branches(random), seed)
    for _ in range(120):
        life.act(random.randrange(13))
        life.check()
    for _ in range(2000):
        if not life.waiting:
            break
        head = life.check()
        if head is None:
            alarm = life.tree.next_alarm
            assert alarm is not None
            life.now = alarm
        else:
            life.admit(head)
    assert not life.waiting, "everybody is admitted at last"
    while life.running:
        life.tree.leave(life.running.pop())
    assert not any(node.has_requests for node in life.tree.nodes())
    assert all(one.guard.faults == 0 for one in life.tree.levels)


@pytest.mark.parametrize("leaf", [Window, Stubborn])
def test_the_model_itself_bounds_bypasses(leaf: type[Discipline[Any]]) -> None:
    """Both reach the bound, so that the comparison above looks at it."""
    life = Life(Branch(level(leaf)), 0)
    for _ in range(3):
        life.act(0)
    passed = 0
    first = life.waiting[1 if leaf is Window else 0]
    while first in life.waiting:
        life.act(0)
        life.act(0)
        life.admit(life.check())
        passed += 1
        assert passed < 100
    assert passed > 2
