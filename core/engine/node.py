"""Classes of waiting requests as nodes of the scheduling tree."""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from jackfield.core.api import ClassState, Work
from jackfield.core.engine.branch import Branch
from jackfield.core.engine.heap import LazyHeap
from jackfield.core.engine.level import Level
from jackfield.core.engine.rank import Sortable
from jackfield.core.engine.request import Request


class Node:
    """A class of the level above, which orders the classes of its own level by rank."""

    __slots__ = (
        "branch", "busy", "children", "decodes", "depth", "latest", "order", "owed", "parent",
        "placed", "state",
    )  # fmt: skip

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
        self.latest: ClassState[Any] | None = None
        """Of the child that lost its last request last."""
        self.decodes = 0
        """Answer tokens that were planned and not charged yet."""
        self.owed: Work | None = None
        """Other work that was planned and not charged yet."""
        self.placed: Sortable | None = None
        """The rank under which the parent orders this class, if it should keep its place."""

    @property
    def above(self) -> Level:
        """The level that ranks this class. Not of the root."""
        assert self.parent is not None, "the root is no class"
        return self.parent.branch.level

    @property
    def has_requests(self) -> bool:
        """Whether anybody of the class waits or runs."""
        return bool(self.state._waiting or self.state._running)

    @property
    def owes(self) -> bool:
        """Whether work was planned and not charged yet."""
        return self.decodes > 0 or self.owed is not None

    def owe(self, work: Work) -> None:
        """The work is charged later."""
        self.owed = work if self.owed is None else self.owed.plus(work)

    def settle(self) -> None:
        """Charge what is owed. Comes before anything else is asked or told of the class."""
        if self.owes:
            self.above.charge(self.state, self.take_owed())

    def take_owed(self) -> Work:
        """What is owed, and no longer is."""
        decodes, owed = self.decodes, self.owed
        self.decodes, self.owed = 0, None
        if owed is None:
            return Work(0, decodes)
        return owed._replace(decode=owed.decode + decodes)

    def rank(self, now: float) -> Sortable:
        """The rank of this class among its siblings."""
        self.settle()
        return self.above.rank(self.state, now)

    def place(self, now: float) -> None:
        """Ask the rank, and order this class by it; of equal ones the first that was placed goes
        first, and one that is placed already stays where it is.
        """
        assert self.parent is not None, "the root is no class"
        rank = self.rank(now)
        if rank != self.placed:
            self.placed = rank
            self.parent.order.push(self, rank)

    def place_all(self, children: "list[Node]", now: float) -> None:
        """Like `place` for each, at once."""
        settle_all(children)
        ranks = self.branch.level.ranks_of([child.state for child in children], now)
        moved = []
        for child, rank in zip(children, ranks, strict=True):
            if rank != child.placed:
                child.placed = rank
                moved.append((child, rank))
        self.order.push_all(moved)

    def unplace(self) -> None:
        """Nobody of this class is to be admitted."""
        assert self.parent is not None, "the root is no class"
        self.placed = None
        self.parent.order.remove(self)

    def path(self) -> "Iterator[Node]":
        """This node and those above it, the root last."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent


class Leaf(Node):
    """A class whose requests are ordered by key. passed: how often `pick` passed a request over.

    billed: the classes of its requests, itself included, that are charged for their work. due:
    those of them that are charged at every step; the others may owe.
    """

    __slots__ = ("billed", "due", "orderer", "owing", "passed", "queue")

    def __init__(self, parent: Node | None, branch: Branch, key: Hashable) -> None:
        super().__init__(parent, branch, key)
        self.queue: LazyHeap[Request] = LazyHeap()
        self.passed: dict[Request, int] = {}
        self.billed = [node for node in self.path() if node.parent and node.above.charges]
        self.due = dict.fromkeys(node for node in self.billed if not node.above.adds_up)
        self.owing = dict.fromkeys(node for node in self.billed if node.above.adds_up)
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


def settle_all(nodes: Iterable[Node]) -> None:
    """Charge what each class owes."""
    owing: dict[Level, list[tuple[ClassState[Any], Work]]] = {}
    for node in nodes:
        if node.owes:
            owing.setdefault(node.above, []).append((node.state, node.take_owed()))
    for level, bills in owing.items():
        level.charge_all(bills)
