"""Where one process of an engine stands among those that hold its model together."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from jackfield.core.api import ConfigError, Ranks, Shard
from jackfield.core.api.collective import nobody_is_lost


class Agree(Protocol):
    """How the ranks of an engine tell each other something while they start."""

    def gather(self, name: str, value: Any) -> Sequence[Any]:
        """What each rank says, in the order of ranks. All of them ask for the same names in the
        same order, and wait for each other. value: numbers, texts, bytes, and lists of them."""


class Alone:
    """There is one rank."""

    def gather(self, name: str, value: Any) -> Sequence[Any]:
        """What it says itself."""
        return [value]


class Place(NamedTuple):
    """shard: which part of the model is here. agree: how to reach the other ranks. group: as in
    `Ranks`. local_size: ranks on this host, which share its memory. when_lost: as in `Ranks`."""

    shard: Shard = Shard()
    agree: Agree = Alone()
    group: Any = None
    local_size: int = 1
    when_lost: Callable[[Callable[[], None]], None] = nobody_is_lost

    @property
    def ranks(self) -> Ranks | None:
        """As operations are told of them; None = there is one."""
        rank, size = self.shard.rank, self.shard.size
        if size == 1:
            return None
        return Ranks(rank, size, self.group, size // self.local_size, self.when_lost)


ALONE = Place()


def first_of_host_first(place: Place, name: str, work: Callable[[], None]) -> None:
    """All ranks do the same work, but those that are not the first of their host begin when all
    those have ended, and find what they have left on the disk."""
    is_first = place.shard.rank % place.local_size == 0
    if is_first:
        work()
    place.agree.gather(name, is_first)
    if not is_first:
        work()


def least(agree: Agree, name: str, value: int) -> int:
    """The smallest of what the ranks say."""
    found: int = min(agree.gather(name, value))
    return found


def same(agree: Agree, name: str, value: Any) -> None:
    """Raise `ConfigError` on all ranks unless they all say the same."""
    values = agree.gather(name, value)
    for rank, other in enumerate(values):
        if other != values[0]:
            raise ConfigError(
                f"rank {rank} does not fit rank 0: {name} is {_shown(other)} there, and "
                f"{_shown(values[0])} on rank 0; start both with the same packages and settings"
            )


def _shown(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
