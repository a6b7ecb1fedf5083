"""The waiting tree against a plain sort, with random disciplines whose ranks change."""

from collections.abc import Hashable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.core.api import (
    ClassState,
    Discipline,
    PolicyConfig,
    PolicyContext,
    Rank,
    RequestView,
    Work,
)
from jackfield.core.engine.branch import Branch
from jackfield.core.engine.guard import Guard
from jackfield.core.engine.heap import SLACK, STALE_FACTOR
from jackfield.core.engine.level import Level
from jackfield.core.engine.tree import WaitingTree
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes, context_for
from jackfield.core.testing.tree_laws import (
    Walk,
    check_collapse,
    check_order,
    check_refinement,
    check_restriction,
    make_request,
)


class ByTenant(Discipline[int]):
    """The tenant that was served least goes first; one that was idle starts at the least."""

    def classify(self, request: RequestView) -> Hashable:
        return request.context.tenant

    def rank(self, cls: ClassState[int], now: float) -> Rank:
        return cls.state or 0

    def charge(self, cls: ClassState[int], work: Work) -> None:
        cls.state = (cls.state or 0) + work.prefill + work.decode

    def activate(self, cls: ClassState[int], active_min: int | None) -> None:
        cls.state = max(cls.state or 0, active_min or 0)


class ByPriority(Discipline[None]):
    """A rank of two numbers."""

    def classify(self, request: RequestView) -> Hashable:
        return request.context.priority

    def rank(self, cls: ClassState[None], now: float) -> Rank:
        assert isinstance(cls.key, int)
        return (cls.key % 2, -cls.key)


class ByCrowd(Discipline[None]):
    """The class with the most requests goes first: its rank changes with every arrival."""

    def classify(self, request: RequestView) -> Hashable:
        return request.num_prompt_tokens % 3

    def rank(self, cls: ClassState[None], now: float) -> Rank:
        return -cls.waiting - 0.5 * cls.running


class Longest(Discipline[None]):
    """A leaf with a key of its own."""

    def key(self, request: RequestView, now: float) -> Rank:
        return -request.num_prompt_tokens


LEVELS: list[type[Discipline[Any]]] = [ByTenant, ByPriority, ByCrowd]
stacks = st.lists(st.sampled_from(LEVELS), max_size=3)
leaves = st.sampled_from([Discipline, Longest])


def context() -> PolicyContext:
    return context_for(Sizes(), ManualClock())


def build(stack: Sequence[type[Discipline[Any]]]) -> list[Discipline[Any]]:
    return [cls(PolicyConfig(), context()) for cls in stack]


operations = st.lists(st.integers(0, 9), max_size=120)


@given(stacks, leaves, operations)
def test_admits_as_a_plain_sort_would(
    stack: list[type[Discipline[Any]]], leaf: type[Discipline[Any]], operations: list[int]
) -> None:
    walk = Walk(build([*stack, leaf]), 0)
    for handle, action in enumerate(operations):
        if action < 5:
            walk.push(handle, "first")
        elif action < 7:
            walk.admit()
        elif action < 9:
            walk.charge()
        else:
            walk.leave()
    while walk.waiting:
        walk.admit()
    walk.check()
    assert len(walk.tree) == 0 and walk.tree.head(0.0) is None


@pytest.mark.parametrize(
    "law", [check_order, check_collapse, check_refinement, check_restriction]
)
@pytest.mark.parametrize("stack", [[ByTenant], [ByPriority, ByTenant], [ByCrowd, Longest]])
def test_laws_of_nesting(law: Any, stack: list[type[Discipline[Any]]]) -> None:
    law(lambda _: build(stack))


class Global(ByTenant):
    """Breaks restriction: what it remembers is not kept in the class."""

    served = 0

    def charge(self, cls: ClassState[int], work: Work) -> None:
        self.served += work.prefill + work.decode
        cls.state = self.served % 7


def test_a_policy_that_mixes_subtrees_is_found() -> None:
    with pytest.raises(AssertionError, match="changes another"):
        check_restriction(lambda _: build([Global]))


class Fickle(ByTenant):
    """Its rank is not a function of the class."""

    def rank(self, cls: ClassState[int], now: float) -> Rank:
        return self.context.rng.random()


def test_a_policy_without_an_order_is_found() -> None:
    with pytest.raises(AssertionError, match="is admitted before"):
        check_order(lambda _: build([Fickle]))


def tree_of(*stack: type[Discipline[Any]]) -> WaitingTree:
    levels = [Level("level", one, Guard("", 3, 60.0)) for one in build(stack)]
    return WaitingTree(Branch.chain(levels))


def test_idle_classes_without_state_are_forgotten() -> None:
    tree = tree_of(ByPriority, ByCrowd, Discipline)
    requests = [make_request(handle) for handle in range(50)]
    for request in requests:
        tree.push(request, 0.0)
    assert len(list(tree.nodes())) > 5
    for request in requests[:25]:
        tree.remove(request)
    for request in requests[25:]:
        tree.admit(request)
        tree.leave(request)
    assert len(list(tree.nodes())) == 1 and len(tree) == 0 and not tree._touched


def test_idle_classes_with_state_keep_it() -> None:
    tree = tree_of(ByTenant, Discipline)
    request = make_request(0)
    tree.push(request, 0.0)
    tree.admit(request)
    assert request.leaf is not None
    tree.charge((), {request.leaf: Work(decode=7)})
    tree.leave(request)
    again = make_request(0)
    tree.push(again, 0.0)
    assert again.leaf is not None and again.leaf.state.state == 7


def test_a_class_that_was_idle_starts_at_the_least_of_the_others() -> None:
    tree = tree_of(ByTenant, Discipline)
    busy = make_request(0)
    requests = [make_request(handle) for handle in range(1, 99)]
    other = next(one for one in requests if one.context.tenant != busy.context.tenant)
    tree.push(busy, 0.0)
    tree.admit(busy)
    assert busy.leaf is not None
    tree.charge((), {busy.leaf: Work(decode=30)})
    tree.push(other, 0.0)
    assert other.leaf is not None and other.leaf.state.state == 30


def test_a_step_is_billed_once_per_class_up_to_the_root() -> None:
    bills: list[tuple[Hashable, Work]] = []

    class Bills(ByPriority):
        def charge(self, cls: ClassState[Any], work: Work) -> None:
            bills.append((cls.key, work))

    tree = tree_of(Bills, Bills, Discipline)
    requests = [make_request(handle) for handle in range(6)]
    for request in requests:
        tree.push(request, 0.0)
        tree.admit(request)
    work: dict[Any, Work] = {}
    for request in requests:
        work[request.leaf] = work.get(request.leaf, Work()).plus(Work(prefill=1, decode=2))
    tree.charge((), work)
    keys = {request.context.priority for request in requests}
    for key in keys:
        count = sum(request.context.priority == key for request in requests)
        expected = Work(prefill=count, decode=2 * count)
        assert bills.count((key, expected)) == 2, "once at each level"
    assert len(bills) == 2 * len(keys)


def test_heaps_stay_small_while_ranks_change() -> None:
    walk = Walk(build([ByTenant, ByCrowd, Discipline]), 0)
    random = Random(0)
    for handle in range(10_000):
        walk.push(handle, "first")
        if len(walk.waiting) > 30:
            head = walk.tree.head(0.0)
            assert head is not None
            walk.tree.admit(head)
            walk.running[head.handle] = walk.waiting.pop(head.handle)
        if random.random() < 0.5:
            walk.charge()
        if len(walk.running) > 10:
            walk.leave()
    for node in walk.tree.nodes():
        assert node.order.num_entries <= STALE_FACTOR * len(node.order) + SLACK
    assert len(list(walk.tree.nodes())) < 20


class Mutating:
    """A class whose hash changes later."""

    def __init__(self) -> None:
        self.value = 1

    def __hash__(self) -> int:
        return self.value


def test_a_class_whose_hash_changes_does_no_harm() -> None:
    key = Mutating()

    class Changes(Discipline[None]):
        def classify(self, request: RequestView) -> Hashable:
            return key

    tree = tree_of(Changes, Discipline)
    request = make_request(0)
    tree.push(request, 0.0)
    key.value = 2
    tree.remove(request)
    assert len(tree) == 0 and tree.head(0.0) is None
    tree.push(request, 0.0)
    assert tree.head(0.0) is request
