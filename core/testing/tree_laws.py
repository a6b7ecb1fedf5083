"""Laws of the order of a stack, checked on the waiting tree alone while time stands still."""

from collections.abc import Hashable, Sequence
from random import Random
from typing import Any

from jackfield.core.api import (
    ClassState,
    Discipline,
    PolicyConfig,
    PolicyContext,
    RequestContext,
    RequestView,
    SamplingParams,
    Work,
)
from jackfield.core.engine.branch import Branch
from jackfield.core.engine.guard import Guard
from jackfield.core.engine.level import Level
from jackfield.core.engine.node import Leaf, leaf_of, path_of
from jackfield.core.engine.request import Request
from jackfield.core.engine.tree import WaitingTree
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes, context_for, with_leaf
from jackfield.core.testing.lives import TENANTS
from jackfield.core.testing.stacks import Factory, build

OPERATIONS = 300
FAULTS = 10**9


class OneClass(Discipline[None]):
    """A level that tells nobody apart."""

    def classify(self, request: RequestView) -> Hashable:
        return "all"


class Tiers(Discipline[None]):
    """A level that splits by tier; they take turns."""

    def classify(self, request: RequestView) -> Hashable:
        return request.context.tier


class Halves(Tiers):
    """The first tier goes first."""

    def rank(self, cls: ClassState[None], now: float) -> float:
        return float(cls.key == "second")


class Walk:
    """Random requests that wait, are admitted in the order of the tree, are billed, and leave."""

    def __init__(self, disciplines: Sequence[Discipline[Any]], seed: int) -> None:
        self._random = Random(seed)
        self._levels = [Level(type(d).__name__, d, Guard("", FAULTS, 60.0)) for d in disciplines]
        self.tree = WaitingTree(Branch.chain(self._levels))
        self.waiting: dict[int, Request] = {}
        self.running: dict[int, Request] = {}
        self.admitted: list[Request] = []

    def push(self, handle: int, tier: str) -> None:
        """A request starts to wait; all of it follows from its handle."""
        request = make_request(handle, tier)
        self.waiting[handle] = request
        self.tree.push(request, 0.0)

    def admit(self) -> bool:
        """The head gets a seat. False if nobody waits, or all who wait are held back."""
        head = self.tree.head(0.0)
        if head is None:
            return False
        check_head(self.tree, head, list(self.waiting.values()))
        self.tree.admit(head)
        self.admitted.append(head)
        self.running[head.handle] = self.waiting.pop(head.handle)
        return True

    def drain(self) -> None:
        """Everybody gets a seat who is not held back."""
        while self.admit():
            pass

    def charge(self) -> None:
        """Everybody who runs is billed."""
        work: dict[Leaf, Work] = {}
        for request in self.running.values():
            assert isinstance(request.leaf, Leaf)
            one = Work(prefill=request.handle % 5, decode=1)
            work[request.leaf] = work.get(request.leaf, Work()).plus(one)
        self.tree.charge((), work)
        self.tree.settle()

    def leave(self) -> None:
        """The oldest of those who run is done."""
        if self.running:
            self.tree.leave(self.running.pop(min(self.running)))

    def check(self) -> None:
        """No answer was out of contract."""
        for level in self._levels:
            assert level.guard.faults == 0, f"{level.name}: {level.guard.last_fault}"


def make_request(handle: int, tier: str = "first") -> Request:
    """A request whose context and lengths follow from its handle."""
    random = Random(handle)
    context = RequestContext(
        tenant=random.choice(TENANTS), tier=tier, priority=random.randint(-1, 1)
    )
    prompt = [1] * random.randint(1, 20)
    return Request(
        handle, f"r{handle}", 0, prompt, SamplingParams(), context,
        arrival=float(handle // 2), seed=0, max_tokens=8, eos_ids=frozenset(),
    )  # fmt: skip


def walk(
    disciplines: Sequence[Discipline[Any]], seed: int = 0, tiers: Sequence[str] = ("first",)
) -> list[int]:
    """Handles in order of admission. Requests of tiers that are not listed never come.

    Each operation concerns one tier, and the choice of operations does not depend on `tiers`.
    """
    random, steps = Random(seed), Walk(disciplines, seed)
    for handle in range(OPERATIONS):
        tier = random.choice(("first", "second"))
        action = random.random()
        if tier not in tiers:
            continue
        if action < 0.55:
            steps.push(handle, tier)
        elif action < 0.8:
            steps.admit()
        elif action < 0.9:
            steps.charge()
        else:
            steps.leave()
    steps.drain()
    steps.check()
    return [request.handle for request in steps.admitted]


def check_head(tree: WaitingTree, head: Request, waiting: Sequence[Request]) -> None:
    """The head is the first by a plain comparison with everybody else who may be admitted.

    In a leaf that looks ahead it is one of the first so many.
    """
    ahead = 0
    for other in waiting:
        if other is not head and tree.may_be_admitted(other, 0.0):
            first = _goes_first(head, other)
            ahead += not first and other.leaf is head.leaf
            assert first or other.leaf is head.leaf, f"{head.id} is admitted before {other.id}"
    most = max(leaf_of(head).branch.level.lookahead, 1)
    assert ahead < most, f"{head.id} is admitted before {ahead} that have lower keys"


def _goes_first(first: Request, second: Request) -> bool:
    one, two = path_of(first), path_of(second)
    for mine, theirs in zip(one, two, strict=False):
        if mine is not theirs:
            return mine.rank(0.0) <= theirs.rank(0.0)
    leaf = one[-1].branch.level
    return (leaf.key(first, 0.0), first.arrival, first.handle) <= (
        leaf.key(second, 0.0), second.arrival, second.handle,
    )  # fmt: skip


def check_order(make: Factory) -> None:
    """The tree admits as a plain sort would, and no answer is out of contract."""
    for seed in range(3):
        walk(_stack(make), seed)


def check_collapse(make: Factory) -> None:
    """A level that puts everybody into one class changes nothing, wherever it is."""
    plain = walk(_stack(make))
    for place in range(len(_stack(make))):
        stack = _stack(make)
        stack.insert(place, OneClass(PolicyConfig(), _context()))
        assert walk(stack) == plain, f"a neutral level at {place} changes the order"


def check_refinement(make: Factory) -> None:
    """Inside a level above it, the stack never lets the second class pass the first."""
    steps = Walk([Halves(PolicyConfig(), _context()), *_stack(make)], 0)
    for handle in range(40):
        steps.push(handle, "second" if handle % 2 else "first")
    steps.drain()
    tiers = [request.context.tier for request in steps.admitted]
    assert tiers == sorted(tiers), "the stack reorders across classes of the level above"


def check_restriction(make: Factory) -> None:
    """The order inside a class of the level above depends on what happens inside it only."""
    alone, beside = (_first_tier(make, noise) for noise in (False, True))
    assert alone == beside, "what happens in one class above the stack changes another"


def _first_tier(make: Factory, noise: bool) -> list[int]:
    steps = Walk([Tiers(PolicyConfig(), _context()), *_stack(make)], 0)
    for handle in range(0, 120, 2):
        if noise:
            steps.push(handle + 1, "second")
        steps.push(handle, "first")
        if handle % 3 == 0:
            while steps.admit() and steps.admitted[-1].context.tier != "first":
                pass
            steps.charge()
    steps.drain()
    return [r.handle for r in steps.admitted if r.context.tier == "first"]


def _stack(make: Factory) -> list[Discipline[Any]]:
    return with_leaf(build(make, _context()).disciplines, _context())


def _context() -> PolicyContext:
    return context_for(Sizes(), ManualClock())
