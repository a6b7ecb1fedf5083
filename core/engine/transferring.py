"""The tiers' part of a step: what has ended, what is late, and what begins."""

from jackfield.core.engine.clock import Clock
from jackfield.core.engine.lifecycle import Lifecycle
from jackfield.core.engine.steps import Executor
from jackfield.core.kv.build import Memory

LONGEST_WAIT = 0.02
"""Seconds for which a step without work, or an engine without requests, waits for a transfer."""


class Transferring:
    """Between the mover, which accounts, and the executor, which copies."""

    def __init__(
        self, memory: Memory, executor: Executor, lifecycle: Lifecycle, clock: Clock
    ) -> None:
        self._cache, self._mover = memory
        self._executor = executor
        self._lifecycle = lifecycle
        self._clock = clock

    def begin(self) -> None:
        """A step begins: account for transfers that have ended, and give up those that are late."""
        now, mover = self._clock.now(), self._mover
        self._cache.begin(now)
        if not mover.is_busy:
            return
        chains = mover.ended(self._executor.transferred())
        late = mover.late(now)
        if late:
            chains += mover.give_up(self._executor.cancel_transfers(late))
        self._lifecycle.loaded(chains)

    def order(self) -> None:
        """The step is under way: start what it has ordered."""
        chains = (one.chain for one in reversed(self._lifecycle.planner.running.values()))
        running = (chain for chain in chains if chain is not None)
        orders = self._mover.orders(self._clock.now(), running)
        if orders:
            self._executor.transfer(orders)

    def wait(self) -> None:
        """Nothing runs, and somebody waits: let a transfer end."""
        if self._mover.is_busy:
            self._executor.await_transfer(LONGEST_WAIT)
