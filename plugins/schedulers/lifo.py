"""When memory is short, who arrived last goes first."""

from collections.abc import Sequence

from jackfield.core.api import PolicyConfig, PolicyContext, VictimView, hookimpl


class Lifo:
    """Preempts the requests that arrived last, whatever the stack thinks of their classes.

    Guarantee: of those that the core offers, nobody goes before all that arrived later have gone.
    The core offers everybody to the oldest request, to others those that the stack puts behind
    them.

    Source: Kwon et al., Efficient Memory Management for Large Language Model Serving with
    PagedAttention, SOSP 2023, section 4.5 (the latest are preempted first).
    """

    Config = PolicyConfig

    def __init__(self, config: PolicyConfig, context: PolicyContext) -> None:
        pass

    @hookimpl
    def victims(self, shortage: VictimView) -> Sequence[int]:
        return sorted((request.handle for request in shortage.candidates), reverse=True)
