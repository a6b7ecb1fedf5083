"""A random life of an engine with a cache: arrivals, aborts, jumps of the clock, resets, transfers.

Prompts begin alike and pools are tiny, so that blocks are found, shared, given up and moved all the
time. See `CacheWatch` and `cache_inspectors` for the laws; a wrong answer breaks one too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from jackfield.core.api import CacheHints, RequestContext, RequestError, SamplingParams
from jackfield.core.engine.messages import NewRequest
from jackfield.core.kv.build import CacheSettings
from jackfield.core.testing.cache_inspectors import NoPeeking, inspect, may_see, zone_of
from jackfield.core.testing.cache_lives import TENANTS, TierMood, start_cached
from jackfield.core.testing.cache_watch import CacheWatch
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes
from jackfield.core.testing.fake_pace import AfterCalls, AnyOrder, Pace
from jackfield.core.testing.lives import EOS
from jackfield.core.testing.memory import CacheKit
from jackfield.core.testing.scheduler_machine import params, token

MakeKit = Callable[[], CacheKit]
"""A new stack of cache plugins."""
TIMEOUT = 0.2
PREFIXES = ((1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 3, 4, 9, 9, 9, 9), (1, 2, 2), (5,) * 16)
BY_HAND = "by hand"
PACES: Mapping[str, Callable[[Random], Pace] | None] = {
    "at once": None, "in any order": lambda random: AnyOrder(random, 0.3),
    "later": lambda random: AfterCalls(2), BY_HAND: lambda random: Pace(),
}  # fmt: skip
sizes = st.builds(
    Sizes,
    num_blocks=st.integers(8, 20),
    block_size=st.integers(2, 4),
    max_tokens=st.integers(4, 16),
    max_seqs=st.integers(1, 5),
    max_model_len=st.just(24),
    share=st.sampled_from([0.0, 0.3]),
    overlap=st.integers(0, 2),
)
settings = st.builds(
    CacheSettings,
    block_bytes=st.just(1),
    parts=st.just({}),
    isolates=st.sampled_from([True, True, False]),
    shared_prefix_tokens=st.sampled_from([0, 0, 4, 5]),
    pinned_share=st.sampled_from([0.0, 0.3, 1.0]),
    loading_share=st.sampled_from([0.1, 0.5]),
    transfer_budget=st.sampled_from([1, 3, 100]),
    transfer_timeout=st.just(TIMEOUT),
)
prompts = st.builds(
    lambda prefix, length, suffix: [*prefix[:length], *suffix] or [0],
    st.sampled_from(PREFIXES),
    st.integers(0, 16),
    st.lists(token, max_size=4),
)
hints = st.builds(
    CacheHints,
    ttl=st.sampled_from([None, None, 0.001, 1.0, 50.0]),
    pin=st.booleans(),
    salt=st.sampled_from(["", "", "x", "red"]),
    shared_prefix_tokens=st.sampled_from([None, None, 0, 3, 4, 9]),
)
contexts = st.builds(RequestContext, tenant=st.sampled_from(TENANTS), cache=hints)


def cache_machine(kits: Sequence[MakeKit]) -> type[RuleBasedStateMachine]:
    """A state machine on the real engine, each time with one of these stacks."""

    class Machine(RuleBasedStateMachine):
        @initialize(
            size=sizes, asked=settings, make=st.sampled_from(list(kits)),
            pace=st.sampled_from(list(PACES)), failing=st.sampled_from([0.0, 0.0, 0.1, 0.5]),
            touching=st.sampled_from([0.0, 0.5]),
        )  # fmt: skip
        def begin(
            self,
            size: Sizes,
            asked: CacheSettings,
            make: MakeKit,
            pace: str,
            failing: float,
            touching: float,
        ) -> None:
            self.clock, self.count = ManualClock(), 0
            self.by_hand = pace == BY_HAND
            mood = TierMood(PACES[pace], failing, touching)
            self.watch = watched(make(), size, self.clock, asked, mood)

        @rule(prompt=prompts, asked=params(), context=contexts)
        def arrive(self, prompt: list[int], asked: SamplingParams, context: RequestContext) -> None:
            self.count += 1
            answers = asked.n if self.count % 4 else 4
            new = NewRequest(f"r{self.count}", prompt, replace(asked, n=answers), context)
            try:
                self.watch.engine.validate(new)
            except RequestError:
                return
            self.watch.add(new, EOS)

        @rule(steps=st.integers(1, 6))
        def step(self, steps: int) -> None:
            for _ in range(steps):
                self.watch.step()

        @rule(back=st.integers(0, 5), index=st.sampled_from([None, None, 0, 1, 2]))
        def abort(self, back: int, index: int | None) -> None:
            self.watch.abort(f"r{self.count - back}", index)

        @rule(seconds=st.sampled_from([0.0, 0.001, 0.5, TIMEOUT, 1e6]))
        def advance_clock(self, seconds: float) -> None:
            self.clock.advance(seconds)

        @rule()
        def reset(self) -> None:
            reset(self.watch)

        @precondition(lambda self: self.by_hand)
        @rule(places=st.lists(st.integers(0, 9), min_size=1, max_size=3), ok=st.booleans())
        def transfers_end(self, places: list[int], ok: bool) -> None:
            end_transfers(self.watch, places, ok)

        @rule()
        def drain(self) -> None:
            self.watch.drain()

        def teardown(self) -> None:
            if hasattr(self, "watch"):
                self.watch.drain()

    return Machine


def watched(
    kit: CacheKit,
    size: Sizes,
    clock: ManualClock,
    settings: CacheSettings,
    mood: TierMood,
    seed: int = 0,
) -> CacheWatch:
    """A new engine with that cache, and all inspectors of caches at work."""
    zone = zone_of(settings, size.block_size)
    watch = start_cached(
        kit, size, clock, Random(seed), settings=settings, mood=mood, may_see=may_see(zone)
    )
    inspect(settings, watch)
    return watch


def reset(watch: CacheWatch) -> bool:
    """Reset the cache between two steps; whether it was."""
    done = watch.engine.reset_prefix_cache()
    watch.engine.check()
    for inspector in watch.inspectors:
        if done and isinstance(inspector, NoPeeking):
            inspector.reset(watch)
    return done


def end_transfers(watch: CacheWatch, places: Sequence[int], ok: bool) -> None:
    """Those at these places among all that are under way end, or fail."""
    tiers = watch.executor.tiers
    for place in places:
        waiting = tiers.waiting
        if waiting:
            number = waiting[place % len(waiting)]
            if ok:
                tiers.finish(number)
            else:
                tiers.fail(number, "by hand")
