"""The scheduler stack with its branches: how it is written, and what it is made of."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, WithJsonSchema

T = TypeVar("T")
U = TypeVar("U")
OTHERS = "*"
"""The key of a branch table that stands for all classes without a branch of their own."""
SHAPE = "should hold names of plugins, at the end perhaps a table of class keys and their stacks"


@dataclass(frozen=True)
class Ordering(Generic[T]):
    """One discipline and what is below it.

    inner: class key as text -> what is below that class. other: below all other classes; None =
    nothing is: it is a leaf.
    """

    here: T
    other: "Ordering[T] | None" = None
    inner: "Mapping[str, Ordering[T]]" = field(default_factory=dict)

    def each(self) -> Iterator[T]:
        """Every discipline, as often as it occurs, the upper ones first."""
        yield self.here
        for branch in (*self.inner.values(), *([self.other] if self.other else ())):
            yield from branch.each()

    def map(self, make: Callable[[T], U]) -> "Ordering[U]":
        """The same shape with something made of each discipline, the upper ones first."""
        here = make(self.here)
        inner = {key: branch.map(make) for key, branch in self.inner.items()}
        return Ordering(here, self.other.map(make) if self.other else None, inner)


def names_in(stack: Sequence[Any]) -> list[str]:
    """Every plugin that the stack names, each once, as written; branches of others come last."""
    found: dict[str, None] = {}
    for entry in stack:
        if isinstance(entry, str):
            found[entry] = None
        else:
            for key in sorted(entry, key=lambda key: key == OTHERS):
                found.update(dict.fromkeys(names_in(entry[key])))
    return list(found)


def branches_of(stack: Sequence[Any]) -> str:
    """How the stack branches, as text that is the same in every process; "" if it does not."""
    if all(isinstance(entry, str) for entry in stack):
        return ""
    return json.dumps(stack, sort_keys=True)


def _checked(stack: list[Any]) -> list[Any]:
    _check(stack, ())
    return stack


def _check(stack: Any, above: tuple[str, ...]) -> None:
    if not isinstance(stack, list):
        raise ValueError(f"{SHAPE}; {stack!r} is no list")
    for place, entry in enumerate(stack):
        if isinstance(entry, str):
            above = _with_name(entry, above)
        elif isinstance(entry, Mapping):
            if place < len(stack) - 1:
                raise ValueError(f"{SHAPE}; something follows the table")
            if not place:
                raise ValueError(f"{SHAPE}; a table needs a plugin before it that makes classes")
            _check_table(entry, above)
        else:
            raise ValueError(f"{SHAPE}; {entry!r} is neither")


def _with_name(entry: str, above: tuple[str, ...]) -> tuple[str, ...]:
    name = entry.rpartition(":")[2]
    if not name:
        raise ValueError("should name plugins; an entry is empty")
    if name in above:
        raise ValueError(f"should name each plugin once on a way down; repeated: {name}")
    return (*above, name)


def _check_table(table: Mapping[Any, Any], above: tuple[str, ...]) -> None:
    if not table:
        raise ValueError(f"{SHAPE}; the table is empty")
    for key, stack in table.items():
        if not isinstance(key, str):
            raise ValueError(f"{SHAPE}; the key {key!r} is no text")
        _check(stack, above)


SchedulerStack = Annotated[
    list[Any],
    AfterValidator(_checked),
    WithJsonSchema(
        {
            "type": "array",
            "items": {
                "anyOf": [
                    {"type": "string"},
                    {"type": "object", "additionalProperties": {"type": "array"}},
                ]
            },
        }
    ),
]
"""`["priority", {"0" = ["fairness", "edf"], "*" = ["sjf"]}]`: names, the last entry may branch."""
