"""Every hook of a cache times every misbehaviour, beside good plugins: no request notices."""

import pytest

from jackfield.core.api import CacheHooks, Evictor, TierSpec
from jackfield.core.engine import guard as guard_module
from jackfield.core.engine.decisions import Action
from jackfield.core.kv.build import CacheSettings
from jackfield.core.testing.cache_hostile import HOOKS, NAME, CacheCase, cache_catalogue
from jackfield.core.testing.cache_inspectors import inspect, may_see, zone_of
from jackfield.core.testing.cache_lives import CROWDED, TierMood, cached_life
from jackfield.core.testing.cache_watch import CacheWatch
from jackfield.core.testing.engines import (
    GREEDY,
    Answer,
    absorb,
    expected_answer,
    make_engine,
    request,
    run,
)
from jackfield.core.testing.fake_pace import AnyOrder
from jackfield.core.testing.memory import FAULT_LIMIT

SETTINGS = CacheSettings(transfer_timeout=0.5)
HOST = (TierSpec("host", 8),)
ONCE = ("identity raises", "is None", "is no index")
"""What is asked once per reset cannot be asked often enough to be switched off."""


class Time:
    """The clock of the guards; it moves when a plugin says that it was slow."""

    now = 0.0

    def burn(self, seconds: float) -> None:
        self.now += 1000 * seconds  # a kit's plugins have thirty seconds


TIME = Time()
CASES = cache_catalogue(TIME.burn)


@pytest.fixture(autouse=True)
def guards_have_their_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "perf_counter", lambda: TIME.now)


def live(case: CacheCase, overlap: int, tiers: bool) -> CacheWatch:
    """The watch compares every answer with the right one, and what blocks hold, at every step."""
    hostile = case.make()

    def prepare(watch: CacheWatch) -> None:
        hostile.engine = watch.engine
        inspect(SETTINGS, watch)

    return cached_life(
        hostile.kit._replace(tiers=HOST if tiers else ()), CROWDED, seed=3, overlap=overlap,
        steps=40, settings=SETTINGS, mood=TierMood(lambda random: AnyOrder(random, 0.5)),
        may_see=may_see(zone_of(SETTINGS, CROWDED.block_size)), prepare=prepare,
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nobody_notices(case: CacheCase) -> None:
    number = CASES.index(case)
    watch = live(case, overlap=number % 3, tiers=case.hook == "move" or number % 4 > 0)
    assert sum(not one.aborted for one in watch.answers.values()) > 20
    assert watch.engine.metrics.preemptions > 3
    engine = watch.engine
    assert set(engine.fault_counts()) == ({case.plugin} if case.is_fault else set())
    if not case.is_fault:
        assert not engine.faults()
    elif case.what not in ONCE:
        assert engine.fault_counts()[case.plugin] >= FAULT_LIMIT
        assert set(engine.faults()) == {case.plugin} and engine.faults()[case.plugin]
        logged = [one.plugin for one in engine.log._ring if one.action is Action.FAULT]
        assert logged == [case.plugin]


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.hook in ("identity", "evictor")], ids=str
)
def test_what_takes_over_still_finds_what_was_cached(case: CacheCase) -> None:
    """An index or an evictor that has failed costs no hits once its default serves."""
    hostile = case.make()
    engine = make_engine(cache=hostile.kit)
    hostile.engine = engine
    prompt, params = list(range(20)), GREEDY.with_(max_tokens=2)
    for number in range(8):
        engine.add(request(f"r{number}", prompt, params))
        answer = run(engine)[(f"r{number}", 0)]
        assert answer.tokens == expected_answer(prompt, 2)
    before = engine.lifecycle.planner.cache.metrics.hit_tokens
    engine.add(request("last", prompt, params))
    run(engine)
    found = engine.lifecycle.planner.cache.metrics.hit_tokens - before
    if engine.faults() or not case.is_fault:
        assert found == 19, f"{found} tokens are found"


def test_everything_is_tried() -> None:
    """Whatever is called while an engine runs is in the catalogue; each case has its own name."""
    at_start = {"layout", "encode", "tiers", "store", "scratch"}
    hooks = {name for name in vars(CacheHooks) if not name.startswith("_")} - at_start
    assert {case.hook for case in CASES} - {"evictor"} == hooks == {*HOOKS, "identity"}
    assert len({str(case) for case in CASES}) == len(CASES)
    called = {case.what.split()[0] for case in CASES if case.hook == "evictor"}
    events = {name for name in vars(Evictor) if not name.startswith("_")} - {"inner"}
    assert events <= called | {"busy", "update", "remove"}
    assert any(case.plugin == NAME for case in CASES)


def test_a_hook_does_not_reset_the_cache_that_asks_it() -> None:
    """Also where no step is under way: when a request comes, or is given up."""
    case = next(one for one in CASES if str(one) == "salt-calls-reset_prefix_cache")
    hostile = case.make()
    engine = make_engine(cache=hostile.kit)
    hostile.engine = engine
    engine.add(request("a", range(9)))
    assert engine.fault_counts() == {NAME: 1}
    run(engine)
    assert engine.reset_prefix_cache() is True


@pytest.mark.parametrize("hook", ["salt", "retain"])
@pytest.mark.parametrize("method", ["step", "abort", "add"])
def test_a_hook_does_not_call_the_engine_when_a_request_comes_or_goes(
    hook: str, method: str
) -> None:
    case = next(one for one in CASES if str(one) == f"{hook}-calls-step")
    hostile = case.make()
    arguments = {"step": (), "abort": ("a",), "add": (request("c", range(5)),)}[method]
    setattr(type(hostile), hook, lambda self, _: getattr(self.engine, method)(*arguments))
    engine = make_engine(cache=hostile.kit)
    hostile.engine = engine
    engine.add(request("a", range(9)))
    engine.add(request("b", range(9)))
    answers: dict[tuple[str, int], Answer] = {}
    absorb(answers, engine.step())
    engine.abort("b")
    engine.check()
    while engine.has_work:
        absorb(answers, engine.step())
    assert answers[("a", 0)].tokens == expected_answer(range(9), 8)
    assert {one for one, _ in answers} == {"a", "b"}
    assert set(engine.fault_counts()) == {NAME}


def test_an_index_that_is_none_is_reported() -> None:
    for what in ONCE:
        case = next(one for one in CASES if one.hook == "identity" and one.what == what)
        engine = make_engine(cache=case.make().kit)
        assert engine.fault_counts()[NAME] > 0
        assert NAME in engine.faults(), f"{what}: the plugin is out, and nobody is told"
