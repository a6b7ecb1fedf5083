"""The waiting requests as a tree of classes, one level per discipline of the stack.

Two requests compare by the ranks of their classes at the first level where their paths differ;
inside a leaf by key, then arrival. (Sivaraman et al., Programmable Packet Scheduling at Line
Rate, 2016: a tree of push-in first-out queues; here the ranks of classes may change.)
"""

import logging
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jackfield.core.api import OVERFLOW, Work
from jackfield.core.engine import seats
from jackfield.core.engine.billing import Billing
from jackfield.core.engine.branch import Branch
from jackfield.core.engine.idle import IdleClasses
from jackfield.core.engine.node import Leaf, Node, leaf_of, make_node
from jackfield.core.engine.request import Request
from jackfield.core.engine.shaping import Held, Shaping
from jackfield.core.engine.window import Windows

FEW = 8
"""So many touched classes are placed one by one; more, at once."""
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

    Ranks of touched classes are asked again at the next look at the head; among classes of equal
    rank, who was admitted from last goes last. num_overflows: requests that went to a class
    `OVERFLOW`. changed: whether somebody came or went since that was last noted.
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
        self._billing = Billing()
        self._rekeyed: dict[Request, None] = {}
        self._idle = IdleClasses(self._limits.class_idle_seconds)
        self._windows = Windows()
        self._shaping = Shaping(self._limits.park_timeout)
        self._size = 0
        self.changed = True
        self.charges = any(level.charges for level in self.levels)
        self.shapes = any(level.shapes for level in self.levels)
        self.displaces = any(level.displaces for level in self.levels)
        self._seats = any(level.seats for level in self.levels)

    def __len__(self) -> int:
        return self._size

    def begin(self, now: float) -> None:
        """A step is planned: forget classes that were idle for too long, choose anew."""
        self._windows.clear()
        if self._rekeyed:
            self._replace(now)
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
        self._windows.changed(leaf)
        self._count(leaf, waiting=-1, running=0)
        request.leaf = None
        self._forget(leaf)

    def admit(self, request: Request) -> None:
        """The request has got a seat; it stays in its classes as running."""
        leaf = leaf_of(request)
        self._dequeue(leaf, request)
        if leaf.branch.level.lookahead:
            self._windows.admitted(leaf, request)
        self._count(leaf, waiting=-1, running=1)
        for node in leaf.path():
            node.placed = None
        if self._seats:
            seats.entered(leaf.path(), request)

    def _dequeue(self, leaf: Leaf, request: Request) -> None:
        leaf.queue.remove(request)
        leaf.passed.pop(request, None)
        self._size -= 1
        self._rekeyed.pop(request, None)
        if self.shapes:
            self._shaping.left(request)

    def leave(self, request: Request) -> None:
        """A running request ends or loses its seat."""
        leaf = leaf_of(request)
        self._rekeyed.pop(request, None)
        self._count(leaf, waiting=0, running=-1)
        if self._seats:
            seats.left(leaf.path(), request)
        request.leaf = None
        self._forget(leaf)

    def rekey(self, request: Request) -> None:
        """Ask the request's classes and key again, at the next look or the next step."""
        if request.leaf is not None:
            self._rekeyed[request] = None

    def _replace(self, now: float) -> None:
        """A method that asks for more meanwhile gets it the next time."""
        rekeyed, self._rekeyed = self._rekeyed, {}
        for request in rekeyed:
            old, new = leaf_of(request), self._locate(request)
            waits = request in old.queue
            if new is not old:
                self._move(request, old, new, waits=waits)
            if waits:
                self._enqueue(new, request, now)

    def _move(self, request: Request, old: Leaf, new: Leaf, *, waits: bool) -> None:
        """From one leaf to another. What both are below of hears nothing of it."""
        if waits and self.shapes:
            self._shaping.left(request)
        request.leaf = new
        if waits:
            old.queue.remove(request)
            self._windows.changed(old)
            if request in old.passed:
                new.passed[request] = old.passed.pop(request)
            if self.shapes:
                self._shaping.arrived(request)
        waiting, running = (1, 0) if waits else (0, 1)
        self._count(new, waiting, running)
        self._count(old, -waiting, -running)
        if self._seats and running:
            seats.moved(old, new, request)
        self._forget(old)

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

    def charge(self, decodes: Iterable[Request], others: Mapping[Leaf, Work]) -> None:
        """Bill the work of a step to all classes on the way to the root.

        decodes: requests that get one token of their answer. others: other work, by leaf.
        """
        self._touched.update(dict.fromkeys(self._billing.charge(decodes, others)))

    def settle(self) -> None:
        """Charge whatever is owed."""
        self._touched.update(dict.fromkeys(self._billing.settle()))

    def rebuild(self, waiting: Sequence[Request], running: Sequence[Request], now: float) -> None:
        """Place everybody anew, after a level fell back."""
        self._reset()
        for request in running:
            request.leaf = self._locate(request)
            self._count(request.leaf, waiting=0, running=1)
            if self._seats:
                seats.entered(request.leaf.path(), request)
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
        self.changed = True
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
                node.unplace()
            if idle:
                self._activate(node, parent)
                parent.busy[node] = None
            elif not (state._waiting or state._running):
                node.settle()
                parent.busy.pop(node, None)
                parent.latest = state

    def _activate(self, node: Node, parent: Node) -> None:
        level = parent.branch.level
        if level.activates:
            active = [sibling.state for sibling in parent.busy if sibling is not node]
            if not active and parent.latest is not None:
                active = [parent.latest]
            level.activate(node.state, active)

    def _flush(self, now: float) -> None:
        if self._rekeyed:
            self._replace(now)
        if self.shapes:
            self._flush_shaped(now)
        if len(self._touched) > FEW:
            self._place_many(now)
        for node in self._touched:
            if node.state._waiting:
                node.place(now)
            else:
                node.unplace()
        self._touched.clear()

    def _place_many(self, now: float) -> None:
        groups: dict[Node, list[Node]] = {}
        for node in self._touched:
            if node.state._waiting and node.parent is not None:
                groups.setdefault(node.parent, []).append(node)
        for parent, nodes in groups.items():
            if len(nodes) > FEW:
                parent.place_all(nodes, now)
                for node in nodes:
                    del self._touched[node]

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
        level, shaping = node.above, self._shaping
        is_ready = bool(node.state._waiting)
        if not is_ready:
            shaping.free(node)
        elif level.shapes:
            node.settle()
            is_ready = not shaping.hold(node, level.eligible_at(node.state, now), now)
        if is_ready and not isinstance(node, Leaf):
            is_ready = len(node.order) > 0
        if is_ready:
            node.place(now)
        else:
            node.unplace()
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
        top.unplace()
        pending = [top]
        while pending:
            node = pending.pop()
            pending.extend(node.children.values())
            self._touched.pop(node, None)
            self._billing.forget(node)
            if self.shapes:
                self._shaping.forget(node)
