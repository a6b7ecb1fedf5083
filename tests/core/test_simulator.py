"""Long random runs of every installed scheduler on a clock of its own: progress never stops.

Each is of 3000 steps, and of twice as many with the deep profile.
"""

from importlib.metadata import entry_points
from random import Random

import pytest
from hypothesis import settings

from jackfield.core.api import RequestContext, SamplingParams
from jackfield.core.engine.messages import NewRequest
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes
from jackfield.core.testing.lives import EOS, IDS, TENANTS, start
from jackfield.core.testing.stacks import factory_of
from jackfield.core.testing.watch import Watch

SCHEDULERS = {one.name: one for one in entry_points(group="jackfield.v1.schedulers")}
STEPS, MOST = 3000, 6000
LOAD = 0.35
LONGEST_WAIT = 1500


def num_steps() -> int:
    assert settings.default is not None
    return min(STEPS * settings.default.max_examples // 100, MOST)


def arrive(watch: Watch, random: Random, number: int) -> None:
    """Prompts of mixed lengths, most short, from tenants of unequal weight."""
    length = min(int(random.expovariate(0.12)) + 1, 40)
    new = NewRequest(
        f"r{number}",
        [random.randrange(IDS - 1) for _ in range(length)],
        SamplingParams(
            max_tokens=random.randint(1, 24), n=random.choice((1, 1, 1, 2)), ignore_eos=True
        ),
        RequestContext(random.choice((*TENANTS, "red")), priority=random.choice((0, 0, 1))),
    )
    watch.add(new, EOS)


@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_progress_under_random_load(name: str, overlap: int) -> None:
    random, clock = Random(name), ManualClock()
    sizes = Sizes(48, 4, max_tokens=32, max_seqs=8, max_model_len=64, overlap=overlap)
    watch = start(factory_of(SCHEDULERS[name].load()), sizes, clock)
    engine, arrived, idle_steps, steps = watch.engine, 0, 0, num_steps()
    for number in range(steps):
        if random.random() < LOAD and len(engine.lifecycle.tree) < 60:
            arrive(watch, random, number)
            arrived += 1
        before = engine.metrics.steps
        busy = engine.has_work
        watch.step()
        idle_steps = idle_steps + 1 if busy and engine.metrics.steps == before else 0
        assert idle_steps <= overlap + 1, "nothing was planned although there is work"
        clock.advance(random.expovariate(100.0))
        for one in engine.lifecycle.valve.requests()[:1]:
            assert number - int(one.id[1:]) <= LONGEST_WAIT, f"{one.id} waits for ever"
    watch.drain()
    assert arrived > steps * LOAD / 4
    assert engine.metrics.preemptions > 0 or name == "memory_reserve", "which is there to avoid it"
    finished = engine.metrics.finished
    assert finished["length"] == sum(finished.values()) == len(watch.answers)
