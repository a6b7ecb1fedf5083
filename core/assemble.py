"""The composition root: from a configuration to an engine. The one place that joins all parts."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.core.api import (
    ConfigError,
    Discipline,
    ModelSpec,
    PolicyContext,
)
from jackfield.core.cache_stack import cache_stack
from jackfield.core.checkpoint.progress import Progress
from jackfield.core.checkpoint.resolve import resolve_model
from jackfield.core.engine.advice import Advice, Advisor
from jackfield.core.engine.branch import Branch
from jackfield.core.engine.clock import Clock, SystemClock
from jackfield.core.engine.guard import Guard
from jackfield.core.engine.level import Level
from jackfield.core.engine.loop import Engine, EngineSettings
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.policies import Policies
from jackfield.core.engine.services import Services
from jackfield.core.executors.loading import Loaded, load
from jackfield.core.executors.place import ALONE
from jackfield.core.executors.preparing import Prepared, prepare, rank_device
from jackfield.core.executors.preparing import block_size_of as block_size_of
from jackfield.core.host.config import Config
from jackfield.core.host.ordering import Ordering
from jackfield.core.host.sources import Resolved
from jackfield.core.host.stack import Named, Stack
from jackfield.core.kv.build import Memory, build_cache
from jackfield.core.kv.pool import BlockPool
from jackfield.core.process.rank_start import OtherRanks, without_collectives
from jackfield.core.summary import Summary
from jackfield.core.text.tokenizer import Tokenizer
from jackfield.core.texts import Texts, load_texts

LONGEST_SLEEP = 1.0
SCHEDULER_HOOKS = ("admit", "shape", "quota", "victims", "plan", "observe")


@dataclass(frozen=True, slots=True)
class Assembly:
    """An engine and everything a front needs beside it."""

    engine: Engine
    texts: Texts
    clock: Clock
    resolved: Resolved
    spec: ModelSpec
    stack: Stack
    summary: Summary
    loaded: Loaded

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None if the model was loaded without one."""
        return self.texts.tokenizer

    @property
    def sampling_defaults(self) -> Mapping[str, Any]:
        """What a request gets that says nothing."""
        return self.texts.sampling_defaults

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], **options: Any
    ) -> tuple[str, list[int]]:
        """A conversation as text and ids, through the model's chat template."""
        return self.texts.render_chat(messages, **options)

    def wait_if_idle(self) -> None:
        """Sleep until the next alarm when all requests are parked."""
        alarm = self.engine.next_alarm
        if self.engine.is_idle and alarm is not None:
            time.sleep(min(max(alarm - self.clock.now(), 0.0), LONGEST_SLEEP))


def assemble(resolved: Resolved, progress: Progress, *, streamed: bool = True) -> Assembly:
    """Resolve, check and load everything. Raises `JackfieldError`s that name what is wrong.

    streamed: whether somebody will wait for single tokens.
    """
    started = time.monotonic()
    config = resolved.config
    if config.parallel.node_rank:
        raise ConfigError(
            f"parallel.node_rank is {config.parallel.node_rank}: that node serves nobody itself; "
            f"run `jackfield serve` there, and ask node 0"
        )
    device = rank_device(config, 0)
    path = resolve_model(config.model.name, revision=config.model.revision, progress=progress)
    prepared = prepare(resolved, path, device, streamed=streamed)
    if config.parallel.tensor == 1:
        return _assemble(resolved, prepared, None, progress, started)
    others = OtherRanks(resolved, path, streamed=streamed)
    try:
        return _assemble(resolved, prepared, others, progress, started)
    except BaseException as error:
        cause = others.give_up(error)
        if cause is not None:
            raise cause from error
        raise


def _assemble(
    resolved: Resolved,
    prepared: Prepared,
    others: OtherRanks | None,
    progress: Progress,
    started: float,
) -> Assembly:
    """others: None = there is one rank."""
    config, folder, spec = resolved.config, prepared.folder, prepared.spec
    clock = SystemClock()
    services = Services()
    caches, block_size = prepared.caches, prepared.block_size
    stack = caches.build(contexts(config, prepared.limits, clock, services, block_size))
    texts = load_texts(config, folder)
    order = prepared.order(stack.kernels, ALONE if others is None else others.join(prepared))
    loaded = load(order, config, progress)
    loaded = loaded if others is None else others.lead(loaded)
    eos_ids = folder.eos_ids(texts.tokenizer.eos_token_id if texts.tokenizer else None)
    cached = cache_stack(config, stack, loaded, str(folder.path), spec.alike_prompts)
    decided = policies(config, stack, services, cached.guards)
    memory = build_cache(
        BlockPool(loaded.num_blocks, block_size),
        cached.policies,
        cached.settings,
        services.recompute_seconds,
    )
    engine = _engine(config, loaded, decided, spec, memory, eos_ids, clock)
    defaults, notices = texts.sampling_defaults, texts.notices()
    seconds = time.monotonic() - started
    summary = Summary.of(
        order, loaded, stack, prepared.model, eos_ids, defaults, notices, seconds
    )
    shown = loaded if others is None else without_collectives(loaded)
    return Assembly(engine, texts, clock, resolved, spec, stack, summary, shown)


def contexts(
    config: Config, limits: Limits, clock: Clock, services: Services, block_size: int
) -> Callable[[str], PolicyContext]:
    """What each scheduler plugin is told of the engine, by the name of the plugin."""

    def make(name: str) -> PolicyContext:
        rng = random.Random(f"{config.model.seed}:{name}")
        return services.context(rng, clock, limits, block_size)

    return make


def _engine(
    config: Config,
    loaded: Loaded,
    decided: Policies,
    spec: ModelSpec,
    memory: Memory,
    eos_ids: frozenset[int],
    clock: Clock,
) -> Engine:
    engine = config.engine
    overlap = loaded.executor.default_overlap if engine.overlap is None else engine.overlap
    settings = EngineSettings(
        limits=loaded.limits,
        vocab_size=spec.vocab_size,
        eos_ids=eos_ids,
        overlap=overlap,
        starvation_share=engine.starvation_share,
        park_timeout=engine.park_timeout,
        decision_log=engine.decision_log,
        seed=config.model.seed,
        class_idle_seconds=engine.class_idle_seconds,
        max_classes=engine.max_classes,
    )
    return Engine(settings, decided, memory, loaded.executor, clock)


def policies(
    config: Config, stack: Stack, services: Services, others: Sequence[Guard] = ()
) -> Policies:
    """The scheduler stack, each plugin under its guard.

    services: those that the plugins' contexts were made with. others: guards of other plugins.
    """
    engine = config.engine
    names = [named.name for named in (*stack.disciplines, *stack.advisors)]
    guards = {name: Guard(name, engine.fault_limit, engine.hook_budget) for name in names}
    hooks = {
        hook: [
            Advisor(found.plugin, found.call, guards[found.plugin])
            for found in stack.manager.implementations(hook)
        ]
        for hook in SCHEDULER_HOOKS
    }
    everybody = [*guards.values(), *others]
    return Policies(_branch(stack.order, guards), Advice(hooks), everybody, services)


def _branch(order: Ordering[Named[Discipline[Any]]], guards: Mapping[str, Guard]) -> Branch:
    """Each discipline is a level; in a leaf it is two if it makes classes and orders in them."""
    named = order.here
    level = Level(named.name, named.plugin, guards[named.name])
    if order.other is not None:
        inner = {key: _branch(below, guards) for key, below in order.inner.items()}
        return Branch(level, _branch(order.other, guards), inner)
    if type(named.plugin).classify is Discipline.classify:
        return Branch(level)
    return Branch(level, Branch(Level(named.name, named.plugin, guards[named.name])))
