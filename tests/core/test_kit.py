"""The conformance kit itself: it finds broken policies, broken engines and broken caches, and its
pytest plugin costs nothing until it is used.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jackfield.core.api import (
    CacheAxis,
    CacheLayout,
    CachePlugin,
    Discipline,
    PolicyConfig,
    PolicyContext,
    RequestContext,
    RequestView,
    Shape,
    Verdict,
)
from jackfield.core.engine import planner as planner_module
from jackfield.core.engine.door import Door, DoorLimits
from jackfield.core.engine.loop import Engine
from jackfield.core.engine.planner import Planner
from jackfield.core.engine.request import Request
from jackfield.core.engine.reuse import NOTHING, Reuse
from jackfield.core.engine.schedule import Scheduler
from jackfield.core.engine.valve import Valve
from jackfield.core.kv.block_cache import BlockCache
from jackfield.core.kv.entry import NO_BLOCK
from jackfield.core.kv.pool import BlockPool
from jackfield.core.testing.cache import check_cache
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.conformance import check_bypass, check_determinism, check_scheduler
from jackfield.core.testing.engines import GREEDY
from jackfield.core.testing.fake_executor import FakeExecutor
from jackfield.core.testing.lives import TIGHT, life
from jackfield.core.testing.scheduler_machine import scheduler_machine


def plain(context: PolicyContext) -> list[Any]:
    return []


def test_a_factory_of_a_whole_stack_is_checked(
    check_scheduler: Callable[..., None], jackfield_engine: Callable[..., Engine],
    jackfield_clock: ManualClock,
) -> None:
    made: list[PolicyContext] = []

    def make(context: PolicyContext) -> Sequence[Any]:
        made.append(context)
        return [Discipline(PolicyConfig(), context)]

    check_scheduler(make, examples=2, steps=10)
    assert len(made) > 10
    jackfield_clock.advance(7.0)
    assert jackfield_engine()._clock.now() == 7.0


class Limits:
    """An advisor plugin that is no discipline."""

    Config = PolicyConfig

    def __init__(self, config: PolicyConfig, context: PolicyContext) -> None:
        self.most = context.max_num_seqs // 2

    def admit(self, requests: Any, load: Any) -> list[Verdict]:
        return [Verdict.accept()] * len(requests)

    def shape(self, step: Any) -> Shape:
        return Shape(seqs=self.most)


def test_an_advisor_is_checked() -> None:
    check_scheduler(Limits, examples=3, steps=15)


def test_what_does_nothing_is_no_scheduler() -> None:
    with pytest.raises(AssertionError, match="neither orders nor limits"):
        check_scheduler(lambda context: [object()])


class Moody(Discipline[None]):
    """Asks the wall clock's cousin: another generator than the engine's."""

    seeds = iter(range(10**6))

    def __init__(self, config: Any, context: PolicyContext) -> None:
        super().__init__(config, context)
        self.offset = next(self.seeds)

    def key(self, request: RequestView, now: float) -> float:
        return (request.handle * 7919 + self.offset * 104_729) % 1013


def test_a_policy_that_does_not_repeat_is_found() -> None:
    with pytest.raises(AssertionError, match="different plans"):
        check_determinism(lambda context: [Moody(PolicyConfig(), context)])


def share_with_anybody(request: Request, cache: BlockCache) -> Reuse:
    blocks = list(neighbours[-1].blocks[:1]) if neighbours else []
    return Reuse((), blocks, NO_BLOCK, len(blocks) * cache.pool.block_size)


neighbours: list[Request] = []


def test_sharing_across_requests_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    admit = Planner.admit

    def remember(self: Planner, request: Request) -> None:
        neighbours[:] = [one for one in self.running.values() if one.blocks]
        shares = neighbours and neighbours[-1].computed >= 2 and request.total > 2
        monkeypatch.setattr(
            planner_module, "reuse_of", share_with_anybody if shares else lambda *_: NOTHING
        )
        admit(self, request)

    monkeypatch.setattr(Planner, "admit", remember)
    with pytest.raises(AssertionError, match=r"share a block|should be"):
        life(plain)


def test_a_lost_block_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    release = BlockPool.release
    monkeypatch.setattr(
        BlockPool, "release", lambda self, blocks, last: release(self, blocks[:-1], last)
    )
    with pytest.raises(AssertionError, match="0 tables hold it, counted 1"):
        life(plain)


def test_preempting_the_oldest_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = property(lambda self: self.running[max(self.running)] if self.running else None)
    monkeypatch.setattr(Planner, "oldest", newest)
    with pytest.raises(AssertionError, match="is the oldest and was preempted"):
        life(plain, steps=300)


def test_preempting_without_progress_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def anybody(self: Planner) -> list[Request]:
        return sorted(self.running.values(), key=lambda one: one.handle)[1:]

    monkeypatch.setattr(Planner, "preemptible", anybody)
    sizes = replace(TIGHT, max_seqs=6, block_size=4, num_blocks=6)
    with pytest.raises(AssertionError, match="without progress"):
        for seed in range(20):
            life(plain, sizes, seed=seed, steps=200)


def test_a_position_that_is_not_computed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    preempt = Planner.preempt

    def keeps_its_place(self: Planner, request: Request) -> None:
        preempt(self, request)
        request.total -= 1 if request.output and not request.unseen else 0

    monkeypatch.setattr(Planner, "preempt", keeps_its_place)
    with pytest.raises(AssertionError):
        life(plain, steps=300)


def test_a_step_that_stays_empty_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stalls:
        def shape(self, step: Any) -> Shape:
            return Shape(tokens=0)

    monkeypatch.setattr(Scheduler, "_could_run", lambda self, now: False)
    with pytest.raises(AssertionError, match="the step was empty"):
        life(plain, make_advisors=lambda _: {"stalls": Stalls()})


def test_a_valve_that_stays_shut_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class NewestFirst(Discipline[None]):
        def key(self, request: RequestView, now: float) -> float:
            return -request.arrival

    make = lambda context: [NewestFirst(PolicyConfig(), context)]  # noqa: E731
    check_bypass(make)
    monkeypatch.setattr(Valve, "is_open", False)
    with pytest.raises(AssertionError, match="than the starvation valve allows"):
        check_bypass(make)


def test_the_machine_finds_a_wrong_token(monkeypatch: pytest.MonkeyPatch) -> None:
    machine: Any = scheduler_machine(plain)()
    machine.begin(size=TIGHT)
    machine.arrive([1, 2], GREEDY, RequestContext(), [])
    machine.drain()
    monkeypatch.setattr(FakeExecutor, "_draw", lambda *_: 3)
    machine.arrive([1, 2], GREEDY.with_(ignore_eos=True), RequestContext(), [])
    with pytest.raises(AssertionError, match="r2 got"):
        machine.drain()


def test_the_machine_knows_what_the_door_refuses() -> None:
    machine: Any = scheduler_machine(plain)()
    machine.begin(size=TIGHT)
    machine.arrive([1] * 25, GREEDY, RequestContext(), [])
    machine.begin(size=replace(TIGHT, num_blocks=6))
    machine.arrive([1] * 12, GREEDY.with_(max_tokens=1), RequestContext(), [])
    machine.arrive([1], GREEDY.with_(max_tokens=None, min_tokens=12), RequestContext(), [])
    assert not machine.watch.engine.has_work
    machine.watch.engine._door = Door(DoorLimits(13, 24, 10**6, 2))
    with pytest.raises(AssertionError, match="was accepted"):
        machine.arrive([1] * 12, GREEDY.with_(max_tokens=1), RequestContext(), [])


class Cache(CachePlugin):
    axis = CacheAxis.ALLOCATOR
    size: Any = 8

    def layout(self, max_model_len: int) -> Any:
        return CacheLayout(self.size)


def test_a_right_cache_passes(check_cache: Callable[..., None]) -> None:
    check_cache(Cache)
    check_cache(Cache(PolicyConfig()))


@pytest.mark.parametrize("size", [0, -1, 1.5, None, True, "8"])
def test_a_wrong_block_size_is_found(size: Any) -> None:
    cache = Cache(PolicyConfig())
    cache.size = size
    with pytest.raises(AssertionError, match="block size"):
        check_cache(cache)


def test_a_wrong_layout_is_found() -> None:
    class Bare(Cache):
        def layout(self, max_model_len: int) -> Any:
            return 8

    class Fickle(Cache):
        sizes = iter(range(1, 999))

        def layout(self, max_model_len: int) -> Any:
            return CacheLayout(next(self.sizes))

    with pytest.raises(AssertionError, match="returned 8"):
        check_cache(Bare)
    with pytest.raises(AssertionError, match="and then"):
        check_cache(Fickle)


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


AUTHOR = '''
from jackfield.core.api import Discipline


class Mine(Discipline):
    def rank(self, cls, now):
        return {rank}

    def classify(self, request):
        return request.context.tenant


def test_my_policy(check_scheduler):
    check_scheduler(lambda context: [Mine(Mine.Config(), context)], examples=2, steps=10)


def test_the_named_one(jackfield_scheduler, jackfield_cache):
    assert (jackfield_scheduler.__name__, jackfield_cache.__name__) == ("Priority", "Paged")
'''


def test_an_author_uses_it_without_any_set_up(tmp_path: Path) -> None:
    file = tmp_path / "test_mine.py"
    names = ("--jackfield-scheduler", "priority", "--jackfield-cache", "paged")
    options = (*names, "-k", "test_my_policy or test_the_named_one")
    file.write_text(AUTHOR.format(rank="len(cls.key)"))
    run = ("-m", "pytest", "-q", "-p", "no:cacheprovider", str(file))
    good = python(*run, *options, folder=tmp_path)
    assert "2 passed" in good.stdout, good.stdout + good.stderr
    file.write_text(AUTHOR.format(rank="None"))
    bad = python(*run, folder=tmp_path)
    assert "1 failed, 1 skipped" in bad.stdout, bad.stdout + bad.stderr
    assert "rank returned None, which is no rank" in bad.stdout


def test_the_plugin_imports_nothing_but_pytest(tmp_path: Path) -> None:
    code = (
        "import sys; import jackfield.core.testing.pytest_plugin;"
        "heavy = {'torch', 'hypothesis', 'numpy', 'pydantic'} & set(sys.modules);"
        "own = [m for m in sys.modules if m.startswith('jackfield.core.')];"
        "assert not heavy, heavy; assert len(own) <= 2, own"
    )
    result = python("-c", code, folder=tmp_path)
    assert result.returncode == 0, result.stderr
