"""First come, first served: the leaf that every stack ends in."""

from collections.abc import Sequence
from typing import ClassVar

from jackfield.core.api import Claim, Discipline, WorkConserving
from jackfield.core.api import Fcfs as InOrder


class Fcfs(Discipline[None]):
    """One class, ordered by arrival. A preempted request keeps its place.

    Guarantee: nobody is admitted before somebody who came earlier to the same leaf.

    Source: the queue at every counter (Erlang 1909).
    """

    claims: ClassVar[Sequence[Claim]] = (InOrder("all"), WorkConserving())
