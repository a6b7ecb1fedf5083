"""Classes of waiting requests as nodes of the scheduling tree."""

from collections.abc import Hashable, Iterator
from typing import Any

from jackfield.core.api import ClassState
from jackfield.core.engine.branch import Branch
from jackfield.core.engine.heap import LazyHeap
from jackfield.core.engine.level import Level
from jackfield.core.engine.rank import Sortable
from jackfield.core.engine.request import Request


class Node:
    """A class of the level above, which orders the classes of its own level by rank."""

    __slots__ = ("branch", "busy", "children", "depth", "order", "parent", "state")

    def __init__(self, parent: "Node | None", branch: Branch, key: Hashable) -> None:
        self.parent = parent
        self.branch = branch
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.state: ClassState[Any] = ClassState(key)
        self.children: dict[Hashable, Node] = {}
        self.busy: dict[Node, None] = {}
        """Children that have requests."""
        self.order: LazyHeap[Node] = LazyHeap()
        """Children that have somebody to admit."""

    @property
    def above(self) -> Level:
        """The level that ranks this class. Not of the root."""
        assert self.parent is not None, "the root is no class"
        return self.parent.branch.level

    @property
    def has_requests(self) -> bool:
        """Whether anybody of the class waits or runs."""
        return bool(self.state._waiting or self.state._running)

    def rank(self, now: float) -> Sortable:
        """The rank of this class among its siblings."""
        return self.above.rank(self.state, now)

    def path(self) -> "Iterator[Node]":
        """This node and those above it, the root last."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent


class Leaf(Node):
    """A class whose requests are ordered by key. passed: how often `pick` passed a request over."""

    __slots__ = ("orderer", "passed", "queue")

    def __init__(self, parent: Node | None, branch: Branch, key: Hashable) -> None:
        super().__init__(parent, branch, key)
        self.queue: LazyHeap[Request] = LazyHeap()
        self.passed: dict[Request, int] = {}
        names = [node.branch.level.name for node in self.path()]
        self.orderer = "+".join(reversed(names))


def make_node(parent: Node | None, branch: Branch, key: Hashable) -> Node:
    """A leaf where the branch ends."""
    return (Leaf if branch.other is None else Node)(parent, branch, key)


def leaf_of(request: Request) -> Leaf:
    """Where the request waits, or came from if it runs."""
    assert request.leaf is not None, f"{request.id} is not in the tree"
    return request.leaf


def path_of(request: Request) -> list[Node]:
    """The classes of the request, the root first."""
    return list(leaf_of(request).path())[::-1]
