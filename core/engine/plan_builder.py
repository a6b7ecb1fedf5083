"""The planner as a plugin sees it: one step, by hand, with every invariant kept."""

from collections.abc import Callable, Sequence

from jackfield.core.api import RequestView
from jackfield.core.engine.caps import Caps
from jackfield.core.engine.outcome import Admission, Outcome, Preemption
from jackfield.core.engine.planner import Planner
from jackfield.core.engine.reasons import Code
from jackfield.core.engine.request import Request
from jackfield.core.engine.tree import WaitingTree
from jackfield.core.engine.valve import Valve

CHOSEN = "the plan hook chose it"


class StepBuilder:
    """A `PlanBuilder` for one call of the hook; `close` ends it.

    seat: gives a waiting request its seat and takes it out of the queues.
    """

    def __init__(
        self,
        planner: Planner,
        tree: WaitingTree,
        valve: Valve,
        caps: Caps,
        outcome: Outcome,
        plugin: str,
        now: float,
        seat: Callable[[Request], None],
    ) -> None:
        self._planner = planner
        self._tree = tree
        self._valve = valve
        self._caps = caps
        self._outcome = outcome
        self._plugin = plugin
        self._now = now
        self._seat = seat
        self._slices = 0
        self._prompt_tokens = 0
        self._is_open = True

    def close(self) -> None:
        """The hook has returned: nothing is possible any more."""
        self._is_open = False

    @property
    def tokens_left(self) -> int:
        """See `PlanBuilder`."""
        if not self._is_open or self._slices >= self._caps.seqs:
            return 0
        used = self._planner.limits.max_tokens - self._planner.tokens_left
        return max(self._caps.tokens - used, 0)

    @property
    def seats_left(self) -> int:
        """See `PlanBuilder`."""
        left = min(self._planner.seats_left, self._caps.new_seqs - len(self._outcome.admitted))
        return max(left, 0) if self._is_open else 0

    @property
    def free_blocks(self) -> int:
        """See `PlanBuilder`."""
        return self._planner.pool.num_free if self._is_open else 0

    @property
    def running(self) -> Sequence[RequestView]:
        """See `PlanBuilder`."""
        requests = self._planner.running.values() if self._is_open else ()
        return tuple(request.view for request in requests)

    @property
    def decoding(self) -> Sequence[RequestView]:
        """See `PlanBuilder`."""
        requests = self._planner.running.values() if self._is_open else ()
        return tuple(request.view for request in requests if self._decodes(request))

    @property
    def waiting(self) -> Sequence[RequestView]:
        """See `PlanBuilder`."""
        requests = self._valve.requests() if self._is_open else ()
        may = self._tree.may_be_admitted
        return tuple(request.view for request in requests if may(request, self._now))

    def need(self, handle: int) -> int:
        """See `PlanBuilder`."""
        request = self._runner(handle)
        return 0 if request is None or request.fed == request.computed else request.need

    def decode(self, handle: int) -> bool:
        """See `PlanBuilder`."""
        request = self._runner(handle)
        if request is None or not self._decodes(request) or self.tokens_left < 1:
            return False
        if request.computed >= request.room and not self._planner.pool.num_free:
            return False
        self._planner.decode((request,))
        self._slices += 1
        return True

    def grant(self, handle: int, tokens: int) -> bool:
        """See `PlanBuilder`."""
        request = self._runner(handle)
        if request is None or self._planner.is_granted(request) or type(tokens) is not int:
            return False
        prompt_left = self._caps.prefill_tokens - self._prompt_tokens
        if not 0 < tokens <= min(self.need(handle), self.tokens_left, prompt_left):
            return False
        self._outcome.recomputed += request.again(tokens)
        self._planner.grant(request, tokens)
        self._slices += 1
        self._prompt_tokens += tokens
        return True

    def admit(self, handle: int) -> bool:
        """See `PlanBuilder`."""
        request = self._valve.find(handle) if self._is_open and type(handle) is int else None
        if request is None or not self.seats_left:
            return False
        if not self._tree.may_be_admitted(request, self._now):
            return False
        if not self._caps.fits(self._planner, request):
            return False
        self._seat(request)
        self._outcome.admitted.append(Admission(request, Code.PLAN, self._plugin))
        return True

    def preempt(self, handle: int) -> bool:
        """See `PlanBuilder`."""
        request = self._runner(handle)
        if request is None or self._planner.is_new(request):
            return False
        if request not in self._planner.preemptible():
            return False
        if self._planner.is_granted(request):
            self._slices -= 1
        self._planner.preempt(request)
        self._outcome.preempted.append(Preemption(request, self._plugin, CHOSEN, Code.PLAN))
        return True

    def _runner(self, handle: int) -> Request | None:
        if not self._is_open or type(handle) is not int:
            return None
        return self._planner.running.get(handle)

    def _decodes(self, request: Request) -> bool:
        is_next = request.fed == request.computed and request.total < request.limit
        return is_next and not self._planner.is_granted(request)
