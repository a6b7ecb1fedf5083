"""Whether the next of the queue had better wait a little, for content that is under way."""

from jackfield.core.engine.caps import Caps
from jackfield.core.engine.followers import Computing, leader_for
from jackfield.core.engine.outcome import Detour
from jackfield.core.engine.planner import Planner
from jackfield.core.engine.reasons import Code
from jackfield.core.engine.request import Request
from jackfield.core.kv.load import Later


def detour_for(
    request: Request, planner: Planner, caps: Caps, computing: Computing, patience: float
) -> Detour | Later | None:
    """Why the request is set aside rather than admitted now; None = it is not; Later = nobody is
    admitted.

    It would fit. patience: when it is woken at the latest if somebody else computes what it needs.
    """
    chain = request.chain
    if chain is None:
        return None
    leader = leader_for(request, planner, computing)
    if leader is not None:
        reason = f"{leader.request.id} computes {leader.num_tokens} tokens that it begins with too"
        return Detour(request, Code.AWAITS_PREFIX, reason, patience, leader)
    if request.wants_prompt_scores and not request.output:
        return None
    reserve = caps.reserve_blocks if planner.running else 0
    load = planner.mover.load(chain, planner.pool.num_free - reserve)
    if load is None or isinstance(load, Later):
        return load
    reason = f"{len(load.entries)} blocks of it are loaded"
    return Detour(request, Code.AWAITS_LOAD, reason, load.deadline)
