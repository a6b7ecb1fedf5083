"""Tells disciplines which requests of their classes hold seats."""

from collections.abc import Iterable

from jackfield.core.engine.node import Node
from jackfield.core.engine.request import Request


def entered(nodes: Iterable[Node], request: Request) -> None:
    """The request holds a seat, and is of these classes from now on."""
    for node in nodes:
        if node.parent is not None:
            node.settle()
            node.above.admitted(node.state, request)


def left(nodes: Iterable[Node], request: Request) -> None:
    """The request holds no seat any more, or is of other classes."""
    for node in nodes:
        if node.parent is not None:
            node.settle()
            node.above.left(node.state, request)


def moved(old: Node, new: Node, request: Request) -> None:
    """The request is of other classes; those above both hear nothing of it."""
    before, after = list(old.path()), list(new.path())
    left((node for node in before if node not in after), request)
    entered((node for node in after if node not in before), request)
