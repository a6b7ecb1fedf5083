"""Laws that are looked at in random lives, step by step: of the policy alone, and in stacks."""

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any, NamedTuple

from hypothesis import given

from jackfield.core.api import PolicyContext
from jackfield.core.testing.examples import settings_for
from jackfield.core.testing.inspectors import (
    Inspector,
    Moves,
    NoFaults,
    NothingTwice,
    OldestComputes,
    OnePlace,
    WakesUp,
)
from jackfield.core.testing.neighbours import MADE, Around, neighbourhoods
from jackfield.core.testing.stacks import Factory, build
from jackfield.core.testing.stories import Story, play, stories


class Rule(NamedTuple):
    """A law of random lives, checked by an inspector alone and in stacks."""

    name: str
    says: str
    look: str
    inspectors: Callable[[Sequence[str]], Sequence[Inspector]]


RULES = (
    Rule(
        "contract",
        "Every answer of the policy is one that its method may give, and nothing raises.",
        "the method that the message names: types, lengths, finite numbers, state that is None "
        "the first time",
        lambda names: [NoFaults(name) for name in names],
    ),
    Rule(
        "guarantees",
        "Blocks, seats, budgets and answers are right after every step, and everybody ends.",
        "state that the policy keeps of requests that are over; if it keeps none, this is a fault "
        "of the core",
        lambda _: [],
    ),
    Rule(
        "progress",
        "While nobody runs and somebody who is not held back waits, the next step admits somebody.",
        "admissions that `shape` or `plan` forbid, and times of `eligible_at` that are over",
        lambda _: [Moves()],
    ),
    Rule(
        "oldest",
        "The oldest running request computes something before all others are through.",
        "`quota`, `plan` and `shape` answers that leave out one request for ever",
        lambda _: [OldestComputes()],
    ),
    Rule(
        "wake-ups",
        "Who is parked or held back has a time at which it is looked at again.",
        "deferrals and `eligible_at` times that never come",
        lambda _: [WakesUp()],
    ),
    Rule(
        "places",
        "A request is in one place at a time, and who lost its seat computes nothing in that step.",
        "if the policy keeps to its contract, this is a fault of the core",
        lambda _: [OnePlace(), NothingTwice()],
    ),
)


def check_alone(rule: Rule, make: Factory, examples: int) -> None:
    """So many lives of an engine with nothing but the policy."""
    names = names_of(make)

    @settings_for(examples)
    @given(stories())
    def check(story: Story) -> None:
        play(make, story, rule.inspectors(names))

    check()


def check_in_stacks(rule: Rule, make: Factory, examples: int) -> None:
    """So many lives of engines with random other policies."""
    names = names_of(make)

    @settings_for(examples)
    @given(neighbourhoods(make), stories())
    def check(around: Around, story: Story) -> None:
        play(around.around(make), story, rule.inspectors(names), around.beside)

    check()


def check_folds(make: Factory, examples: int = 10) -> None:
    """Whatever the order of advisors, the policy's own among them, plans are the same.

    For policies that only limit.
    """

    @settings_for(examples)
    @given(neighbourhoods(make, hostile=False), stories())
    def check(around: Around, story: Story) -> None:
        count = len(build(make, MADE).advisors) + len(around.advisors)
        traces = [
            play(_nobody, story, (), _ordered(make, around, order)).trace
            for order in permutations(range(count))
        ]
        assert all(trace == traces[0] for trace in traces), "the order of advisors changes plans"

    check()


def _nobody(_: PolicyContext) -> Sequence[Any]:
    return ()


def _ordered(
    make: Factory, around: Around, order: Sequence[int]
) -> Callable[[PolicyContext], Mapping[str, Any]]:
    """New advisors, in that order."""

    def beside(context: PolicyContext) -> Mapping[str, Any]:
        every = [*build(make, context).advisors.items(), *around.beside(context).items()]
        return dict(every[place] for place in order)

    return beside


def check_lives(make: Factory, examples: int) -> None:
    """All rules at once, alone and in stacks: faster than one after another."""
    every = Rule("", "", "", _all_inspectors)
    check_alone(every, make, examples)
    check_in_stacks(every, make, examples)


def _all_inspectors(names: Sequence[str]) -> list[Inspector]:
    return [inspector for rule in RULES for inspector in rule.inspectors(names)]


def names_of(make: Factory) -> list[str]:
    """Under which the faults of the policy, or of the stack, are counted."""
    stack = build(make, MADE)
    return [type(one).__name__.lower() for one in (*stack.disciplines, *stack.advisors.values())]
