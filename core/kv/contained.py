"""How the cache calls plugins: through a guard that the engine hands to it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Containment(Protocol):
    """Calls a plugin alone and timed; what it raises is counted under its name."""

    @property
    def plugin(self) -> str:
        """The plugin's name."""

    @property
    def off(self) -> bool:
        """Whether it has used up its faults."""

    @property
    def last_fault(self) -> str | None:
        """What it did wrong last."""

    def ask(
        self, default: T, check: Callable[[Any], T], hook: Callable[..., Any], *arguments: Any
    ) -> T:
        """What `check` makes of the answer, or `default` if either raises."""

    def call(self, default: T, hook: Callable[..., Any], *arguments: Any) -> T | Any:
        """The answer, or `default` if it raises."""

    def each(self, hook: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> None:
        """Make many short calls whose answers do not matter."""

    def fault(self, what: str) -> None:
        """Charge one fault."""


class Hook(NamedTuple):
    """One implementation of a hook, behind its plugin's guard."""

    guard: Containment
    call: Callable[..., Any]
