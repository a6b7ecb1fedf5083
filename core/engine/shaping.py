"""Classes that are held back until a time that their discipline says."""

import math
from typing import NamedTuple

from jackfield.core.engine.heap import LazyHeap
from jackfield.core.engine.node import Leaf, Node, leaf_of
from jackfield.core.engine.request import Request


class Held(NamedTuple):
    """Who is not admitted before a time, and whose decision that is."""

    request: Request
    until: float
    plugin: str

    @property
    def reason(self) -> str:
        """For the log."""
        return f"not before {self.until:.3f} by {self.plugin}"


class Shaping:
    """Which classes are held back, until when, and who waits longest with and without them.

    patience: seconds after its arrival from which a request is admitted next, whatever holds it.
    `news` are the classes that were held back lately.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._until: dict[Node, float] = {}
        self._alarms: LazyHeap[Node] = LazyHeap()
        self._overdue: LazyHeap[Node] = LazyHeap()
        self._arrivals: dict[Node, LazyHeap[Request]] = {}
        self._seniors: dict[Node, LazyHeap[Node]] = {}
        self.news: list[Held] = []

    def arrived(self, request: Request) -> None:
        """The request waits in all its classes."""
        for node in leaf_of(request).path():
            self._arrivals.setdefault(node, LazyHeap()).push(request, request.handle)

    def left(self, request: Request) -> None:
        """The request waits no longer."""
        for node in leaf_of(request).path():
            self._arrivals[node].remove(request)

    def hold(self, node: Node, until: float, now: float) -> bool:
        """Whether nobody of the class may be admitted yet; remembers when to ask again."""
        if until <= now:
            self.free(node)
            return False
        first = self._first(node)
        if self._until.get(node) != until:
            self.news.append(Held(first, until, node.above.name))
        self._until[node] = until
        end = first.arrival + self._patience
        if end <= now:
            self._overdue.push(node, first.handle)
        else:
            self._overdue.remove(node)
        alarm = until if end <= now else min(until, end)
        if alarm < math.inf:
            self._alarms.push(node, alarm)
        else:
            self._alarms.remove(node)
        return True

    def free(self, node: Node) -> None:
        """The class is not held back, or has nobody to hold."""
        if self._until.pop(node, None) is not None:
            self._alarms.remove(node)
            self._overdue.remove(node)

    def settle(self, node: Node, is_ready: bool) -> None:
        """Whether the class has somebody to admit, and thus who of them waits longest."""
        assert node.parent is not None
        seniors = self._seniors.setdefault(node.parent, LazyHeap())
        if is_ready:
            seniors.push(node, self.senior(node).handle)
        else:
            seniors.remove(node)

    def forget(self, node: Node) -> None:
        """The class is no longer in the tree."""
        self.free(node)
        self._arrivals.pop(node, None)
        self._seniors.pop(node, None)
        if node.parent in self._seniors:
            self._seniors[node.parent].remove(node)

    def due(self, now: float) -> list[Node]:
        """Classes that should be asked again; each is told once per alarm."""
        found = []
        while len(self._alarms) and self._alarms.first_key() <= now:
            node = self._alarms.peek()
            assert node is not None
            self._alarms.remove(node)
            found.append(node)
        return found

    @property
    def next_alarm(self) -> float | None:
        """When a class that is held back should be looked at; None = none will be."""
        return self._alarms.first_key() if len(self._alarms) else None

    @property
    def overdue(self) -> Request | None:
        """Who has been held back for too long; the longest first."""
        node = self._overdue.peek()
        return None if node is None else self._first(node)

    def holds(self, request: Request) -> bool:
        """Whether any class of the request is held back, and it is not overdue for that."""
        if self.overdue is request:
            return False
        return any(node in self._until for node in leaf_of(request).path())

    def senior(self, node: Node) -> Request:
        """Who waits longest of those that may be admitted. Only where there is one."""
        while not isinstance(node, Leaf):
            child = self._seniors[node].peek()
            assert child is not None, "the class has somebody to admit"
            node = child
        return self._first(node)

    def _first(self, node: Node) -> Request:
        request = self._arrivals[node].peek()
        assert request is not None, "somebody of the class waits"
        return request
