"""Earliest deadline first."""

from collections.abc import Sequence

from pydantic import Field

from jackfield.core.api import (
    Claim,
    Discipline,
    PolicyConfig,
    Rank,
    RequestView,
    WorkConserving,
)
from jackfield.core.api import Edf as InTime


class EdfConfig(PolicyConfig):
    """laxity: seconds after its arrival at which a request without a deadline counts as due."""

    laxity: float = Field(60.0, gt=0)


class Edf(Discipline[None]):
    """Orders a leaf by deadline; when memory is short, the latest deadline is preempted first.

    Deadlines come with the request's context. One that has passed is not special: it is merely
    the most urgent. To refuse what cannot make it is an advisor's job.

    Guarantee: of two requests of one leaf, the one that is due later is never admitted first,
    except through the starvation valve. Where one seat serves all and any order could meet all
    deadlines, this one does, up to the length of one request.

    Source: Liu and Layland, Scheduling Algorithms for Multiprogramming in a Hard-Real-Time
    Environment, JACM 1973.
    """

    Config = EdfConfig

    @property
    def claims(self) -> Sequence[Claim]:
        """Of all requests, with a deadline or without."""
        return InTime(self.config.laxity), WorkConserving()

    def key(self, request: RequestView, now: float) -> Rank:
        return self._due(request)

    def keep(self, request: RequestView, now: float) -> Rank:
        return -self._due(request)

    def _due(self, request: RequestView) -> float:
        deadline = request.context.deadline
        laxity: float = self.config.laxity
        return request.arrival + laxity if deadline is None else deadline
