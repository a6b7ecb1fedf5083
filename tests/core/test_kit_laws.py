"""Every law of the kit finds an engine, or a policy, that breaks it."""

from collections.abc import Hashable, Iterator, Sequence
from math import inf
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from jackfield.core.api import (
    ClassState,
    Discipline,
    PolicyConfig,
    PolicyContext,
    RequestView,
    SchedulerHooks,
    Shape,
    Verdict,
)
from jackfield.core.engine.gates import Gates
from jackfield.core.engine.lifecycle import Lifecycle
from jackfield.core.engine.planner import Planner
from jackfield.core.engine.request import Request
from jackfield.core.engine.schedule import Scheduler
from jackfield.core.testing import rules
from jackfield.core.testing.engines import HOOKS
from jackfield.core.testing.examples import settings_for
from jackfield.core.testing.laws import laws_of
from jackfield.core.testing.lives import TIGHT
from jackfield.core.testing.neighbours import (
    HOSTILE,
    MADE,
    SYNTHETIC,
    Around,
    installed,
    neighbourhoods,
)
from jackfield.core.testing.rules import RULES, check_folds, check_lives
from jackfield.core.testing.stacks import Factory, build, factory_of
from jackfield.core.testing.stories import Arrival, Story, arrivals, play, sizes
from jackfield.core.testing.tree_laws import check_collapse, check_restriction


def plain(context: PolicyContext) -> list[Any]:
    return [Discipline(PolicyConfig(), context)]


@pytest.fixture(autouse=True)
def as_found() -> Iterator[None]:
    """Lives are not made shorter, which takes long."""
    normal = settings.get_current_profile_name()
    settings.register_profile("as_found", settings.default, phases=[Phase.generate])
    settings.load_profile("as_found")
    yield
    settings.load_profile(normal)


def broken(rule: str, make: Factory = plain, examples: int = 60) -> Any:
    [found] = [one for one in RULES if one.name == rule]
    with pytest.raises(AssertionError) as caught:
        rules.check_alone(found, make, examples)
    return str(caught.value)


def test_a_good_policy_keeps_all_laws() -> None:
    check_lives(plain, 10)


def test_an_oldest_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    split = Scheduler._split

    def without_the_oldest(self: Scheduler) -> Any:
        decodes, prompts = split(self)
        oldest = self._planner.oldest
        if len(self._planner.running) < 2:
            return decodes, prompts
        return [one for one in decodes if one is not oldest], prompts

    monkeypatch.setattr(Scheduler, "_split", without_the_oldest)
    monkeypatch.setattr("jackfield.core.testing.inspectors.PATIENCE", 0)
    monkeypatch.setattr(
        "jackfield.core.testing.inspectors.OldestComputes.allowance", lambda *_: 3
    )
    assert "is the oldest that runs; it computed nothing" in broken("oldest")


def test_who_is_parked_without_an_alarm_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    park = Gates.park
    monkeypatch.setattr(
        Gates, "park", lambda self, request, gate, until: park(self, request, gate, inf)
    )
    assert "nothing will ever wake it" in broken("wake-ups", lambda _: [Defers()])


def test_who_is_due_and_stays_parked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lifecycle, "wake_due", lambda self: None)
    assert "was due and was not woken" in broken("wake-ups", lambda _: [Defers()])


class Defers:
    def admit(self, requests: Sequence[RequestView], load: Any) -> list[Verdict]:
        first = load.now == 0.0
        return [Verdict.defer(1.0) if first else Verdict.accept() for _ in requests]


class Closed:
    def shape(self, step: Any) -> Shape:
        return Shape(new_seqs=0)


def test_an_engine_that_stands_still_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "_could_run", lambda self, now: False)
    assert "nobody was admitted" in broken("progress", lambda _: [Closed()])


def test_who_is_nowhere_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lifecycle, "enter", lambda self, request: None)
    assert "are in no place, or have ended" in broken("places")


def test_who_is_preempted_and_computes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = Planner.decode

    def counts_wrongly(self: Planner, requests: Sequence[Request]) -> None:
        decode(self, requests)
        for request in requests:
            first = request is not self.oldest and not request.num_preemptions
            request.num_preemptions += first and request.total > 8

    monkeypatch.setattr(Planner, "decode", counts_wrongly)
    assert "lost its seat and computes" in broken("places")


def test_a_fault_is_found_alone_and_in_stacks() -> None:
    class Rarely(Discipline[None]):
        def key(self, request: RequestView, now: float) -> Any:
            return None if request.num_prompt_tokens == 7 else request.arrival

    make = factory_of(Rarely)
    assert "rarely: key returned None, which is no rank" in broken("contract", make)
    [contract] = [one for one in RULES if one.name == "contract"]
    with pytest.raises(AssertionError, match="rarely: key returned None"):
        rules.check_in_stacks(contract, make, 60)


class Shared:
    """Its answers depend on who was asked before it."""

    Config = PolicyConfig

    def __init__(self, config: PolicyConfig, context: PolicyContext) -> None:
        self._random = context.rng

    def shape(self, step: Any) -> Shape:
        return Shape(tokens=self._random.choice((1, 2, 4)))


def test_folds_that_do_not_commute_are_found() -> None:
    both: Factory = lambda context: [  # noqa: E731
        Shared(PolicyConfig(), context), SharedTwice(PolicyConfig(), context),
    ]  # fmt: skip
    with pytest.raises(AssertionError, match="the order of advisors changes plans"):
        check_folds(both, 20)


class SharedTwice(Shared):
    def shape(self, step: Any) -> Shape:
        self._random.random()
        return Shape(new_seqs=self._random.choice((0, 1, 2)))


class OwnState(Discipline[None]):
    """Keeps in itself what belongs to a class."""

    def __init__(self, config: Any, context: PolicyContext) -> None:
        super().__init__(config, context)
        self.keys: dict[int, float] = {}

    def key(self, request: RequestView, now: float) -> float:
        return self.keys.setdefault(request.handle, float(len(self.keys) * 7919 % 13))


def test_state_outside_of_classes_is_found() -> None:
    with pytest.raises(AssertionError, match="changes another"):
        check_restriction(factory_of(OwnState))
    check_collapse(factory_of(OwnState))


def test_laws_have_names_of_their_own_and_say_what_they_are() -> None:
    for make in (plain, lambda _: [Closed()]):
        laws = list(laws_of(make))
        assert len({law.name for law in laws}) == len(laws)
        assert all(law.says.endswith(".") and law.look for law in laws)
    names = {law.name for law in laws_of(lambda _: [Closed()])}
    assert "folds" in names and "order[alone]" not in names


def test_random_stacks_hold_all_kinds_of_neighbours_and_are_legal() -> None:
    seen: set[str] = set()
    make = factory_of(OwnState)

    @settings_for(400)
    @given(neighbourhoods(make))
    def look(around: Around) -> None:
        stack = build(around.around(make), MADE)
        last = stack.disciplines[-1]
        assert type(last) is OwnState, "nothing is below a leaf"
        advisors = around.beside(MADE).values()
        for hook in ("victims", "plan"):
            assert sum(hasattr(one, hook) for one in advisors) <= 1
        seen.update(one.name for one in (*around.above, *around.advisors))

    look()
    assert seen & {one.name for one in SYNTHETIC}
    assert seen & {one.name for one in HOSTILE}
    assert seen & {one.name for one in installed()}


def test_below_what_makes_classes_stands_a_leaf() -> None:
    class ByTenant(Discipline[None]):
        def classify(self, request: RequestView) -> Hashable:
            return request.context.tenant

        def rank(self, cls: ClassState[None], now: float) -> float:
            return float(cls.waiting)

    depths: set[int] = set()

    @settings_for(200)
    @given(neighbourhoods(factory_of(ByTenant), hostile=False))
    def look(around: Around) -> None:
        assert not any(one.is_hostile for one in (*around.above, *around.below))
        depths.add(len(around.above) + 1 + len(around.below))

    look()
    assert depths == {1, 2, 3, 4}


def test_a_story_is_written_as_it_can_be_read() -> None:
    told = Arrival(tenant="green", prompt=3, answer=2)
    assert repr(told) == "Arrival(tenant='green', prompt=3, answer=2)"
    assert eval(repr(told)) == told


def test_a_story_is_played_as_it_is_told() -> None:
    arrival = Arrival(steps=2, seconds=5.0, tenant="blue", prompt=3, answer=4, leaves=1)
    story = Story(sizes=TIGHT, arrivals=[Arrival(prompt=2, answer=9), arrival])
    watch = play(plain, story)
    assert watch.now == 5.0
    first, second = watch.answers[("r0", 0)], watch.answers[("r1", 0)]
    assert len(first.tokens) == 9 and second.aborted and len(second.tokens) < 4


def test_strategies_stay_in_their_bounds() -> None:
    @settings_for(50)
    @given(sizes(overlap=0), arrivals(answers=False))
    def look(size: Any, arrival: Arrival) -> None:
        assert size.overlap == 0 and arrival.answers == 1 and arrival.leaves == -1

    look()


def test_hooks_are_those_of_the_contract() -> None:
    assert set(HOOKS) == {name for name in vars(SchedulerHooks) if not name.startswith("_")}
