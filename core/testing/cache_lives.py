"""Whole lives of engines with caches: prompts with common beginnings, tiny pools, any tiers."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import NamedTuple

from jackfield.core.api import CacheHints, RequestContext, RequestError, SamplingParams
from jackfield.core.engine.messages import NewRequest
from jackfield.core.engine.services import Services
from jackfield.core.kv.build import CacheSettings
from jackfield.core.testing.cache_watch import CacheWatch, MaySee
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes, make_engine
from jackfield.core.testing.fake_executor import FakeExecutor
from jackfield.core.testing.fake_memory import FakeMemory
from jackfield.core.testing.fake_pace import Pace
from jackfield.core.testing.fake_tiers import FakeTiers
from jackfield.core.testing.lives import EOS, IDS
from jackfield.core.testing.memory import CacheKit

CROWDED = Sizes(num_blocks=14, block_size=2, max_tokens=8, max_seqs=4, max_model_len=24, share=0.1)
TENANTS = ("red", "green")
BEGINNINGS = (
    (1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 3, 4, 9, 9, 9, 9), (1, 2, 2, 2), (5, 5, 5, 5, 5, 5, 5, 5, 5, 5)
)  # fmt: skip


class TierMood(NamedTuple):
    """How the tiers of a life behave. pace: makes one; None = everything ends at once.

    failure_share: of transfers that fail. touching_share: of those that cannot be given up.
    """

    pace: Callable[[Random], Pace] | None = None
    failure_share: float = 0.0
    touching_share: float = 0.0


def start_cached(
    kit: CacheKit,
    sizes: Sizes,
    clock: ManualClock,
    random: Random,
    *,
    settings: CacheSettings | None = None,
    mood: TierMood | None = None,
    may_see: MaySee | None = None,
) -> CacheWatch:
    """A new engine with that cache, watched. Its tokens are 0 to 12; 12 ends an answer."""
    mood = mood or TierMood()
    memory = FakeMemory(sizes.block_size)
    tiers = FakeTiers(
        memory,
        mood.pace(random) if mood.pace else None,
        num_slots={tier.name: tier.num_slots for tier in kit.tiers},
        failure_share=mood.failure_share,
        touching_share=mood.touching_share,
        random=random,
        clock=clock,
    )
    executor = FakeExecutor(sizes.block_size, IDS, tiers=tiers)
    engine = make_engine(
        sizes,
        executor=executor,
        clock=clock,
        eos_ids=EOS,
        services=Services(),
        cache=kit,
        cache_settings=settings,
    )
    return CacheWatch(engine, sizes, executor, clock, vocab_size=IDS, may_see=may_see)


def cached_life(
    kit: CacheKit,
    sizes: Sizes = CROWDED,
    *,
    seed: int = 0,
    steps: int = 120,
    overlap: int = 0,
    settings: CacheSettings | None = None,
    mood: TierMood | None = None,
    may_see: MaySee | None = None,
    hints: Callable[[Random], CacheHints] | None = None,
    prepare: Callable[[CacheWatch], None] | None = None,
) -> CacheWatch:
    """Random arrivals, aborts, pauses and resets for so many steps, then the end of everybody.

    The same seed gives the same events. Raises `AssertionError` when a law is broken. prepare:
    called once, before anybody arrives.
    """
    random, clock = Random(seed), ManualClock()
    sizes = replace(sizes, overlap=overlap)
    watch = start_cached(
        kit, sizes, clock, Random(seed + 1), settings=settings, mood=mood, may_see=may_see
    )
    if prepare is not None:
        prepare(watch)
    for number in range(steps):
        if random.random() < 0.6:
            _arrive(watch, random, number, hints)
        if random.random() < 0.08:
            watch.abort(f"r{random.randrange(number + 1)}")
        if random.random() < 0.03:
            watch.engine.reset_prefix_cache()
        clock.advance(random.choice((0.0, 0.01, 1.0)))
        watch.step()
    watch.drain()
    return watch


def _arrive(
    watch: CacheWatch,
    random: Random,
    number: int,
    hints: Callable[[Random], CacheHints] | None,
) -> None:
    beginning = random.choice(BEGINNINGS)[: random.randint(0, 10)]
    prompt = [*beginning, *(random.randrange(IDS - 1) for _ in range(random.randint(0, 4)))] or [0]
    params = SamplingParams(
        n=random.choice((1, 1, 1, 2, 4)),
        temperature=random.choice((0.0, 0.0, 1.0)),
        max_tokens=random.choice((None, 0, 1, 4, 9)),
        ignore_eos=random.random() < 0.7,
        prompt_logprobs=random.choice((None, None, None, 1)),
    )
    cache = hints(random) if hints else CacheHints()
    context = RequestContext(tenant=random.choice(TENANTS), cache=cache)
    new = NewRequest(f"r{number}", prompt, params, context)
    try:
        watch.engine.validate(new)
    except RequestError:
        return
    watch.add(new, EOS)
