"""When the transfers of a fake executor end."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from jackfield.core.kv.transfers import Transfer


@dataclass(slots=True)
class Order:
    """A transfer whose end was not told. num_calls: of `transferred` since it was ordered."""

    one: Transfer
    num_calls: int = 0
    has_run: bool = False
    has_ended: bool = False
    is_given_up: bool = False


class Pace:
    """This one ends nothing: a test says when, and if none does, the tiers hang."""

    def due(self, waiting: Sequence[Order]) -> Sequence[Order]:
        """Those that end now, in the order of their ends.

        Called when transfers were ordered, and by every `transferred`. waiting: in the order of
        their arrival.
        """
        return ()

    def awaited(self, waiting: Sequence[Order]) -> Order | None:
        """The one that ends because somebody waits for any; None = none does."""
        return None


class AtOnce(Pace):
    """A transfer ends when it is ordered."""

    def due(self, waiting: Sequence[Order]) -> Sequence[Order]:
        return waiting


class AfterCalls(Pace):
    """A transfer ends in the so-manieth call of `transferred` after it was ordered."""

    def __init__(self, num_calls: int) -> None:
        self._num_calls = num_calls

    def due(self, waiting: Sequence[Order]) -> Sequence[Order]:
        return [order for order in waiting if order.num_calls >= self._num_calls]

    def awaited(self, waiting: Sequence[Order]) -> Order | None:
        return waiting[0] if waiting else None


class AnyOrder(Pace):
    """Each time a share of the transfers ends, in an order drawn by `random`."""

    def __init__(self, random: Random, share: float = 0.5) -> None:
        self._random = random
        self._share = share

    def due(self, waiting: Sequence[Order]) -> Sequence[Order]:
        chosen = [order for order in waiting if self._random.random() < self._share]
        self._random.shuffle(chosen)
        return chosen

    def awaited(self, waiting: Sequence[Order]) -> Order | None:
        return self._random.choice(waiting) if waiting else None
