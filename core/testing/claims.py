"""Tests of what a policy claims, each in lives in which a wrong claim shows."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jackfield.core.api import (
    Claim,
    Discipline,
    Edf,
    Fcfs,
    Rate,
    StrictPriority,
    WeightedFair,
    WorkConserving,
)
from jackfield.core.testing.conserving import Conserving
from jackfield.core.testing.contest import Contest, compete, contests
from jackfield.core.testing.examples import settings_for
from jackfield.core.testing.inspectors import Inspector
from jackfield.core.testing.letting_in import LettingIn, crowds
from jackfield.core.testing.neighbours import MADE
from jackfield.core.testing.precedence import Precedence, passes
from jackfield.core.testing.stacks import Factory, build
from jackfield.core.testing.stories import Story, arrivals, play, sizes


def claims_of(make: Factory) -> Sequence[Claim]:
    """What the policy claims. A stack of several disciplines claims nothing as a whole."""
    stack = build(make, MADE)
    plugins: list[Any] = [*stack.disciplines]
    plugins += [one for one in stack.advisors.values() if not isinstance(one, Discipline)]
    if len(plugins) != 1:
        return ()
    claims = tuple(getattr(plugins[0], "claims", ()))
    for claim in claims:
        assert isinstance(claim, Claim), f"{claim!r} among the claims is no Claim"
    return claims


def check_claim(make: Factory, claim: Claim, examples: int = 25) -> None:
    """Raises `AssertionError` with a short life in which the claim is wrong."""
    if isinstance(claim, WeightedFair):
        _check_shares(make, claim, examples)
        return

    @settings_for(examples)
    @given(_lives(claim))
    def check(story: Story) -> None:
        play(make, story, [_inspector(claim)])

    check()


def _check_shares(make: Factory, claim: WeightedFair, examples: int) -> None:
    @settings_for(examples)
    @given(contests(claim))
    def check(contest: Contest) -> None:
        compete(make, contest, claim)

    check()


def _lives(claim: Claim) -> Any:
    if isinstance(claim, Rate):
        return crowds(claim)
    single = st.lists(arrivals(answers=False), max_size=24)
    return st.builds(Story, sizes=sizes(share=0.0, overlap=0), arrivals=single)


def _inspector(claim: Claim) -> Inspector:
    if isinstance(claim, StrictPriority | Fcfs | Edf):
        return Precedence(passes(claim))
    if isinstance(claim, Rate):
        return LettingIn(claim)
    assert isinstance(claim, WorkConserving), f"there is no test for the claim {claim!r}"
    return Conserving()
