"""The waiting requests as a tree of classes, one level per discipline of the stack.

Two requests compare by the ranks of their classes at the first level where their paths differ;
inside a leaf by key, then arrival. (Sivaraman et al., Programmable Packet Scheduling at Line
Rate, 2016: a tree of push-in first-out queues; here the ranks of classes may change.)
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from jackfield.core.api import ClassState, Work
from jackfield.core.engine.heap import LazyHeap
from jackfield.core.engine.level import Level
from jackfield.core.engine.rank import Sortable
from jackfield.core.engine.request import Request


class Node:
    """A class of the level above, which orders the classes of its own level by rank."""

    __slots__ = ("children", "depth", "order", "parent", "state")

    def __init__(self, parent: "Node | None", depth: int, key: Hashable) -> None:
        self.parent = parent
        self.depth = depth
        self.state: ClassState[Any] = ClassState(key)
        self.children: dict[Hashable, Node] = {}
        self.order: LazyHeap[Node] = LazyHeap()

    def path(self) -> "Iterator[Node]":
        """This node and those above it, the root last."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent


class Leaf(Node):
    """A class whose requests are ordered by key."""

    __slots__ = ("queue",)

    def __init__(self, parent: Node | None, depth: int, key: Hashable) -> None:
        super().__init__(parent, depth, key)
        self.queue: LazyHeap[Request] = LazyHeap()


class WaitingTree:
    """Order of admission. Pushing and taking cost O(depth * log), whatever waits.

    Ranks of touched classes are asked again at the next look at the head.
    """

    def __init__(self, levels: Sequence[Level]) -> None:
        assert levels, "a stack has at least one level"
        self.levels = list(levels)
        self._root = self._make(None, 0, None)
        self._touched: dict[Node, None] = {}
        self._size = 0
        self.charges = any(level.charges for level in self.levels)

    def __len__(self) -> int:
        return self._size

    def push(self, request: Request, now: float) -> None:
        """The request starts to wait."""
        leaf = self._locate(request)
        request.leaf = leaf
        level = self.levels[-1]
        leaf.queue.push(request, (level.key(request, now), request.arrival, request.handle))
        self._count(leaf, waiting=1, running=0)
        self._size += 1

    def remove(self, request: Request) -> None:
        """The request waits no longer and is not admitted either."""
        leaf = self._leaf(request)
        leaf.queue.remove(request)
        self._count(leaf, waiting=-1, running=0)
        self._size -= 1
        request.leaf = None
        self._forget(leaf)

    def admit(self, request: Request) -> None:
        """The request gets a seat; it stays in its classes as running."""
        leaf = self._leaf(request)
        leaf.queue.remove(request)
        self._count(leaf, waiting=-1, running=1)
        self._size -= 1

    def leave(self, request: Request) -> None:
        """A running request ends or loses its seat."""
        leaf = self._leaf(request)
        self._count(leaf, waiting=0, running=-1)
        request.leaf = None
        self._forget(leaf)

    def head(self, now: float) -> Request | None:
        """Who is next; None when nobody waits."""
        if not self._size:
            return None
        self._flush(now)
        node = self._root
        while not isinstance(node, Leaf):
            child = node.order.peek()
            assert child is not None, "a class with waiting requests is in its parent's order"
            node = child
        return node.queue.peek()

    def charge(self, work: Mapping[Node, Work]) -> None:
        """Bill the work of a step, given per leaf, to all classes on the way to the root."""
        total = dict(work)
        for depth in range(len(self.levels) - 1, 0, -1):
            for node in [node for node in total if node.depth == depth]:
                self._charge_class(node, total[node])
                assert node.parent is not None
                total[node.parent] = total.get(node.parent, Work()).plus(total[node])

    def badness(self, request: Request, now: float) -> tuple[Any, ...]:
        """Sort key among running requests: the smallest is the best to preempt."""
        leaf = self._leaf(request)
        ranks = [
            tuple(-value for value in self.levels[node.depth - 1].rank(node.state, now))
            for node in leaf.path()
            if node.parent is not None
        ]
        return (*reversed(ranks), self.levels[-1].keep(request, now), -request.handle)

    def rebuild(self, waiting: Sequence[Request], running: Sequence[Request], now: float) -> None:
        """Place everybody anew, after a level fell back."""
        self._root = self._make(None, 0, None)
        self._touched.clear()
        self._size = 0
        self.charges = any(level.charges for level in self.levels)
        for request in running:
            request.leaf = self._locate(request)
            self._count(request.leaf, waiting=0, running=1)
        for request in waiting:
            self.push(request, now)

    def nodes(self) -> Iterator[Node]:
        """All classes, for checks."""
        pending = [self._root]
        while pending:
            node = pending.pop()
            yield node
            pending.extend(node.children.values())

    def _make(self, parent: Node | None, depth: int, key: Hashable) -> Node:
        return (Leaf if depth == len(self.levels) - 1 else Node)(parent, depth, key)

    def _locate(self, request: Request) -> Leaf:
        node = self._root
        while not isinstance(node, Leaf):
            key = self.levels[node.depth].classify(request)
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = self._make(node, node.depth + 1, key)
            node = child
        return node

    def _leaf(self, request: Request) -> Leaf:
        assert request.leaf is not None, f"{request.id} is not in the tree"
        return request.leaf

    def _count(self, leaf: Leaf, waiting: int, running: int) -> None:
        for node in leaf.path():
            state = node.state
            idle = not (state._waiting or state._running)
            state._waiting += waiting
            state._running += running
            if node.parent is None:
                continue
            self._touched[node] = None
            if idle:
                self._activate(node)

    def _activate(self, node: Node) -> None:
        assert node.parent is not None
        level = self.levels[node.depth - 1]
        if level.activates:
            siblings = node.parent.children.values()
            active = [s.state for s in siblings if s is not node and _busy(s.state)]
            level.activate(node.state, active)

    def _charge_class(self, node: Node, work: Work) -> None:
        level = self.levels[node.depth - 1]
        if level.charges:
            level.charge(node.state, work)
            self._touched[node] = None

    def _flush(self, now: float) -> None:
        for node in self._touched:
            parent = node.parent
            assert parent is not None
            if node.state._waiting:
                parent.order.push(node, self.levels[node.depth - 1].rank(node.state, now))
            else:
                parent.order.remove(node)
        self._touched.clear()

    def _forget(self, leaf: Node) -> None:
        """Drop idle classes in which no policy keeps anything."""
        for node in leaf.path():
            if node.parent is None or _busy(node.state) or node.state.state is not None:
                return
            if node.children:
                return
            self._touched.pop(node, None)
            node.parent.order.remove(node)
            node.parent.children.pop(node.state.key, None)


def _busy(state: ClassState[Any]) -> bool:
    return bool(state._waiting or state._running)


def path_ranks(tree: WaitingTree, request: Request, now: float) -> list[Sortable]:
    """Ranks of a request's classes from the root down, for comparison with a naive sort."""
    leaf = request.leaf
    assert leaf is not None
    ranks = [
        tree.levels[node.depth - 1].rank(node.state, now)
        for node in leaf.path()
        if node.parent is not None
    ]
    return ranks[::-1]
