"""How many classes the tree keeps, for how long, and what is below which."""

import gc
import logging
from collections.abc import Hashable
from typing import Any

import pytest

from jackfield.core.api import (
    OVERFLOW,
    ClassState,
    Discipline,
    PolicyConfig,
    PolicyContext,
    Rank,
    RequestContext,
    RequestView,
    Work,
)
from jackfield.core.engine.branch import Branch
from jackfield.core.engine.guard import Guard
from jackfield.core.engine.level import Level
from jackfield.core.engine.request import Request
from jackfield.core.engine.standing import worst_first
from jackfield.core.engine.tree import TreeLimits, WaitingTree
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, context_for
from jackfield.core.testing.tree_laws import make_request


class Tenants(Discipline[int]):
    """Remembers how much each tenant was served."""

    def classify(self, request: RequestView) -> Hashable:
        return request.context.tenant

    def rank(self, cls: ClassState[int], now: float) -> Rank:
        return cls.state or 0

    def charge(self, cls: ClassState[int], work: Work) -> None:
        cls.state = (cls.state or 0) + work.decode


class Shaped(Tenants):
    """Holds nobody back, but could."""

    def eligible_at(self, cls: ClassState[int], now: float) -> float:
        return now - 1


class Priorities(Discipline[None]):
    """The priority as a class."""

    def classify(self, request: RequestView) -> Hashable:
        return request.context.priority

    def rank(self, cls: ClassState[None], now: float) -> Rank:
        return float(cls.key)  # type: ignore[arg-type]


class LongestFirst(Discipline[None]):
    """A leaf."""

    def key(self, request: RequestView, now: float) -> Rank:
        return -request.num_prompt_tokens


def level(cls: type[Discipline[Any]]) -> Level:
    context: PolicyContext = context_for(Sizes(), ManualClock())
    return Level(cls.__name__.lower(), cls(PolicyConfig(), context), Guard("", 3, 60.0))


def tree_of(*stack: type[Discipline[Any]], limits: TreeLimits | None = None) -> WaitingTree:
    return WaitingTree(Branch.chain([level(cls) for cls in stack]), limits)


def a_request(handle: int, tenant: str = "", priority: int = 0, length: int = 1) -> Request:
    context = RequestContext(tenant=tenant, priority=priority)
    return Request(
        handle, f"r{handle}", 0, [1] * length, GREEDY, context,
        arrival=float(handle), seed=0, max_tokens=8, eos_ids=frozenset(),
    )  # fmt: skip


def serve(tree: WaitingTree, request: Request, now: float) -> None:
    """It waits, runs, is billed, and leaves."""
    tree.begin(now)
    tree.push(request, now)
    assert tree.head(now) is request
    tree.admit(request)
    assert request.leaf is not None
    tree.charge((), {request.leaf: Work(decode=5)})
    tree.leave(request)


def keys(tree: WaitingTree) -> set[Hashable]:
    return {node.state.key for node in tree.nodes() if node.parent is not None}


@pytest.mark.parametrize("policy", [Tenants, Shaped])
def test_a_class_without_requests_is_remembered_for_a_time(policy: type[Tenants]) -> None:
    tree = tree_of(policy, Discipline, limits=TreeLimits(class_idle_seconds=60.0))
    serve(tree, a_request(0, "a"), 0.0)
    tree.begin(1.0)
    tree.begin(60.5)
    assert keys(tree) == {"a"}
    tree.begin(61.0)
    assert keys(tree) == set()


def test_a_class_that_comes_back_in_time_is_not_forgotten() -> None:
    tree = tree_of(Tenants, Discipline, limits=TreeLimits(class_idle_seconds=60.0))
    serve(tree, a_request(0, "a"), 0.0)
    serve(tree, a_request(1, "a"), 50.0)
    tree.begin(51.0)
    tree.begin(100.0)
    again = a_request(2, "a")
    tree.push(again, 100.0)
    assert again.leaf is not None and again.leaf.state.state == 10
    tree.begin(10_000.0)
    assert keys(tree) == {"a"}, "it has a request"


def test_what_is_below_a_forgotten_class_is_forgotten_with_it() -> None:
    tree = tree_of(Tenants, Priorities, Discipline, limits=TreeLimits(class_idle_seconds=60.0))
    serve(tree, a_request(0, "a", 3), 0.0)
    tree.begin(0.0)
    assert keys(tree) == {"a"}
    tree.begin(60.0)
    assert keys(tree) == set() and len(list(tree.nodes())) == 1


@pytest.mark.parametrize(("policy", "count"), [(Tenants, 100_000), (Shaped, 30_000)])
def test_memory_stays_flat_over_many_tenants(policy: type[Tenants], count: int) -> None:
    tree = tree_of(policy, Discipline, limits=TreeLimits(class_idle_seconds=100.0))
    objects = []
    for handle in range(count):
        serve(tree, a_request(handle, f"t{handle}"), float(handle))
        if handle in (2000, count - 1):
            gc.collect()
            objects.append(len(gc.get_objects()))
    assert len(list(tree.nodes())) <= 103
    assert objects[1] - objects[0] < 1000, "each tenant leaves something"


def test_classes_beyond_the_limit_share_one(caplog: pytest.LogCaptureFixture) -> None:
    tree = tree_of(Tenants, Discipline, limits=TreeLimits(max_classes=3))
    requests = [a_request(handle, f"t{handle}") for handle in range(6)]
    with caplog.at_level(logging.WARNING):
        for request in requests:
            tree.push(request, 0.0)
    assert keys(tree) == {"t0", "t1", "t2", OVERFLOW}
    assert tree.num_overflows == 3
    assert len(caplog.messages) == 1 and "raise engine.max_classes" in caplog.messages[0]
    assert "plugin tenants made more than 3 classes" in caplog.messages[0]
    shared = {request.leaf for request in requests[3:]}
    assert len(shared) == 1
    tree.push(a_request(6, "t1"), 0.0)
    assert tree.num_overflows == 3, "a known class is still its own"
    order = []
    while len(tree):
        head = tree.head(0.0)
        assert head is not None
        tree.admit(head)
        order.append(head.handle)
    assert sorted(order) == list(range(7))


def test_the_limit_is_for_each_place() -> None:
    tree = tree_of(Priorities, Tenants, Discipline, limits=TreeLimits(max_classes=2))
    for handle in range(4):
        tree.push(a_request(handle, f"t{handle}", handle % 2), 0.0)
    assert tree.num_overflows == 0 and OVERFLOW not in keys(tree)


def branching() -> WaitingTree:
    """Priority 0: tenants, then the longest first; all others: first come first served."""
    inner = {"0": Branch.chain([level(Tenants), level(LongestFirst)])}
    return WaitingTree(Branch(level(Priorities), Branch.chain([level(Discipline)]), inner))


def test_below_each_class_is_its_own_stack() -> None:
    tree = branching()
    crowd = [(1, "a", 5), (0, "a", 1), (0, "b", 2), (0, "a", 3), (1, "b", 9), (0, "b", 1)]
    for handle, (priority, tenant, length) in enumerate(crowd):
        tree.push(a_request(handle, tenant, priority, length), 0.0)
    order = []
    while len(tree):
        head = tree.head(0.0)
        assert head is not None and head.leaf is not None
        order.append(head.handle)
        tree.admit(head)
        tree.charge((), {head.leaf: Work(decode=1)})
    assert order == [3, 2, 1, 5, 0, 4]
    assert [one.name for one in tree.levels] == [
        "priorities", "tenants", "longestfirst", "discipline"
    ]  # fmt: skip


def test_whoever_runs_in_different_branches_can_be_compared() -> None:
    """Ranks that are equal where the paths part, and below them levels of different kinds."""
    tree = branching()
    tree.levels[0].ranks = False
    requests = [a_request(handle, "ab"[handle % 2], handle % 3) for handle in range(9)]
    for request in requests:
        tree.push(request, 0.0)
        tree.admit(request)
    worst = worst_first(requests, 0.0)
    assert sorted(request.handle for request in worst) == list(range(9))


def test_a_class_that_cannot_be_printed_goes_where_the_others_go() -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise RuntimeError

    key = Unprintable()

    class Odd(Discipline[None]):
        def classify(self, request: RequestView) -> Hashable:
            return key

    tree = WaitingTree(
        Branch(level(Odd), Branch(level(Discipline)), {"0": Branch(level(LongestFirst))})
    )
    request = make_request(0)
    tree.push(request, 0.0)
    assert tree.head(0.0) is request
    assert request.leaf is not None and request.leaf.orderer == "odd+discipline"
