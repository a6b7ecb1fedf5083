"""The loop of a rank beside the first: it does what it is told, in order."""

import logging
from collections.abc import Sequence
from traceback import clear_frames

from jackfield.core.engine.runner import Ticket
from jackfield.core.executors.single import SingleDevice
from jackfield.core.executors.told_transfers import ToldTransfers
from jackfield.core.kv.transfers import TransferEnd
from jackfield.core.process.channel import Channel
from jackfield.core.process.rank_watch import RankWatch
from jackfield.core.wire.plan import Plan, Sample, plan_of
from jackfield.core.wire.ranks import (
    Agreed,
    Cancel,
    Copy,
    Ended,
    GivenUp,
    Logits,
    RankOrder,
    Release,
    StartRank,
    Stop,
    Stumbled,
    decode_order,
    encode_rank,
)

log = logging.getLogger("jackfield.engine")


class RankService:
    """Steps are computed as on the first rank, and nobody looks at what they give."""

    def __init__(
        self, executor: SingleDevice, channel: Channel, watch: RankWatch, *, has_tiers: bool
    ) -> None:
        self._executor = executor
        self._channel = channel
        self._watch = watch
        self._pending: tuple[int, Ticket] | None = None
        self._stopped = False
        self._told = ToldTransfers(executor, self._tell_ends) if has_tiers else None

    def run(self) -> None:
        """Until told to stop. Raises `EOFError` when the first rank has gone."""
        while not self._stopped:
            for message in self._channel.receive(None):
                self._watch.begin()
                self._obey(decode_order(message))
            self._watch.end()
        if self._told is not None:
            self._told.close()
        self._executor.close()

    def _obey(self, order: RankOrder) -> None:
        match order:
            case Plan():
                self._compute(order)
            case Sample():
                self._draw(order)
            case Copy():
                self._executor.transfer(order.orders)
            case Cancel():
                found = self._executor.cancel_transfers(order.numbers)
                self._channel.send(encode_rank(GivenUp(list(found))))
            case Logits():
                self._show(order.plan)
            case Release():
                self._executor.release_cached()
            case Stop():
                self._stopped = True
            case StartRank() | Agreed():
                raise AssertionError("a rank starts once")

    def _compute(self, order: Plan) -> None:
        self._watch.step(order.number)
        self._pending = None  # one that was never drawn has failed on the first rank
        try:
            ticket = self._executor.forward(plan_of(order))
            if order.waits:
                self._pending = order.number, ticket
            else:
                self._executor.sample(ticket, {})
        except Exception as error:
            self._stumble(order.number, error)

    def _draw(self, order: Sample) -> None:
        if self._pending is None:
            return  # it has stumbled, and the first rank will know
        (number, ticket), self._pending = self._pending, None
        try:
            self._executor.sample(ticket, order.late)
        except Exception as error:
            self._stumble(number, error)

    def _show(self, plan: Plan) -> None:
        self._watch.step(plan.number)
        try:
            self._executor.logits(plan_of(plan))
        except Exception as error:
            self._stumble(plan.number, error)

    def _stumble(self, step: int, error: Exception) -> None:
        log.error("step %d failed", step, exc_info=error)
        clear_frames(error.__traceback__)  # what the step held hangs on them
        told = f"{type(error).__name__}: {error}"
        self._channel.send(encode_rank(Stumbled(step, told)))

    def _tell_ends(self, ends: Sequence[TransferEnd]) -> None:
        self._channel.send(encode_rank(Ended(list(ends))))
