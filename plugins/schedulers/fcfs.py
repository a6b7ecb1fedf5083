"""First come, first served: the leaf that every stack ends in."""

from jackfield.core.api import Discipline


class Fcfs(Discipline[None]):
    """One class, ordered by arrival. A preempted request keeps its place."""
