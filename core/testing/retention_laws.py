"""Laws of retention: what it wants to keep, and that the order of plugins does not matter."""

import math
from itertools import permutations
from random import Random
from typing import Any

from jackfield.core.api import Keep, ReleaseCause, Released
from jackfield.core.kv.retention import fold
from jackfield.core.testing.namespace_laws import CONTEXTS, view_of


def check_answers(plugin: Any, seed: int = 0) -> None:
    """One `Keep` for each that is released, in batches of all sizes; each with sensible values."""
    for released in _batches(seed):
        _ask(plugin, released)


def check_folds(plugin: Any, seed: int = 0) -> None:
    """T3: beside other plugins, the outcome does not depend on whose answer comes first."""
    random = Random(seed)
    for released in _batches(seed):
        for keep in _ask(plugin, released):
            answers = [keep, _any_keep(random), _any_keep(random)]
            outcomes = {_folded(order) for order in permutations(answers)}
            assert len(outcomes) == 1, f"T3: {answers} gives {outcomes}, whoever comes first"


def check_keep(name: str, keep: Any) -> None:
    """A `Keep` whose every field has a value that the core can work with."""
    assert isinstance(keep, Keep), f"{name}.retain gave {keep!r}, which is no Keep"
    flags = (keep.pin, keep.drop)
    assert all(isinstance(flag, bool) for flag in flags), f"{name}.retain gave the flags {flags}"
    assert type(keep.priority) is int, f"{name}.retain gave the priority {keep.priority!r}"
    ttl = keep.ttl
    fits = ttl is None or (type(ttl) in (int, float) and math.isfinite(ttl) and ttl >= 0)
    assert fits, f"{name}.retain gave the ttl {ttl!r}"


def _ask(plugin: Any, released: list[Released]) -> list[Keep]:
    name = type(plugin).__name__
    given = plugin.retain(released)
    assert given is not None, f"{name}.retain gave None"
    answers = list(given)
    assert len(answers) == len(released), f"{name}.retain gave {len(answers)} for {len(released)}"
    for keep in answers:
        check_keep(name, keep)
    return answers


def _batches(seed: int) -> list[list[Released]]:
    random = Random(seed)
    causes = list(ReleaseCause)
    views = [view_of(handle, context) for handle, context in enumerate(CONTEXTS)]
    return [
        [
            Released(random.choice(views), random.choice((0, 1, 7, 1000)), random.choice(causes))
            for _ in range(size)
        ]
        for size in (1, 2, 5, 1, 0, 3)
    ]


def _any_keep(random: Random) -> Keep:
    return Keep(
        random.random() < 0.3, random.random() < 0.3, random.choice((-1, 0, 0, 2)),
        random.choice((None, None, 0.0, 5.0)),
    )  # fmt: skip


def _folded(keeps: Any) -> Keep:
    whole = Keep()
    for keep in keeps:
        whole = fold(whole, keep)
    return whole
