"""Who is preempted first, by each victim policy, against its definition."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from jackfield.core.api import (
    PluginConflict,
    PolicyContext,
    RequestContext,
    RequestView,
    VictimView,
)
from jackfield.core.bench.null_executor import NullExecutor
from jackfield.core.engine.loop import Engine
from jackfield.core.engine.request import Request
from jackfield.core.host.config import Config
from jackfield.core.host.stack import build_stack
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, context_for, make_engine, request
from jackfield.plugins.schedulers.cheapest_recompute import CheapestRecompute
from jackfield.plugins.schedulers.lifo import Lifo
from jackfield.plugins.schedulers.lowest_priority import LowestPriority

POLICIES: dict[str, Any] = {
    "lifo": Lifo,
    "lowest_priority": LowestPriority,
    "cheapest_recompute": CheapestRecompute,
}
SIZES = Sizes(13, 2, max_tokens=64, max_seqs=8, max_model_len=24)


def context() -> PolicyContext:
    found = context_for(SIZES, ManualClock())
    found.cached_tokens = cached
    return found


def cached(one: RequestView) -> int:
    """As if others held so much of it."""
    return min(int(one.id), one.num_computed_tokens)


def candidates(random: Random) -> list[RequestView]:
    """In any order, as the stack may have it."""
    found = []
    for handle in random.sample(range(100), random.randint(1, 12)):
        record = Request(
            handle, str(random.randrange(20)), 0, [1] * 8, GREEDY,
            RequestContext(priority=random.randint(-2, 2)),
            arrival=handle / 10, seed=0, max_tokens=40, eos_ids=frozenset(),
        )  # fmt: skip
        record.computed = random.choice((2, 8, 8, random.randrange(48)))
        found.append(record.view)
    return found


def by_arrival(views: list[RequestView]) -> list[int]:
    return [one.handle for one in sorted(views, key=lambda one: -one.arrival)]


def by_priority(views: list[RequestView]) -> list[int]:
    """The highest number first; of one number, as they are offered."""
    numbers = sorted({one.context.priority for one in views}, reverse=True)
    return [one.handle for n in numbers for one in views if one.context.priority == n]


def by_loss(views: list[RequestView]) -> list[int]:
    """Selection of the smallest again and again; of equals, the first that is offered."""
    left, found = list(views), []
    while left:
        losses = [one.num_computed_tokens - cached(one) for one in left]
        found.append(left.pop(losses.index(min(losses))).handle)
    return found


@pytest.mark.parametrize(
    ("name", "model"),
    [("lifo", by_arrival), ("lowest_priority", by_priority), ("cheapest_recompute", by_loss)],
)
def test_order_under_random_states(
    name: str, model: Callable[[list[RequestView]], list[int]]
) -> None:
    policy, random = POLICIES[name](POLICIES[name].Config(), context()), Random(0)
    for _ in range(500):
        views = candidates(random)
        found = policy.victims(VictimView(0.0, 1, tuple(views)))
        assert list(found) == model(views)


def first_victim(name: str | None) -> list[str]:
    """The oldest needs a block, the others have room for a token, and none is free."""
    engine = short_of_memory(name)
    engine.step()
    assert len(engine.lifecycle.planner.running) == 5 and not engine.lifecycle.planner.pool.num_free
    engine.step()
    return [one.id for one in everybody(engine) if one.num_preemptions]


def short_of_memory(name: str | None) -> Engine:
    advisors = {}
    if name is not None:
        policy = POLICIES[name]
        advisors = {name: policy(policy.Config(), context_for(SIZES, ManualClock()))}
    engine = make_engine(SIZES, advisors=advisors, executor=NullExecutor())
    prompts = ("oldest", 4, 0), ("urgent", 5, -1), ("small", 1, 3), ("large", 7, 9), ("last", 5, 0)
    for one, length, priority in prompts:
        params = GREEDY.with_(max_tokens=16)
        engine.add(request(one, [1] * length, params, context=RequestContext(priority=priority)))
    return engine


def everybody(engine: Engine) -> list[Request]:
    return [one for members in engine._requests.values() for one in members]


def test_the_core_follows_the_owner() -> None:
    first = {name: first_victim(name) for name in (None, *POLICIES)}
    assert first == {
        None: ["last"],
        "lifo": ["last"],
        "lowest_priority": ["large"],
        "cheapest_recompute": ["small"],
    }


def test_two_owners_are_an_error_at_the_start() -> None:
    config = Config(scheduler={"advisors": ["lifo", "cheapest_recompute"]})
    with pytest.raises(PluginConflict, match=r"only one plugin may implement the hook 'victims'"):
        build_stack(config, make_context=lambda name: context())
