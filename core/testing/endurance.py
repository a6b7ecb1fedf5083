"""Very long lives of an engine, at more load than it can serve: does it always move, and forget?"""

import gc
from collections import deque
from collections.abc import Iterable
from random import Random
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from jackfield.core.api import FinishReason, RequestContext, SamplingParams
from jackfield.core.engine.messages import NewRequest
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes
from jackfield.core.testing.lives import IDS, TENANTS, Advisors, start
from jackfield.core.testing.stacks import Factory

SIZES = Sizes(num_blocks=30, block_size=2, max_tokens=24, max_seqs=6, max_model_len=48, share=0.02)
QUEUE = 12
"""So many requests wait at most before some give up."""
PARTS = 4
EVERY = 50
"""Steps between looks at all blocks and seats."""
SPARE = 1000
"""Objects by which an idle engine varies, such as stale entries of its heaps."""
FORGOTTEN = 10_000.0
"""Seconds after which nothing is remembered of anybody."""
LONGEST_DRAIN = 50_000


class Lived(NamedTuple):
    """What a long life was. sizes: objects that the idle engine held after each part."""

    steps: int
    admissions: int
    preemptions: int
    rejections: int
    sizes: list[int]


def endure(
    make_policies: Factory,
    steps: int,
    *,
    seed: int = 0,
    sizes: Sizes = SIZES,
    make_advisors: Advisors | None = None,
) -> Lived:
    """Raises `AssertionError` when nothing moves, something is lost, or something grows."""
    clock = ManualClock()
    engine = start(make_policies, sizes, clock, make_advisors).engine
    run = _Run(engine, clock, Random(seed))
    held: list[int] = []
    for _ in range(PARTS):
        run.crowd(steps // PARTS)
        run.drain()
        run.forget()
        held.append(reachable([engine]))
    assert held[-1] <= max(held[:2]) + SPARE, f"the idle engine grows: {held}"
    metrics = engine.metrics
    rejections = sum(metrics.rejections.values())
    return Lived(run.steps, metrics.admissions, metrics.preemptions, rejections, held)


class _Run:
    """One engine and all who come to it."""

    def __init__(self, engine: Any, clock: ManualClock, random: Random) -> None:
        self._engine = engine
        self._clock = clock
        self._random = random
        self._open: dict[str, int] = {}
        self._count = 0
        self.steps = 0

    def crowd(self, steps: int) -> None:
        """So many steps in which more come than can be served."""
        random = self._random
        for _ in range(steps):
            if random.random() < 0.5:
                self._arrive()
            if len(self._open) > QUEUE + SIZES.max_seqs or random.random() < 0.02:
                self._engine.abort(random.choice(list(self._open) or ["nobody"]))
            self._clock.advance(random.choice((0.0, 0.01, 0.01, 0.5)))
            self._step()

    def _arrive(self) -> None:
        random = self._random
        name, self._count = f"r{self._count}", self._count + 1
        params = SamplingParams(
            temperature=0.0,
            n=random.choice((1, 1, 1, 2)),
            max_tokens=random.randint(1, 12),
            ignore_eos=random.random() < 0.5,
        )
        prompt = [random.randrange(IDS - 1) for _ in range(random.randint(1, 20))]
        deadline = self._clock.now() + random.choice((0.1, 5.0, 100.0))
        context = RequestContext(
            random.choice(TENANTS), random.choice("ab"), random.randint(0, 3), deadline
        )
        self._engine.add(NewRequest(name, prompt, params, context))
        self._open[name] = params.n

    def _step(self) -> None:
        engine = self._engine
        lifecycle = engine.lifecycle
        idle = not lifecycle.planner.running and not engine._in_flight
        must_move = idle and lifecycle.tree.head(self._clock.now()) is not None
        before = engine.metrics.steps, sum(engine.metrics.rejections.values())
        for delta in engine.step():
            assert delta.id in self._open, f"{delta.id} has news after its end"
            if delta.finish is not None:
                self._end(delta.id, delta.finish)
        after = engine.metrics.steps, sum(engine.metrics.rejections.values())
        assert not must_move or after != before, "nobody runs, somebody waits, and nothing moved"
        self.steps += 1
        if self.steps % EVERY == 0:
            engine.check()

    def _end(self, name: str, finish: FinishReason) -> None:
        self._open[name] -= 1
        if not self._open[name]:
            del self._open[name]

    def drain(self) -> None:
        """Nobody comes any more: all end, and everything is as it was at the start."""
        engine = self._engine
        for _ in range(LONGEST_DRAIN):
            if not engine.has_work:
                break
            if engine.is_idle and engine.next_alarm is not None:
                self._clock.advance(max(engine.next_alarm - self._clock.now(), 0.0))
            self._step()
        assert not self._open, f"{len(self._open)} requests never ended"
        planner = engine.lifecycle.planner
        assert planner.pool.num_free == planner.pool.num_blocks, "blocks are lost"
        assert planner.seats_left == planner.limits.max_seqs, "seats are lost"

    def forget(self) -> None:
        """Time passes, and one more request comes, so that idle classes are dropped."""
        self._clock.advance(FORGOTTEN)
        self._engine.add(NewRequest("last", [1], SamplingParams(max_tokens=1)))
        self._open["last"] = 1
        self.drain()




def reachable(roots: Iterable[Any]) -> int:
    """How many objects are held by these, but for queues of a fixed length."""
    seen: set[int] = set()
    pending = list(roots)
    while pending:
        one = pending.pop()
        bounded = isinstance(one, deque) and one.maxlen is not None
        if id(one) in seen or bounded or isinstance(one, (type, ModuleType)):
            continue
        seen.add(id(one))
        if isinstance(one, FunctionType):
            pending += one.__closure__ or ()
            continue
        pending += gc.get_referents(one)
    return len(seen)
