"""Running requests that give their seat to a waiting one of a much better rank."""

from typing import NamedTuple

from jackfield.core.engine.caps import Caps
from jackfield.core.engine.level import Level
from jackfield.core.engine.node import Leaf, leaf_of
from jackfield.core.engine.planner import Planner
from jackfield.core.engine.request import Request
from jackfield.core.engine.standing import displacer, worst_first


class Displaced(NamedTuple):
    """A running request that goes, and the level that says so."""

    request: Request
    level: Level


def victims_for(head: Request, planner: Planner, caps: Caps, now: float) -> list[Displaced]:
    """Whom to preempt so that the head fits at once; empty if that cannot be, or need not.

    Blocks that the others' decodes take in this step are left to them.
    """
    needed = _decode_blocks(planner)
    seats = planner.seats_left
    free = planner.pool.num_free - needed - planner.admission_blocks(head) - caps.reserve_blocks
    if seats and free >= 0:
        return []
    chosen: list[Displaced] = []
    levels: dict[Leaf, Level | None] = {}
    worse = []
    for request in planner.preemptible():
        leaf = leaf_of(request)
        if leaf not in levels:
            levels[leaf] = displacer(head, leaf, now)
        if levels[leaf] is not None and not planner.is_new(request):
            worse.append(request)
    for request in worst_first(worse, now):
        level = levels[leaf_of(request)]
        assert level is not None
        chosen.append(Displaced(request, level))
        free += planner.freed_blocks(request) + int(planner.wants_block(request))
        if free >= 0:
            return chosen
    return []


def _decode_blocks(planner: Planner) -> int:
    return sum(planner.wants_block(request) for request in planner.running.values())
