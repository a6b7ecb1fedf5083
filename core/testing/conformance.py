"""All laws that a scheduler plugin has to keep, whatever it orders or limits.

With `hypothesis` installed. See `laws` for the laws one by one.
"""

from dataclasses import replace
from typing import Any

from jackfield.core.api import PolicyContext
from jackfield.core.testing.claims import check_claim, claims_of
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes, context_for, request
from jackfield.core.testing.lives import EOS, TIGHT, life, start
from jackfield.core.testing.rules import check_folds, check_lives
from jackfield.core.testing.scheduler_machine import run_machine, scheduler_machine
from jackfield.core.testing.stacks import Factory, build, factory_of
from jackfield.core.testing.tree_laws import (
    check_collapse,
    check_order,
    check_refinement,
    check_restriction,
)

OVERLAPS = (0, 1, 2)
SHARE = 4


def check_scheduler(policy: type[Any] | Factory, *, examples: int = 25, steps: int = 40) -> None:
    """Run every law, alone and in random stacks, and test every claim that the policy makes.

    Raises `AssertionError` with what is broken; the notes of the error hold a short life in which
    it is.

    policy: a plugin class, or a function from `PolicyContext` to new plugins, from the root of
    the stack to the leaf. examples: how many random lives each check tries. steps: of those
    of a state machine.
    """
    make = factory_of(policy)
    if build(make, _context()).disciplines:
        check_order(make)
        check_collapse(make)
        check_refinement(make)
        check_restriction(make)
    else:
        check_folds(make, max(examples // 3, 1))
    check_determinism(make)
    check_overlaps(make)
    check_bypass(make)
    check_memory(make)
    check_lives(make, examples)
    for claim in claims_of(make):
        check_claim(make, claim, examples)
    for overlap in OVERLAPS:
        run_machine(scheduler_machine(make, overlap=overlap), examples, steps)


def check_determinism(make: Factory) -> None:
    """The same events give the same plans, position by position."""
    first, second = life(make).trace, life(make).trace
    assert first == second, "the same events gave different plans"


def check_overlaps(make: Factory) -> None:
    """Whatever is in flight while the next step is planned, answers are the same.

    Who may refuse or shorten can do so earlier or later; then one answer is the other's beginning.
    """
    judges = _judges(make)
    lives = [life(make, replace(TIGHT, overlap=overlap), seed=1).answers for overlap in OVERLAPS]
    for key in lives[0]:
        one = [answers[key] for answers in lives]
        if not any(progress.aborted for progress in one):
            tokens = [progress.tokens for progress in one]
            longest = max(tokens, key=len)
            same = all(one == longest[: len(one) if judges else None] for one in tokens)
            assert same, f"overlap changes the answer {key}"


def check_bypass(make: Factory) -> None:
    """With the starvation valve on, one admission in four is the oldest's, whatever its rank."""
    if _judges(make):
        return
    clock = ManualClock()
    sizes = Sizes(num_blocks=64, max_seqs=1, share=1 / SHARE)
    watch = start(make, sizes, clock)
    metrics, waiting = watch.engine.metrics, watch.engine.lifecycle.valve.requests
    bounds: dict[str, int] = {}
    for number in range(60):
        for name in (f"{number}a", f"{number}b"):
            watch.add(request(name, [1] * (1 + number % 7)), EOS)
            bounds[name] = metrics.admissions + SHARE * (2 * number + 3)
        clock.advance(1.0)
        watch.step()
        tree, now = watch.engine.lifecycle.tree, clock.now()
        free = [one for one in waiting() if tree.may_be_admitted(one, now)]
        late = [one.id for one in free if metrics.admissions > bounds[one.id]]
        assert not late, f"{late} were passed more often than the starvation valve allows"
    watch.drain()


def check_memory(make: Factory) -> None:
    """After a long life nothing is kept of requests that have ended."""
    watch = life(make, seed=2, steps=400)
    kept = sum(len(node.order._live) for node in watch.engine.lifecycle.tree.nodes())
    assert kept == 0, f"{kept} classes are queued although nobody waits"


def _judges(make: Factory) -> bool:
    """Whether an advisor decides who is let in."""
    return any(hasattr(one, "admit") for one in build(make, _context()).advisors.values())


def _context() -> PolicyContext:
    return context_for(Sizes(), ManualClock())
