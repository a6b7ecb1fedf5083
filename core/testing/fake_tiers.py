"""Tiers without bytes: they copy what the fake device holds, when a pace or a test says so.

Every order is held against the contract of transfers until its end was told: nobody writes what is
being copied, nobody reads what is being filled, and a slot without content is never read.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random

from jackfield.core.kv.transfers import Transfer, TransferEnd, TransferKind
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.fake_memory import Content, FakeMemory
from jackfield.core.testing.fake_pace import AtOnce, Order, Pace

SlotId = tuple[str, int]
FILLING = (TransferKind.STORE, TransferKind.SPILL)


class FakeTiers:
    """Runs transfers on the blocks of `memory`.

    Orders of one tier run in their order, a SPILL in the tier that it fills; their ends come in
    any order. A STORE and a SPILL copy what they find when they run, not when they are ordered.

    pace: when orders end by themselves; default: when they are ordered. num_slots: of each tier,
    by name; None = there is no limit. failing, failure_share: the numbers of the transfers that
    fail, and the share of all others. touching_share: of those that are given up, how many are
    under way and end nevertheless, when `transferred` is called next. clock: moved on by
    `await_transfer` when nothing ends.
    """

    def __init__(
        self,
        memory: FakeMemory,
        pace: Pace | None = None,
        *,
        num_slots: Mapping[str, int] | None = None,
        failing: Collection[int] = (),
        failure_share: float = 0.0,
        touching_share: float = 0.0,
        random: Random | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.memory = memory
        self._pace = pace or AtOnce()
        self._num_slots = num_slots
        self._failing = failing
        self._failure_share = failure_share
        self._touching_share = touching_share
        self._random = random or Random(0)
        self._clock = clock
        self._contents: dict[SlotId, Content] = {}
        self._filled: set[SlotId] = set()
        self._queues: dict[str, deque[Transfer]] = {}
        self._orders: dict[int, Order] = {}
        self._ended: list[TransferEnd] = []

    @property
    def in_flight(self) -> list[int]:
        """Numbers of the transfers whose end was not told, in the order of their arrival."""
        return list(self._orders)

    @property
    def under_way(self) -> list[Transfer]:
        """Transfers whose end was not told, in the order of their arrival."""
        return [order.one for order in self._orders.values()]

    @property
    def waiting(self) -> list[int]:
        """Numbers of the transfers that have not ended, in the order of their arrival."""
        return [order.one.number for order in self._waiting()]

    def content(self, tier: str, slot: int) -> Content | None:
        """What a slot holds; None if it is empty, being filled, or was filled in vain."""
        return self._contents[(tier, slot)] if (tier, slot) in self._filled else None

    def transfer(self, transfers: Iterable[Transfer]) -> None:
        """See `Executor`. Raises `AssertionError` for an order that breaks the contract."""
        for one in transfers:
            self._check_slot(one)
            self._check_order(one)
            self._begin(one)
        self._end_all(self._pace.due(self._waiting()))

    def _check_slot(self, one: Transfer) -> None:
        assert one.number not in self._orders, f"two transfers have the number {one.number}"
        for tier, slot in _slots(one):
            assert slot >= 0, f"{_name(one)} names slot {slot} of {tier}"
            if self._num_slots is not None:
                assert tier in self._num_slots, f"{_name(one)} names no tier: {tier!r}"
                number = self._num_slots[tier]
                assert slot < number, f"{_name(one)} names slot {slot} of {number} in {tier}"
        if one.kind is TransferKind.SPILL:
            assert one.above != one.tier, f"{_name(one)} spills {one.tier} into itself"
        elif one.kind is not TransferKind.DROP:
            assert one.block >= 0, f"{_name(one)} names block {one.block}"

    def _check_order(self, one: Transfer) -> None:
        for slot in _slots(one):
            self._check_not_filling(one, slot)
        if one.kind is TransferKind.LOAD:
            self._check_full(one, (one.tier, one.slot))
            self.check_write(one.block, _name(one))
        else:
            self._check_not_spilling(one, (one.tier, one.slot))
        if one.kind is TransferKind.SPILL:
            self._check_full(one, (one.above, one.block))
        if one.kind is TransferKind.STORE:
            self.check_read(one.block, _name(one))

    def _check_not_filling(self, one: Transfer, slot: SlotId) -> None:
        for other in self._in_flight(*FILLING):
            assert (other.tier, other.slot) != slot, (
                f"{_name(one)} touches slot {slot[1]} of {slot[0]}, which {_name(other)} fills"
            )

    def _check_not_spilling(self, one: Transfer, slot: SlotId) -> None:
        for other in self._in_flight(TransferKind.SPILL):
            assert (other.above, other.block) != slot, (
                f"{_name(one)} empties slot {slot[1]} of {slot[0]}, which {_name(other)} reads"
            )

    def _check_full(self, one: Transfer, slot: SlotId) -> None:
        assert slot in self._filled, f"{_name(one)} reads the empty slot {slot[1]} of {slot[0]}"

    def check_read(self, block: int, who: str) -> None:
        """Raise `AssertionError` if a transfer fills this block of the device."""
        for other in self._in_flight(TransferKind.LOAD):
            assert other.block != block, f"{who} reads block {block}, which {_name(other)} fills"

    def check_write(self, block: int, who: str) -> None:
        """Raise `AssertionError` if a transfer fills or reads this block of the device."""
        for other in self._in_flight(TransferKind.LOAD, TransferKind.STORE):
            does = "fills" if other.kind is TransferKind.LOAD else "reads"
            assert other.block != block, f"{who} writes block {block}, which {_name(other)} {does}"

    def _in_flight(self, *kinds: TransferKind) -> list[Transfer]:
        return [order.one for order in self._orders.values() if order.one.kind in kinds]

    def _begin(self, one: Transfer) -> None:
        if one.kind is TransferKind.LOAD:
            self.memory.put(one.block, self.memory.poison())
        else:
            self._filled.discard((one.tier, one.slot))
        if one.kind is not TransferKind.DROP:  # the bytes stay, for loads ordered before it
            self._queues.setdefault(one.tier, deque()).append(one)
            self._orders[one.number] = Order(one)

    def run(self, number: int) -> None:
        """Copy now, after all that were ordered before in the same tier. The end comes later."""
        order = self._orders[number]
        queue = self._queues[order.one.tier]
        while not order.has_run:
            self._copy(queue.popleft())

    def _copy(self, one: Transfer) -> None:
        slot = (one.tier, one.slot)
        self._orders[one.number].has_run = True
        if one.kind is TransferKind.LOAD:
            self.memory.put(one.block, self._contents[slot])
        elif one.kind is TransferKind.STORE:
            self._contents[slot] = self.memory.get(one.block)
        else:
            self._contents[slot] = dict(self._contents[(one.above, one.block)])

    def finish(self, number: int) -> None:
        """This transfer ends now; it fails only if it is one of those that do."""
        self._end(self._waiting_order(number), self._error(number))

    def fail(self, number: int, error: str) -> None:
        """This transfer ends now and has failed."""
        self._end(self._waiting_order(number), error)

    def finish_all(self) -> None:
        """All transfers end now, in the order of their arrival."""
        self._end_all(self._waiting())

    def _waiting(self) -> list[Order]:
        return [order for order in self._orders.values() if not order.has_ended]

    def _waiting_order(self, number: int) -> Order:
        order = self._orders.get(number)
        assert order is not None and not order.has_ended, f"transfer {number} is not under way"
        return order

    def _error(self, number: int) -> str | None:
        fails = number in self._failing or self._random.random() < self._failure_share
        return f"transfer {number} failed" if fails else None

    def _end_all(self, orders: Iterable[Order]) -> None:
        for order in list(orders):
            self._end(order, self._error(order.one.number))

    def _end(self, order: Order, error: str | None) -> None:
        one = order.one
        self.run(one.number)
        order.has_ended = True
        self._ended.append(TransferEnd(one.number, error))
        if error is None and one.kind is not TransferKind.LOAD:
            self._filled.add((one.tier, one.slot))
        if error is not None and one.kind is TransferKind.LOAD:
            self.memory.put(one.block, self.memory.poison())

    def transferred(self) -> Sequence[TransferEnd]:
        """See `Executor`. What is told here is not held against anybody any more."""
        waiting = self._waiting()
        for order in waiting:
            order.num_calls += 1
        self._end_all(order for order in waiting if order.is_given_up)
        self._end_all(self._pace.due(self._waiting()))
        told, self._ended = self._ended, []
        for end in told:
            del self._orders[end.number]
        return told

    def await_transfer(self, seconds: float) -> None:
        """See `Executor`. Never sleeps: something ends, or the clock moves on."""
        assert seconds >= 0, f"somebody waits for {seconds} seconds"
        if self._ended:
            return
        waiting = self._waiting()
        given_up = [order for order in waiting if order.is_given_up]
        order = given_up[0] if given_up else self._pace.awaited(waiting)
        if order is not None:
            self._end(order, self._error(order.one.number))
        elif self._clock is not None:
            self._clock.advance(seconds)

    def cancel_transfers(self, numbers: Iterable[int]) -> Sequence[int]:
        """See `Executor`. Those that have run are not given up any more."""
        return [number for number in numbers if self._give_up(number)]

    def _give_up(self, number: int) -> bool:
        order = self._orders.get(number)
        assert order is not None, f"transfer {number} is given up and is not under way"
        if order.has_run or order.is_given_up or self._random.random() < self._touching_share:
            order.is_given_up = True
            return False
        self._queues[order.one.tier].remove(order.one)
        del self._orders[number]
        return True


def _slots(one: Transfer) -> list[SlotId]:
    """The slot of the transfer, and that of the tier above which it reads."""
    above = [(one.above, one.block)] if one.kind is TransferKind.SPILL else []
    return [(one.tier, one.slot), *above]


def _name(one: Transfer) -> str:
    return f"transfer {one.number} ({one.kind.value})"
