"""The laws of scheduler plugins one by one: what each says, and where to look if it fails."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from hypothesis import given

from jackfield.core.testing import conformance, tree_laws
from jackfield.core.testing.claims import check_claim, claims_of
from jackfield.core.testing.examples import settings_for
from jackfield.core.testing.neighbours import MADE, Around, neighbourhoods
from jackfield.core.testing.rules import RULES, check_alone, check_folds, check_in_stacks
from jackfield.core.testing.scheduler_machine import run_machine, scheduler_machine
from jackfield.core.testing.stacks import Factory, build
from jackfield.core.testing.stories import Story, play, stories

Check = Callable[[Factory, int], None]
"""A factory of the policy, and how many lives to try."""
ALONE = "alone"
STACKED = "in-stacks"


class Law(NamedTuple):
    """name: with the place where it is checked. says: the law. look: what is likely to blame."""

    name: str
    says: str
    look: str
    check: Check


def laws_of(make: Factory) -> Iterator[Law]:
    """All laws that the policy has to keep, and its own claims."""
    stack = build(make, MADE)
    if stack.disciplines:
        yield from _tree_laws()
    for rule in RULES:
        yield Law(f"{rule.name}[{ALONE}]", rule.says, rule.look, partial(check_alone, rule))
        yield Law(f"{rule.name}[{STACKED}]", rule.says, rule.look, partial(check_in_stacks, rule))
    yield from _whole_lives()
    if not stack.disciplines:
        yield Law(
            "folds",
            "In which order advisors are named changes no plan.",
            "answers that depend on anything but the arguments, such as a shared object",
            check_folds,
        )
    for place, claim in enumerate(claims_of(make), 1):
        yield Law(
            f"claim[{place} {type(claim).__name__}]",
            f"What the policy claims: {type(claim).__doc__}",
            "the method that orders or limits, or the claim, if it says more than is true",
            partial(_claim, claim),
        )


def _claim(claim: Any, make: Factory, examples: int) -> None:
    check_claim(make, claim, examples)


def _tree_laws() -> Iterator[Law]:
    checks: Mapping[str, tuple[Callable[[Factory], None], str, str]] = {
        "order": (
            tree_laws.check_order,
            "The tree admits in the order that a plain sort by rank, key and arrival gives.",
            "ranks or keys that change without a charge, an arrival or `rekey`",
        ),
        "collapse": (
            tree_laws.check_collapse,
            "A level that puts everybody into one class changes nothing, wherever it is.",
            "state in attributes of the policy instead of `cls.state`",
        ),
        "refinement": (
            tree_laws.check_refinement,
            "Inside a level above it, the policy lets nobody pass across that level's classes.",
            "a rank or key that is out of contract",
        ),
        "restriction": (
            tree_laws.check_restriction,
            "The order inside a class of the level above depends on what happens inside it only.",
            "state in attributes of the policy, or a generator, that all classes share",
        ),
    }
    for name, (check, says, look) in checks.items():
        yield Law(f"{name}[{ALONE}]", says, look, partial(_once, check))
    order = checks["order"]
    yield Law(f"order[{STACKED}]", order[1], order[2], _order_in_stacks)


def _once(check: Callable[[Factory], None], make: Factory, examples: int) -> None:
    check(make)


def _order_in_stacks(make: Factory, examples: int) -> None:
    @settings_for(max(examples // 3, 1))
    @given(neighbourhoods(make, hostile=False))
    def check(around: Around) -> None:
        tree_laws.check_order(around.around(make))

    check()


def _whole_lives() -> Iterator[Law]:
    yield Law(
        "determinism",
        "The same events give the same plans, position by position.",
        "clocks other than `context.now`, generators other than `context.rng`, orders of sets",
        _determinism,
    )
    yield Law(
        "overlap",
        "Whatever is in flight while the next step is planned, answers are the same.",
        "if the policy keeps to its contract, this is a fault of the core",
        partial(_once, conformance.check_overlaps),
    )
    yield Law(
        "bypass",
        "With the starvation valve on, its share of admissions goes to the oldest.",
        "`eligible_at`, which alone can hold back whom the valve would take",
        partial(_once, conformance.check_bypass),
    )
    yield Law(
        "forgetting",
        "After a long life nothing is kept of requests that have ended.",
        "classes that are told apart by more than the requests are",
        partial(_once, conformance.check_memory),
    )
    for overlap in conformance.OVERLAPS:
        yield Law(
            f"machine[overlap {overlap}]",
            "All of this through arrivals, aborts and jumps of the clock in any order.",
            "the steps below, which are the shortest that were found",
            partial(_machine, overlap),
        )


def _machine(overlap: int, make: Factory, examples: int) -> None:
    run_machine(scheduler_machine(make, overlap=overlap), examples)


def _determinism(make: Factory, examples: int) -> None:
    conformance.check_determinism(make)

    @settings_for(examples)
    @given(stories())
    def check(story: Story) -> None:
        first, second = play(make, story).trace, play(make, story).trace
        assert first == second, "the same events gave different plans"

    check()
