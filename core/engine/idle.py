"""Classes without requests whose policies still remember something of them."""

from jackfield.core.engine.node import Node


class IdleClasses:
    """Keeps them for a time, then tells whom to forget; the longest idle first."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._new: list[Node] = []
        self._since: dict[Node, float] = {}

    def __bool__(self) -> bool:
        return bool(self._new or self._since)

    def add(self, node: Node) -> None:
        """The class has lost its last request."""
        self._new.append(node)

    def due(self, now: float) -> list[Node]:
        """Classes that were idle for too long. The time counts from the first call after `add`."""
        for node in self._new:
            self._since.pop(node, None)
            if not node.has_requests:
                self._since[node] = now
        self._new.clear()
        found = []
        for node, since in self._since.items():
            if now - since < self._seconds:
                break
            found.append(node)
        for node in found:
            del self._since[node]
        return [node for node in found if not node.has_requests]
