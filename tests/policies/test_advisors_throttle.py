"""Short prompts behind a long one: they come soon, and the long one is not slowed by much."""

from math import ceil
from random import Random
from typing import Any

import pytest

from jackfield.core.api import PrefillNeed, QuotaView
from jackfield.core.bench.null_executor import NullExecutor
from jackfield.core.engine.loop import Engine
from jackfield.core.engine.request import Request
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, context_for, make_engine, request
from jackfield.plugins.schedulers.long_prefill_throttle import (
    LongPrefillThrottle,
    LongPrefillThrottleConfig,
)

STEP = 64
SIZES = Sizes(1024, 16, max_tokens=STEP, max_seqs=12, max_model_len=8192)
LONG = 4000


def policy(share: float = 0.5, threshold: int = 512) -> LongPrefillThrottle:
    config = LongPrefillThrottleConfig(share=share, threshold=threshold)
    return LongPrefillThrottle(config, context_for(SIZES, ManualClock()))


def engine_with(share: float | None, sizes: Sizes = SIZES) -> Engine:
    advisors = {} if share is None else {"throttle": policy(share)}
    return make_engine(sizes, advisors=advisors, executor=NullExecutor())


def tokens_by_step(engine: Engine, limit: int = 2000) -> dict[str, list[int]]:
    """Name -> the steps in which it got a token."""
    found: dict[str, list[int]] = {}
    for number in range(1, limit):
        for delta in engine.step():
            found.setdefault(delta.id, []).extend([number] * len(delta.tokens))
        if not engine.has_work:
            return found
    raise AssertionError("the engine still has work")


def long_and_short(share: float | None, running: int = 0) -> dict[str, list[int]]:
    engine = engine_with(share)
    for number in range(running):
        engine.add(request(f"r{number}", [3], GREEDY.with_(max_tokens=400)))
    engine.step()
    engine.add(request("long", [1] * LONG))
    for number in range(5):
        engine.add(request(f"s{number}", [2] * 8))
    return tokens_by_step(engine)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75, 0.9])
def test_short_prompts_come_within_the_stated_steps(share: float) -> None:
    found = long_and_short(share)
    bound = ceil(40 / ((1 - share) * STEP)) + 1
    assert max(found[f"s{number}"][0] for number in range(5)) <= bound
    assert found["long"][0] <= ceil(LONG / (int(share * STEP))) + 1


def test_five_short_prompts_take_two_steps_after_that_of_the_long_one() -> None:
    found = long_and_short(0.5)
    assert [found[f"s{number}"][0] for number in range(5)] == [2, 2, 2, 2, 3]
    alone = ceil(LONG / STEP)
    assert found["long"][0] <= alone + 3, "it lost 40 positions and those of their answers"


def test_without_it_they_come_with_the_end_of_the_long_one() -> None:
    """4000 positions at 64 a step end in the 63rd, which has room for four short prompts."""
    found = long_and_short(None)
    assert found["long"][0] == 63
    assert [found[f"s{number}"][0] for number in range(5)] == [63, 63, 63, 63, 64]


def test_running_answers_never_pause() -> None:
    found = long_and_short(0.5, running=3)
    for number in range(3):
        steps = found[f"r{number}"]
        assert len(steps) == 399 and steps == list(range(1, 400))


def test_alone_a_long_prompt_is_not_slowed() -> None:
    for share in (0.1, None):
        engine = engine_with(share)
        engine.add(request("long", [1] * LONG))
        assert tokens_by_step(engine)["long"][0] == 63


def test_who_cannot_be_admitted_slows_nobody() -> None:
    """There is one seat, so that leaving room in the step would help nobody."""
    engine = engine_with(0.1, Sizes(1024, 16, max_tokens=STEP, max_seqs=1, max_model_len=8192))
    engine.add(request("long", [1] * LONG))
    engine.add(request("short", [2] * 8))
    assert tokens_by_step(engine)["long"][0] == 63


def test_nor_does_who_has_no_blocks() -> None:
    engine = engine_with(0.1, Sizes(260, 16, max_tokens=STEP, max_seqs=4, max_model_len=8192))
    engine.add(request("long", [1] * LONG))
    engine.add(request("large", [2] * 300))
    assert tokens_by_step(engine)["long"][0] == 63


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_a_stream_of_short_prompts_slows_it_at_most_by_the_share(share: float) -> None:
    engine = engine_with(share)
    engine.add(request("long", [1] * LONG))
    found, number = None, 0
    while found is None:
        for _ in range(4):
            engine.add(request(f"s{number}", [2] * 30, GREEDY.with_(max_tokens=1)))
            number += 1
        found = next((d for d in engine.step() if d.id == "long"), None)
    steps = engine.metrics.steps
    assert steps > 1.2 * LONG / STEP, "short ones take their part"
    assert steps <= ceil(LONG / int(share * STEP)) + 1


def need(handle: int, length: int) -> PrefillNeed:
    one = Request(
        handle, f"r{handle}", 0, [1] * length, GREEDY, request("r", [1]).context,
        arrival=0.0, seed=0, max_tokens=1, eos_ids=frozenset(),
    )  # fmt: skip
    return PrefillNeed(one.view, length)


def test_limits_against_their_definition() -> None:
    random = Random(0)
    for _ in range(500):
        lengths = [random.choice((5, 50, 512, 513, 3000)) for _ in range(random.randint(1, 6))]
        share, tokens = random.choice((0.2, 0.5, 1.0)), random.randint(1, 2048)
        waiting = random.choice((0, 0, 30, 5000))
        prefills = [need(handle, length) for handle, length in enumerate(lengths)]
        view = QuotaView(0.0, prefills, tokens, waiting)
        limits: Any = policy(share).quota(view)
        long = [handle for handle, length in enumerate(lengths) if length > 512]
        assert list(limits) == long
        others = waiting + sum(length for length in lengths if length <= 512)
        free = max(tokens - others, int(share * tokens), 1)
        assert sum(limits.values()) == min(free if long else 0, sum(lengths[h] for h in long))
