"""Who may have read what a failed step was to write."""

from collections.abc import Collection, Iterator, Sequence

from jackfield.core.engine.planner import Planner
from jackfield.core.engine.request import Request, Status
from jackfield.core.engine.steps import StepPlan
from jackfield.core.kv.entry import Entry


def readers_of(
    plan: StepPlan, requests: Sequence[Request], lost: Collection[Entry], planner: Planner
) -> list[Request]:
    """Running requests that share blocks with a failed step. lost: entries that it was to fill."""
    found = dict.fromkeys(_members(plan, requests))
    if lost:
        found.update((one, None) for one in planner.running.values() if _holds(one, lost))
    return list(found)


def _members(plan: StepPlan, requests: Sequence[Request]) -> Iterator[Request]:
    """Other answers to a prompt that were admitted on blocks which the step was to write."""
    for part, request in zip(plan.slices, requests, strict=True):
        for member in request.group.members if request.group is not None else ():
            if member.status is Status.RUNNING and member.num_cached > part.start:
                yield member


def _holds(request: Request, lost: Collection[Entry]) -> bool:
    """Whether it holds such a block, or has copied one."""
    chain = request.chain
    if chain is None:
        return False
    return chain.copied in lost or any(entry in lost for entry in chain.entries)
