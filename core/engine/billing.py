"""Brings the work of each step to the classes that are charged for it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import attrgetter

from jackfield.core.api import Work
from jackfield.core.engine.node import Leaf, Node, settle_all
from jackfield.core.engine.request import Request

LEAF = attrgetter("leaf")
MOST_UNCHARGED = 8
"""Steps after which classes that may owe are charged."""


class Billing:
    """Classes whose work adds up may owe for some steps; the others are charged at once."""

    def __init__(self) -> None:
        self._owing: dict[Node, None] = {}
        self._steps = 0

    def charge(self, decodes: Iterable[Request], others: Mapping[Leaf, Work]) -> Iterable[Node]:
        """Bill one step; gives the classes that were charged.

        decodes: requests that get one token of their answer. others: other work, by leaf.
        """
        due: dict[Node, None] = {}
        for leaf, count in Counter(map(LEAF, decodes)).items():
            for node in leaf.billed:
                node.decodes += count
            self._note(leaf, due)
        for leaf, work in others.items():
            for node in leaf.billed:
                node.owe(work)
            self._note(leaf, due)
        self._steps += 1
        settle_all(due)
        if self._steps >= MOST_UNCHARGED:
            due.update(dict.fromkeys(self.settle()))
        return due

    def _note(self, leaf: Leaf, due: dict[Node, None]) -> None:
        if leaf.due:
            due.update(leaf.due)
        if leaf.owing:
            self._owing.update(leaf.owing)

    def settle(self) -> Iterable[Node]:
        """Charge whatever is owed; gives the classes that were charged."""
        owing, self._owing = self._owing, {}
        self._steps = 0
        settle_all(owing)
        return owing

    def forget(self, node: Node) -> None:
        """The class is no more."""
        self._owing.pop(node, None)
