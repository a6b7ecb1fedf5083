"""Engines under watch, and whole lives of them: many requests that come, wait, run and go."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from jackfield.core.api import PolicyContext, RequestContext, RequestError, SamplingParams
from jackfield.core.engine.messages import NewRequest
from jackfield.core.engine.services import Services
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes, context_for, make_engine
from jackfield.core.testing.fake_executor import FakeExecutor
from jackfield.core.testing.stacks import Factory, build
from jackfield.core.testing.watch import Watch

IDS = 13
EOS = frozenset({12})
TENANTS = ("red", "green", "blue")
TIGHT = Sizes(num_blocks=12, block_size=2, max_tokens=8, max_seqs=4, max_model_len=24, share=0.1)
Advisors = Callable[[PolicyContext], Mapping[str, Any]]


def start(
    make_policies: Factory,
    sizes: Sizes,
    clock: ManualClock,
    make_advisors: Advisors | None = None,
) -> Watch:
    """A new engine with new policies, watched. Its tokens are 0 to 12; 12 ends an answer."""
    services = Services()
    context = context_for(sizes, clock, services)
    stack = build(make_policies, context)
    more = make_advisors(context) if make_advisors is not None else {}
    advisors = {**stack.advisors, **more}
    executor = FakeExecutor(sizes.block_size, IDS)
    engine = make_engine(
        sizes,
        disciplines=stack.disciplines,
        advisors=advisors,
        executor=executor,
        clock=clock,
        eos_ids=EOS,
        services=services,
    )
    rejects = any(hasattr(advisor, "admit") for advisor in advisors.values())
    return Watch(engine, sizes, executor, clock, vocab_size=IDS, may_reject=rejects)


def life(
    make_policies: Factory,
    sizes: Sizes = TIGHT,
    *,
    seed: int = 0,
    steps: int = 100,
    make_advisors: Advisors | None = None,
    prepare: Callable[[Watch], None] | None = None,
) -> Watch:
    """Random arrivals, aborts and pauses for so many steps, then the end of everybody.

    The same seed gives the same events. Raises `AssertionError` when a law is broken. prepare:
    called once, before anybody arrives.
    """
    random, clock = Random(seed), ManualClock()
    watch = start(make_policies, sizes, clock, make_advisors)
    if prepare is not None:
        prepare(watch)
    for number in range(steps):
        _arrive(watch, random, number)
        if random.random() < 0.1:
            watch.abort(f"r{random.randrange(number + 1)}")
        clock.advance(random.choice((0.0, 0.01, 1.0)))
        watch.step()
    watch.drain()
    return watch


def _arrive(watch: Watch, random: Random, number: int) -> None:
    if random.random() < 0.6:
        return
    length = random.randint(1, 12)
    new = NewRequest(
        f"r{number}",
        [random.choice((1, 2))] * (length // 2) + _tokens(random, length - length // 2),
        SamplingParams(
            n=random.choice((1, 1, 1, 2, 3)),
            temperature=random.choice((0.0, 1.0)),
            max_tokens=random.choice((None, 0, 1, 4, 9)),
            ignore_eos=random.random() < 0.5,
        ),
        RequestContext(tenant=random.choice(TENANTS), priority=random.randint(-2, 2)),
        [_tokens(random, random.randint(1, 2))] if random.random() < 0.2 else [],
    )
    try:
        watch.engine.validate(new)
    except RequestError:
        return
    watch.add(new, EOS)


def _tokens(random: Random, count: int) -> list[int]:
    return [random.randrange(IDS - 1) for _ in range(count)]
