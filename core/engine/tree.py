"""The waiting requests as a tree of classes, one level per discipline of the stack.

Two requests compare by the ranks of their classes at the first level where their paths differ;
inside a leaf by key, then arrival. (Sivaraman et al., Programmable Packet Scheduling at Line
Rate, 2016: a tree of push-in first-out queues; here the ranks of classes may change.)
"""

import logging
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jackfield.core.api import OVERFLOW, Work
from jackfield.core.engine.branch import Branch
from jackfield.core.engine.idle import IdleClasses
from jackfield.core.engine.node import Leaf, Node, leaf_of, make_node
from jackfield.core.engine.request import Request
from jackfield.core.engine.shaping import Held, Shaping
from jackfield.core.engine.window import Windows

log = logging.getLogger("jackfield.engine")


class TreeLimits(NamedTuple):
    """Bounds that no policy changes.

    park_timeout: seconds after which nobody is held back any more. class_idle_seconds: how long a
    class without requests is remembered. max_classes: at one place of the tree.
    """

    park_timeout: float = 600.0
    class_idle_seconds: float = 600.0
    max_classes: int = 10_000


class WaitingTree:
    """Order of admission. Pushing and taking cost O(depth * log), whatever waits.

    Ranks of touched classes are asked again at the next look at the head. num_overflows: requests
    that went to a class `OVERFLOW`.
    """

    def __init__(self, branch: Branch, limits: TreeLimits | None = None) -> None:
        self._branch = branch
        self._limits = limits or TreeLimits()
        self.levels = list(branch.levels())
        self.num_overflows = 0
        self._reset()

    def _reset(self) -> None:
        self._root = make_node(None, self._branch, None)
        self._touched: dict[Node, None] = {}
        self._rekeyed: dict[Request, None] = {}
        self._idle = IdleClasses(self._limits.class_idle_seconds)
        self._windows = Windows()
        self._shaping = Shaping(self._limits.park_timeout)
        self._size = 0
        self.charges = any(level.charges for level in self.levels)
        self.shapes = any(level.shapes for level in self.levels)
        self.displaces = any(level.displaces for level in self.levels)

    def __len__(self) -> int:
        return self._size

    def begin(self, now: float) -> None:
        """A step is planned: forget classes that were idle for too long, choose anew."""
        self._windows.clear()
        for node in self._idle.due(now) if self._idle else ():
            if node.parent is not None and node.parent.children.get(node.state.key) is node:
                self._drop(node)
                self._forget(node.parent)

    def push(self, request: Request, now: float) -> None:
        """The request starts to wait."""
        leaf = self._locate(request)
        request.leaf = leaf
        self._enqueue(leaf, request, now)
        self._count(leaf, waiting=1, running=0)
        self._size += 1
        if self.shapes:
            self._shaping.arrived(request)

    def _enqueue(self, leaf: Leaf, request: Request, now: float) -> None:
        key = leaf.branch.level.key(request, now)
        leaf.queue.push(request, (key, request.arrival, request.handle))
        self._windows.changed(leaf)

    def remove(self, request: Request) -> None:
        """The request waits no longer and is not admitted either."""
        leaf = leaf_of(request)
        self._dequeue(leaf, request)
        leaf.passed.pop(request, None)
        self._windows.changed(leaf)
        self._count(leaf, waiting=-1, running=0)
        request.leaf = None
        self._forget(leaf)

    def admit(self, request: Request) -> None:
        """The request gets a seat; it stays in its classes as running."""
        leaf = leaf_of(request)
        self._dequeue(leaf, request)
        if leaf.branch.level.lookahead:
            self._windows.admitted(leaf, request)
        self._count(leaf, waiting=-1, running=1)

    def _dequeue(self, leaf: Leaf, request: Request) -> None:
        leaf.queue.remove(request)
        self._size -= 1
        self._rekeyed.pop(request, None)
        if self.shapes:
            self._shaping.left(request)

    def leave(self, request: Request) -> None:
        """A running request ends or loses its seat."""
        leaf = leaf_of(request)
        self._count(leaf, waiting=0, running=-1)
        request.leaf = None
        self._forget(leaf)

    def rekey(self, request: Request) -> None:
        """Ask the request's key again at the next look, if it waits here."""
        if request.leaf is not None and request in request.leaf.queue:
            self._rekeyed[request] = None

    def head(self, now: float) -> Request | None:
        """Who is next; None when nobody waits, or all who wait are held back."""
        if not self._size:
            return None
        self._flush(now)
        if self.shapes:
            overdue = self._shaping.overdue
            if overdue is not None:
                return overdue
        node = self._root
        while not isinstance(node, Leaf):
            child = node.order.peek()
            if child is None:
                return None
            node = child
        return self._windows.first(node, now)

    def oldest(self, now: float) -> Request | None:
        """Of those that are not held back, who waits longest. Only for a tree that shapes."""
        if not self._size:
            return None
        self._flush(now)
        overdue = self._shaping.overdue
        if overdue is not None or self.is_held:
            return overdue
        return self._shaping.senior(self._root)

    @property
    def is_held(self) -> bool:
        """Whether somebody waits and, for now, all who do are held back."""
        if not self.shapes or not self._size or self._touched:
            return False
        root = self._root
        return not isinstance(root, Leaf) and not len(root.order) and self._shaping.overdue is None

    def may_be_admitted(self, request: Request, now: float) -> bool:
        """Whether the request waits here and is not held back."""
        if request.leaf is None or request not in request.leaf.queue:
            return False
        self._flush(now)
        return not self.shapes or not self._shaping.holds(request)

    def held_lately(self) -> list[Held]:
        """Of each class that was held back since the last call, who waits longest."""
        if not self._shaping.news:
            return []
        news, self._shaping.news = self._shaping.news, []
        return news

    @property
    def next_alarm(self) -> float | None:
        """When a class that is held back should be looked at; None = none is."""
        return self._shaping.next_alarm

    def charge(self, work: Mapping[Node, Work]) -> None:
        """Bill the work of a step, given per leaf, to all classes on the way to the root."""
        total = dict(work)
        for depth in range(max((node.depth for node in work), default=0), 0, -1):
            for node in [node for node in total if node.depth == depth]:
                self._charge_class(node, total[node])
                assert node.parent is not None
                total[node.parent] = total.get(node.parent, Work()).plus(total[node])

    def rebuild(self, waiting: Sequence[Request], running: Sequence[Request], now: float) -> None:
        """Place everybody anew, after a level fell back."""
        self._reset()
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

    def _locate(self, request: Request) -> Leaf:
        node = self._root
        while not isinstance(node, Leaf):
            key = node.branch.level.classify(request)
            node = node.children.get(key) or self._new_class(node, key)
        return node

    def _new_class(self, parent: Node, key: Hashable) -> Node:
        if len(parent.children) >= self._limits.max_classes:
            self._count_overflow(parent)
            found = parent.children.get(OVERFLOW)
            if found is not None:
                return found
            key = OVERFLOW
        child = parent.children[key] = make_node(parent, parent.branch.below(key), key)
        return child

    def _count_overflow(self, parent: Node) -> None:
        self.num_overflows += 1
        if self.num_overflows == 1:
            log.warning(
                "plugin %s made more than %d classes at one place; further new ones share a class "
                "until others are forgotten; raise engine.max_classes to keep them apart",
                parent.branch.level.name, self._limits.max_classes,
            )  # fmt: skip

    def _count(self, leaf: Leaf, waiting: int, running: int) -> None:
        for node in leaf.path():
            state = node.state
            idle = not (state._waiting or state._running)
            state._waiting += waiting
            state._running += running
            parent = node.parent
            if parent is None:
                continue
            self._touched[node] = None
            if waiting < 0 and not state._waiting:
                parent.order.remove(node)
            if idle:
                self._activate(node)
                parent.busy[node] = None
            elif not (state._waiting or state._running):
                parent.busy.pop(node, None)

    def _activate(self, node: Node) -> None:
        level = node.above
        if level.activates:
            assert node.parent is not None
            active = [sibling.state for sibling in node.parent.busy if sibling is not node]
            level.activate(node.state, active)

    def _charge_class(self, node: Node, work: Work) -> None:
        level = node.above
        if level.charges:
            level.charge(node.state, work)
            self._touched[node] = None

    def _flush(self, now: float) -> None:
        if self._rekeyed:
            for request in self._rekeyed:
                self._enqueue(leaf_of(request), request, now)
            self._rekeyed.clear()
        if self.shapes:
            self._flush_shaped(now)
        for node in self._touched:
            parent = node.parent
            assert parent is not None
            if node.state._waiting:
                parent.order.push(node, parent.branch.level.rank(node.state, now))
            else:
                parent.order.remove(node)
        self._touched.clear()

    def _flush_shaped(self, now: float) -> None:
        """From the leaves up: a class has somebody to admit if one of its own classes has."""
        self._touched.update(dict.fromkeys(self._shaping.due(now)))
        if not self._touched:
            return
        by_depth: dict[int, dict[Node, None]] = {}
        for node in self._touched:
            by_depth.setdefault(node.depth, {})[node] = None
        for depth in range(max(by_depth), 0, -1):
            for node in by_depth.get(depth, ()):
                self._place(node, now)
                assert node.parent is not None
                by_depth.setdefault(depth - 1, {})[node.parent] = None
        self._touched.clear()

    def _place(self, node: Node, now: float) -> None:
        parent, level, shaping = node.parent, node.above, self._shaping
        assert parent is not None
        is_ready = bool(node.state._waiting)
        if not is_ready:
            shaping.free(node)
        elif level.shapes and shaping.hold(node, level.eligible_at(node.state, now), now):
            is_ready = False
        if is_ready and not isinstance(node, Leaf):
            is_ready = len(node.order) > 0
        if is_ready:
            parent.order.push(node, level.rank(node.state, now))
        else:
            parent.order.remove(node)
        shaping.settle(node, is_ready)

    def _forget(self, start: Node) -> None:
        """Drop idle classes in which no policy keeps anything; note when the others became so."""
        for node in start.path():
            if node.parent is None or node.has_requests:
                return
            if node.state.state is None and not node.children:
                self._drop(node)
            else:
                self._idle.add(node)

    def _drop(self, top: Node) -> None:
        assert top.parent is not None
        top.parent.children.pop(top.state.key, None)
        top.parent.order.remove(top)
        pending = [top]
        while pending:
            node = pending.pop()
            pending.extend(node.children.values())
            self._touched.pop(node, None)
            if self.shapes:
                self._shaping.forget(node)
