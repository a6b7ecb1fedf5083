"""When memory is short, who loses the least work goes first."""

from collections.abc import Sequence

from jackfield.core.api import PolicyConfig, PolicyContext, RequestView, VictimView, hookimpl


class CheapestRecompute:
    """Preempts the request with the fewest positions to compute again; of equals, in the stack's
    order.

    What others hold of its prompt, or a cache, is not lost. Fewer positions free fewer blocks, so
    that more requests may have to go, each of which loses little.

    Guarantee: of those that the core offers, nobody goes before all that lose less have gone. The
    core offers everybody to the oldest request, to others those that the stack puts behind them.

    Source: the cost of recomputation, Kwon et al., Efficient Memory Management for Large Language
    Model Serving with PagedAttention, SOSP 2023, section 4.5, as the key of a greedy choice.
    """

    Config = PolicyConfig

    def __init__(self, config: PolicyConfig, context: PolicyContext) -> None:
        self._cached = context.cached_tokens

    @hookimpl
    def victims(self, shortage: VictimView) -> Sequence[int]:
        return [request.handle for request in sorted(shortage.candidates, key=self._loss)]

    def _loss(self, request: RequestView) -> int:
        return request.num_computed_tokens - self._cached(request)
