"""A watch that also knows what every block and slot of a cache ought to hold."""

from collections.abc import Callable
from typing import Any

from jackfield.core.engine.loop import Engine
from jackfield.core.engine.request import Request
from jackfield.core.kv.entry import Entry
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes
from jackfield.core.testing.fake_executor import FakeExecutor, Seat
from jackfield.core.testing.shadow import Place, Shadow
from jackfield.core.testing.watch import Watch

MaySee = Callable[[Request, Request, int], bool]


class CacheWatch(Watch):
    """Compares the cache's records with the fake device and its tiers after every step.

    may_see: whether two requests may hold the same block, which is the n-th of both; default: if
    they are of one tenant.
    """

    def __init__(
        self,
        engine: Engine,
        sizes: Sizes,
        executor: FakeExecutor,
        clock: ManualClock,
        *,
        may_see: MaySee | None = None,
        **options: Any,
    ) -> None:
        super().__init__(engine, sizes, executor, clock, **options)
        self.executor = executor
        self.shadow = Shadow(executor)
        self._may_see = may_see or _one_tenant

    @property
    def entries(self) -> list[Entry]:
        """All that is cached."""
        return list(self.engine.lifecycle.planner.cache.finder.entries.values())

    def step(self) -> None:
        """One step, all laws of scheduling, and the content of every block."""
        super().step()
        self.shadow.check_tables(self._seats())
        self.shadow.check_prefixes(self._places())

    def _seats(self) -> list[Seat]:
        """Those of requests that run; the device hears of the others with the next plan."""
        running = self.engine.lifecycle.planner.running
        return [seat for seat in self._executor.seats.values() if seat.join.handle in running]

    def _places(self) -> list[tuple[Place, list[int]]]:
        found: list[tuple[Place, list[int]]] = []
        for entry in self.entries:
            prefix = _prefix(entry)
            if entry.on_device:
                found.append((entry.block, prefix))
            found += [((name, slot), prefix) for name, slot in entry.slots.items()]
        return found

    def _may_share(self, first: Request, second: Request, block: int) -> bool:
        index = first.blocks.index(block)
        same_place = second.blocks.index(block) == index
        return same_place and self._may_see(first, second, index)

    def _may_be_empty(self) -> bool:
        return self.engine.lifecycle.planner.mover.is_busy

    def drain(self) -> None:
        """Until all have ended, and all transfers too."""
        super().drain()
        self.engine.lifecycle.planner.mover.stop()
        for _ in range(1000):
            if not self.engine.lifecycle.planner.mover.is_busy:
                break
            self._clock.advance(0.1)
            self.engine.step()
            self.engine.check()
        super().idle()

    def idle(self) -> None:
        """Everybody ended; blocks may still be on their way."""
        assert all(progress.ended for progress in self.answers.values()), "an answer has no end"


def _prefix(entry: Entry) -> list[int]:
    parts: list[int] = []
    one: Entry | None = entry
    while one is not None:
        parts = [*memoryview(one.tokens).cast("I"), *parts]
        one = one.parent
    return parts


def _one_tenant(first: Request, second: Request, index: int) -> bool:
    return first.context.tenant == second.context.tenant
