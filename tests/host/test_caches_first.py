"""Policies are told how large a block is, so caches are built before them."""

from collections.abc import Callable

from jackfield.core.api import PolicyContext
from jackfield.core.assemble import contexts
from jackfield.core.engine.clock import SystemClock
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.services import Services
from jackfield.core.host.config import Config
from jackfield.core.host.stack import build_caches

MakeContext = Callable[[str], PolicyContext]


def test_the_layout_is_known_before_any_policy_is_made(make_context: MakeContext) -> None:
    made: list[str] = []

    def make(name: str) -> PolicyContext:
        made.append(name)
        return make_context(name)

    caches = build_caches(Config(scheduler={"advisors": ["memory_reserve"]}))
    [layout] = caches.manager.implementations("layout")
    assert layout.call(128).block_size == 16
    assert made == []
    stack = caches.build(make)
    assert made == ["priority", "fcfs", "memory_reserve"]
    assert stack.caches is caches.by_axis and stack.manager is caches.manager


def test_a_policy_reads_it_in_its_constructor() -> None:
    make = contexts(Config(), Limits(64, 4, 128), SystemClock(), Services(), 32)
    assert make("anybody").block_size == 32
