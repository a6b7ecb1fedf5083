"""The kit tests what policies claim: true claims pass, and each false one is found."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import Phase, settings

from jackfield.core.api import (
    Claim,
    ClassState,
    Discipline,
    Edf,
    Event,
    EventKind,
    Extent,
    Fcfs,
    NoCreditForIdle,
    PolicyConfig,
    PolicyContext,
    QuotaView,
    Rank,
    Rate,
    RequestView,
    Shape,
    StepView,
    StrictPriority,
    Verdict,
    WeightedFair,
    Work,
    WorkConserving,
)
from jackfield.core.testing.claims import check_claim, claims_of
from jackfield.core.testing.conformance import check_scheduler
from jackfield.core.testing.laws import laws_of
from jackfield.core.testing.stacks import Factory, factory_of

EXAMPLES = 40


def fair_bound(extent: Extent) -> float:
    return 2.0 * max(extent.longest_prompt, extent.at_once) + extent.overlap * extent.step


class Strict(Discipline[None]):
    claims: Sequence[Claim] = (StrictPriority(), Fcfs(), WorkConserving())

    def classify(self, request: RequestView) -> Hashable:
        return request.context.priority

    def rank(self, cls: ClassState[None], now: float) -> Rank:
        assert isinstance(cls.key, int)
        return cls.key


class Turns(Strict):
    """Takes turns between priorities."""

    def rank(self, cls: ClassState[None], now: float) -> Rank:
        return 0


class Reversed(Strict):
    """The last first, of one priority."""

    def key(self, request: RequestView, now: float) -> Rank:
        return -request.arrival, -request.handle


class FirstCome(Discipline[None]):
    claims: Sequence[Claim] = (Fcfs("all"), WorkConserving())


class Shortest(FirstCome):
    def key(self, request: RequestView, now: float) -> Rank:
        return request.num_prompt_tokens


class Due(Discipline[None]):
    claims: Sequence[Claim] = (Edf(laxity=5.0), WorkConserving())

    def key(self, request: RequestView, now: float) -> Rank:
        deadline = request.context.deadline
        return request.arrival + 5.0 if deadline is None else deadline


class Careless(Due):
    """Forgets those without a deadline."""

    def key(self, request: RequestView, now: float) -> Rank:
        return request.context.deadline or 0.0


class Account:
    """What a class was given, and what its running requests will still get."""

    def __init__(self) -> None:
        self.served = 0.0
        self.owed = 0.0

    def __lt__(self, other: "Account") -> bool:
        return self.served < other.served


class Fair(Discipline[Account]):
    claims: Sequence[Claim] = (
        WeightedFair(fair_bound), NoCreditForIdle(fair_bound), WorkConserving(),
    )  # fmt: skip

    def classify(self, request: RequestView) -> Hashable:
        return request.context.tenant

    def activate(self, cls: ClassState[Account], active_min: Account | None) -> None:
        cls.state = cls.state or Account()
        cls.state.served = max(cls.state.served, active_min.served if active_min else 0.0)

    def admitted(self, cls: ClassState[Account], request: RequestView) -> None:
        assert cls.state is not None
        cls.state.owed += request.num_prompt_tokens_left

    def left(self, cls: ClassState[Account], request: RequestView) -> None:
        assert cls.state is not None
        cls.state.owed -= request.num_prompt_tokens_left

    def charge(self, cls: ClassState[Account], work: Work) -> None:
        assert cls.state is not None
        cls.state.owed -= work.prefill
        cls.state.served += work.prefill + work.decode

    def rank(self, cls: ClassState[Account], now: float) -> Rank:
        assert cls.state is not None
        return cls.state.served + cls.state.owed, cls.running


class ByRequest(Fair):
    """Fair by requests, however long they are."""

    def charge(self, cls: ClassState[Account], work: Work) -> None:
        pass

    def admitted(self, cls: ClassState[Account], request: RequestView) -> None:
        assert cls.state is not None
        cls.state.served += 1

    def left(self, cls: ClassState[Account], request: RequestView) -> None:
        pass


class Saves(Fair):
    """Who is idle saves up."""

    def activate(self, cls: ClassState[Account], active_min: Account | None) -> None:
        cls.state = cls.state or Account()


class Unweighted(Fair):
    claims: Sequence[Claim] = (WeightedFair(fair_bound, weights={"gold": 8.0}),)


class Advisor:
    """Marks nothing as a hook: the kit takes the methods by their names."""

    Config = PolicyConfig

    def __init__(self, config: PolicyConfig, context: PolicyContext) -> None:
        self.context = context


class Bucket(Advisor):
    """Ten tokens a second, of each tenant; reserves what a request could take."""

    claims = (Rate(10.0, 40.0),)
    rate, burst = 10.0, 40.0

    def __init__(self, config: PolicyConfig, context: PolicyContext) -> None:
        super().__init__(config, context)
        self._level: dict[str, tuple[float, float]] = {}

    def admit(self, requests: Sequence[RequestView], load: Any) -> list[Verdict]:
        return [self._judge(one, load.now) for one in requests]

    def _judge(self, request: RequestView, now: float) -> Verdict:
        level, since = self._level.get(request.context.tenant, (0.0, now))
        level = max(level - self.rate * (now - since), 0.0)
        taken = level + request.num_prompt_tokens + request.max_tokens
        if taken > self.burst:
            return Verdict.reject("rate")
        self._level[request.context.tenant] = taken, now
        return Verdict.accept()


class Leaky(Bucket):
    """Lets twice as much in."""

    rate, burst = 20.0, 80.0


class PromptsOnly(Bucket):
    """Does not count answers."""

    def _judge(self, request: RequestView, now: float) -> Verdict:
        level, since = self._level.get(request.context.tenant, (0.0, now))
        taken = max(level - self.rate * (now - since), 0.0) + request.num_prompt_tokens
        if taken > self.burst:
            return Verdict.reject("rate")
        self._level[request.context.tenant] = taken, now
        return Verdict.accept()


class Lazy(Advisor):
    claims = (WorkConserving(),)

    def shape(self, step: StepView) -> Shape:
        return Shape()


class FewSeats(Lazy):
    def shape(self, step: StepView) -> Shape:
        return Shape(new_seqs=0 if step.load.running else 1)


class FewTokens(Lazy):
    def quota(self, plan: QuotaView) -> Mapping[int, int]:
        return {need.request.handle: 1 for need in plan.prefills}


class OneAtATime(Lazy):
    def shape(self, step: StepView) -> Shape:
        return Shape(seqs=1)


class Held(Strict):
    """Nobody before a second has passed."""

    claims: Sequence[Claim] = (WorkConserving(),)

    def eligible_at(self, cls: ClassState[None], now: float) -> float:
        return 1.0


TRUE = [
    (policy, claim)
    for policy in (Strict, FirstCome, Due, Fair, Bucket, Lazy)
    for claim in policy.claims
]
FALSE = [
    (Turns, StrictPriority(), "is better than"),
    (Reversed, StrictPriority(), None),
    (Reversed, Fcfs(), "it arrived earlier"),
    (Strict, Fcfs("all"), "it arrived earlier"),
    (Shortest, Fcfs("all"), "it arrived earlier"),
    (Shortest, Fcfs(), "it arrived earlier"),
    (FirstCome, StrictPriority(), "is better than"),
    (FirstCome, Edf(), "it is due at"),
    (Careless, Edf(laxity=5.0), "it is due at"),
    (ByRequest, WeightedFair(fair_bound), "gained"),
    (FirstCome, WeightedFair(10.0), "the claim is 10"),
    (Fair, WeightedFair(3.0), "the claim is 3"),
    (Unweighted, Unweighted.claims[0], "gained"),
    (Saves, NoCreditForIdle(fair_bound), "gained"),
    (Saves, WeightedFair(fair_bound), None),
    (Leaky, Rate(10.0, 40.0), "the rate allows"),
    (PromptsOnly, Rate(10.0, 40.0), "the rate allows"),
    (Lazy, Rate(10.0, 40.0), "the rate allows"),
    (FewSeats, WorkConserving(), "waits on although"),
    (FewTokens, WorkConserving(), "although"),
    (OneAtATime, WorkConserving(), "although"),
    (Held, WorkConserving(), "nobody runs, and"),
]  # fmt: skip


def ident(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__


@pytest.fixture
def as_found() -> Iterator[None]:
    """Lives are not made shorter, which takes long."""
    normal = settings.get_current_profile_name()
    settings.register_profile("as_found", settings.default, phases=[Phase.generate])
    settings.load_profile("as_found")
    yield
    settings.load_profile(normal)


@pytest.mark.parametrize(("policy", "claim"), TRUE, ids=ident)
def test_a_true_claim_passes(policy: Any, claim: Claim) -> None:
    check_claim(factory_of(policy), claim, EXAMPLES)


@pytest.mark.parametrize(("policy", "claim", "message"), FALSE, ids=ident)
@pytest.mark.usefixtures("as_found")
def test_a_false_claim_is_found(policy: Any, claim: Claim, message: str | None) -> None:
    """None: the claim is true of this policy, although another of its claims is false."""
    if message is None:
        check_claim(factory_of(policy), claim, EXAMPLES)
        return
    with pytest.raises(AssertionError, match=message) as caught:
        check_claim(factory_of(policy), claim, EXAMPLES)
    assert any("Story(" in note or "Contest(" in note for note in caught.value.__notes__)


def test_the_life_that_is_shown_is_short() -> None:
    with pytest.raises(AssertionError) as caught:
        check_claim(factory_of(Turns), StrictPriority(), EXAMPLES)
    shown = "\n".join(caught.value.__notes__)
    assert shown.count("Arrival(") <= 4, shown


@pytest.mark.usefixtures("as_found")
def test_claims_of_a_class_are_checked_with_its_laws() -> None:
    class Wrong(Strict):
        claims = (Edf(),)

    with pytest.raises(AssertionError, match="it is due at"):
        check_scheduler(Wrong, examples=15, steps=5)


def test_a_claim_may_depend_on_the_configuration() -> None:
    class Config(PolicyConfig):
        fair: bool = False

    class Either(Fair):
        @property
        def claims(self) -> Sequence[Claim]:  # type: ignore[override]
            return (WeightedFair(fair_bound),) if self.config.fair else ()

    Either.Config = Config
    assert claims_of(lambda context: [Either(Config(), context)]) == ()
    assert len(claims_of(lambda context: [Either(Config(fair=True), context)])) == 1


def test_every_claim_is_a_law_of_its_own() -> None:
    names = [law.name for law in laws_of(factory_of(Strict))]
    assert names[-3:] == [
        "claim[1 StrictPriority]", "claim[2 Fcfs]", "claim[3 WorkConserving]",
    ]  # fmt: skip


def test_a_stack_claims_nothing() -> None:
    both: Factory = lambda context: [  # noqa: E731
        Strict(PolicyConfig(), context), FirstCome(PolicyConfig(), context),
    ]  # fmt: skip
    assert claims_of(both) == ()


def test_what_is_no_claim_is_told() -> None:
    class Odd(Strict):
        claims: Any = ("strict",)

    with pytest.raises(AssertionError, match="'strict' among the claims is no Claim"):
        claims_of(factory_of(Odd))


def test_an_unknown_claim_is_told() -> None:
    class Mine(Claim):
        pass

    with pytest.raises(AssertionError, match="there is no test for the claim"):
        check_claim(factory_of(Strict), Mine())


def test_who_ended_is_not_let_in_twice() -> None:
    """Events are the same objects as the views: what the kit counts does not disturb them."""
    seen: list[EventKind] = []

    class Watches(Bucket):
        def observe(self, events: Sequence[Event]) -> None:
            seen.extend(event.kind for event in events)

    check_claim(factory_of(Watches), Rate(10.0, 40.0), 5)
    assert EventKind.REJECTED in seen and EventKind.FINISHED in seen
