"""Strict priorities: a lower number always goes first."""

from jackfield.core.api import ClassState, Discipline, Rank, RequestView


class Priority(Discipline[None]):
    """One class per priority number. What is ordered inside a priority is the next level's job."""

    def classify(self, request: RequestView) -> int:
        return request.context.priority

    def rank(self, cls: ClassState[None], now: float) -> Rank:
        return float(cls.key)  # type: ignore[arg-type]
