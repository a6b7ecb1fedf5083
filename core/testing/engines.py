"""Engines on the fake executor, for tests of policies and of the core."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.core.api import (
    Discipline,
    FinishReason,
    PolicyConfig,
    PolicyContext,
    SamplingParams,
)
from jackfield.core.engine.advice import Advice, Advisor
from jackfield.core.engine.branch import Branch
from jackfield.core.engine.clock import Clock
from jackfield.core.engine.guard import Guard
from jackfield.core.engine.level import Level
from jackfield.core.engine.loop import Engine, EngineSettings
from jackfield.core.engine.messages import Delta, NewRequest
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.policies import Policies
from jackfield.core.engine.services import Services
from jackfield.core.engine.steps import Executor
from jackfield.core.kv.build import CacheSettings, build_cache
from jackfield.core.kv.pool import BlockPool
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.fake_executor import FakeExecutor, hashed
from jackfield.core.testing.memory import CacheKit

VOCAB = 1000
GREEDY = SamplingParams(temperature=0.0, max_tokens=8)
HOOKS = ("admit", "shape", "quota", "victims", "plan", "observe")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Small enough that every limit is met often."""

    num_blocks: int = 32
    block_size: int = 4
    max_tokens: int = 16
    max_seqs: int = 4
    max_model_len: int = 96
    overlap: int = 0
    share: float = 0.01
    fault_limit: int = 3
    hook_budget: float = 1.0
    park_timeout: float = 600.0
    class_idle_seconds: float = 600.0
    max_classes: int = 10_000
    prompt_alignment: int = 1

    @property
    def limits(self) -> Limits:
        """As the engine takes them."""
        return Limits(self.max_tokens, self.max_seqs, self.max_model_len, self.prompt_alignment)


def context_for(sizes: Sizes, clock: Clock, services: Services | None = None) -> PolicyContext:
    """What a policy gets from an engine of that size.

    services: those of the engine, handed to `make_engine` too; without them nothing is cached,
    nothing is asked again, and nothing is predicted.
    """
    make = (services or Services()).context
    return make(random.Random(0), clock, sizes.limits, sizes.block_size)


def make_engine(
    sizes: Sizes | None = None,
    *,
    disciplines: Sequence[Discipline[Any]] = (),
    advisors: Mapping[str, object] | None = None,
    executor: Executor | None = None,
    clock: Clock | None = None,
    eos_ids: frozenset[int] = frozenset(),
    services: Services | None = None,
    cache: CacheKit | None = None,
    cache_settings: CacheSettings | None = None,
) -> Engine:
    """An engine with these policies; a missing leaf is first come first served.

    advisors: plugin name -> object whose methods are named like scheduler hooks. services: those
    that the policies' contexts were made with. cache: what is kept of blocks; None = nothing.
    """
    sizes = sizes or Sizes()
    clock = clock or ManualClock()
    context = context_for(sizes, clock)
    stack = with_leaf(disciplines, context)
    guards: list[Guard] = []
    cached = (cache or CacheKit()).policies(sizes.num_blocks, guards)

    def guard(name: str) -> Guard:
        guards.append(Guard(name, sizes.fault_limit, sizes.hook_budget))
        return guards[-1]

    levels = [Level(type(d).__name__.lower(), d, guard(type(d).__name__.lower())) for d in stack]
    hooks: dict[str, list[Advisor]] = {hook: [] for hook in HOOKS}
    for name, plugin in (advisors or {}).items():
        shared = guard(name)
        for hook in HOOKS:
            if hasattr(plugin, hook):
                hooks[hook].append(Advisor(name, getattr(plugin, hook), shared))
    settings = EngineSettings(
        sizes.limits,
        vocab_size=VOCAB,
        eos_ids=eos_ids,
        overlap=sizes.overlap,
        starvation_share=sizes.share,
        park_timeout=sizes.park_timeout,
        class_idle_seconds=sizes.class_idle_seconds,
        max_classes=sizes.max_classes,
    )
    services = services or Services()
    memory = build_cache(
        BlockPool(sizes.num_blocks, sizes.block_size),
        cached,
        cache_settings or CacheSettings(),
        services.recompute_seconds,
    )
    return Engine(
        settings,
        Policies(Branch.chain(levels), Advice(hooks), guards, services),
        memory,
        executor or FakeExecutor(sizes.block_size, VOCAB),
        clock,
    )


def with_leaf(
    disciplines: Sequence[Discipline[Any]], context: PolicyContext
) -> list[Discipline[Any]]:
    """The stack as it is built from a configuration: it ends in a leaf.

    The last discipline is the leaf if it makes no classes. If it makes classes and orders inside
    them it is two levels; if it only makes classes, a leaf first come first served is below it.
    """
    if not disciplines:
        return [Discipline(PolicyConfig(), context)]
    last = disciplines[-1]
    if type(last).classify is Discipline.classify:
        return list(disciplines)
    orders = type(last).key is not Discipline.key or type(last).keep is not Discipline.keep
    return [*disciplines, last if orders else Discipline(PolicyConfig(), context)]


def expected_answer(
    prompt: Sequence[int], max_tokens: int, eos_ids: frozenset[int] = frozenset()
) -> list[int]:
    """What the fake executor answers greedily, computed without an engine."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < max_tokens:
        tokens.append(hashed(tokens, 0, VOCAB))
        if tokens[-1] in eos_ids:
            break
    return tokens[len(prompt) :]


@dataclass(slots=True)
class Answer:
    """All deltas of one answer, joined."""

    tokens: list[int]
    finish: FinishReason | None = None
    error: str | None = None


def absorb(answers: dict[tuple[str, int], Answer], deltas: Sequence[Delta]) -> None:
    """Append deltas to the answers they belong to; an answer ends at most once."""
    for delta in deltas:
        answer = answers.setdefault((delta.id, delta.index), Answer([]))
        assert answer.finish is None, f"{delta.id} has news after its end"
        answer.tokens.extend(delta.tokens)
        answer.finish, answer.error = delta.finish, delta.error


def run(engine: Engine, max_steps: int = 10_000) -> dict[tuple[str, int], Answer]:
    """Step until nothing is left, checking all invariants after each step."""
    answers: dict[tuple[str, int], Answer] = {}
    for _ in range(max_steps):
        if not engine.has_work:
            return answers
        absorb(answers, engine.step())
        engine.check()
    raise AssertionError(f"the engine still has work after {max_steps} steps")


def request(
    name: str, prompt: Sequence[int], params: SamplingParams = GREEDY, **kwargs: Any
) -> NewRequest:
    """A request with greedy sampling and 8 tokens, unless told otherwise."""
    return NewRequest(name, list(prompt), params, **kwargs)
