"""When memory is short, the worst priority goes first."""

from collections.abc import Sequence

from jackfield.core.api import PolicyConfig, PolicyContext, RequestView, VictimView, hookimpl


class LowestPriority:
    """Preempts by priority, the highest number first; of one priority, in the stack's order.

    For stacks that do not order by priority, so that it counts at least for who stays.

    Guarantee: of those that the core offers, nobody goes before all of a worse priority have gone.
    The core offers everybody to the oldest request, to others those that the stack puts behind
    them.

    Source: preemption by priority, as in Liu and Layland, Scheduling Algorithms for
    Multiprogramming in a Hard-Real-Time Environment, Journal of the ACM 20(1), 1973.
    """

    Config = PolicyConfig

    def __init__(self, config: PolicyConfig, context: PolicyContext) -> None:
        pass

    @hookimpl
    def victims(self, shortage: VictimView) -> Sequence[int]:
        return [request.handle for request in sorted(shortage.candidates, key=_worst_first)]


def _worst_first(request: RequestView) -> int:
    return -request.context.priority
