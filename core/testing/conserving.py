"""The claim that nothing is left unused that somebody could use."""

from typing import TYPE_CHECKING

from jackfield.core.engine.request import Request
from jackfield.core.engine.steps import StepPlan
from jackfield.core.testing.inspectors import Inspector

if TYPE_CHECKING:
    from jackfield.core.testing.watch import Watch


class Conserving(Inspector):
    """For engines without overlap, where all that a step samples is known when it ends."""

    def __init__(self) -> None:
        self._running: dict[Request, int] = {}
        self._waiting: list[Request] = []
        self._free = 0

    def before(self, watch: "Watch") -> None:
        engine = watch.engine
        lifecycle = engine.lifecycle
        running = lifecycle.planner.running.values()
        self._running = {one: one.num_preemptions for one in running}
        self._waiting = [*lifecycle.valve.requests(), *engine._arrivals]
        self._free = lifecycle.planner.pool.num_free

    def after(self, watch: "Watch") -> None:
        plan, planner = watch.plan, watch.engine.lifecycle.planner
        queued = set(watch.engine.lifecycle.valve.requests())
        left = [one for one in self._waiting if one in queued]
        if plan is None:
            assert not self._running, "somebody runs, and the step was empty"
            assert not left, f"nobody runs, and {left[0].id} waits on"
            return
        spare = planner.limits.max_tokens - plan.num_tokens
        blocks = self._free - sum(len(update.blocks) for update in plan.blocks)
        # A chunk may end a little earlier, for the place of its end.
        if spare < planner.limits.prompt_alignment or self._somebody_lost_its_seat():
            return
        if blocks > 0:
            self._check_running(watch, plan, spare)
        seats = planner.limits.max_seqs - len(self._running) - len(plan.joins)
        needed = max((planner.pool.blocks_for(one.total + 1) for one in left), default=0)
        assert not left or seats <= 0 or blocks < needed, (
            f"{left[0].id} waits on although {spare} tokens of the step, {seats} seats and "
            f"{blocks} blocks are left"
        )

    def _somebody_lost_its_seat(self) -> bool:
        return any(one.num_preemptions > before for one, before in self._running.items())

    def _check_running(self, watch: "Watch", plan: StepPlan, spare: int) -> None:
        planned = {part.handle for part in plan.slices}
        for request in self._running:
            assert request.handle in planned, (
                f"{request.id} runs and computes nothing although {spare} tokens are left"
            )
        for request in watch.engine.lifecycle.planner.running.values():
            assert request.fed == request.computed or not request.need, (
                f"{request.id} computes a part of its prompt although {spare} tokens are left"
            )
