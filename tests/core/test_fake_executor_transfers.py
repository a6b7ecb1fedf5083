"""Transfers on the fake device and its tiers: every law by a plan that breaks it."""

from collections.abc import Callable, Sequence
from random import Random

import pytest

from jackfield.core.engine.steps import BlockUpdate
from jackfield.core.kv.transfers import BlockCopy, Transfer, TransferEnd, TransferKind
from jackfield.core.testing.by_hand import ByHand
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.failing_executor import DeviceError, FailingExecutor
from jackfield.core.testing.fake_executor import FakeExecutor, hashed
from jackfield.core.testing.fake_memory import FakeMemory
from jackfield.core.testing.fake_pace import AfterCalls, AnyOrder, AtOnce, Pace
from jackfield.core.testing.fake_tiers import FakeTiers
from jackfield.core.testing.shadow import Shadow

SIZE = 2
PROMPT = [1, 2, 3, 4]
OTHER = [6, 7, 8, 9]


def right(prefix: Sequence[int]) -> int:
    return hashed(prefix, 0, 1000)


def store(number: int, block: int, slot: int, tier: str = "host") -> Transfer:
    return Transfer(number, TransferKind.STORE, tier, slot, block)


def load(number: int, slot: int, block: int, tier: str = "host") -> Transfer:
    return Transfer(number, TransferKind.LOAD, tier, slot, block)


def spill(number: int, above: int, slot: int) -> Transfer:
    return Transfer(number, TransferKind.SPILL, "disk", slot, above, "host")


def drop(number: int, slot: int, tier: str = "host") -> Transfer:
    return Transfer(number, TransferKind.DROP, tier, slot)


class Desk:
    """A fake device whose blocks 0 and 1 hold PROMPT, of seat 0; and whoever looks after it."""

    def __init__(self, tiers: FakeTiers, executor: FakeExecutor | None = None) -> None:
        self.tiers = tiers
        self.executor = executor or FakeExecutor(SIZE, tiers=tiers)
        self.hand = ByHand(self.executor)
        self.shadow = Shadow(self.executor)
        self.hand.begin(0, PROMPT, [0, 1])

    def order(self, *orders: Transfer) -> None:
        self.executor.transfer(orders)

    def do(self, *orders: Transfer) -> None:
        """Order them, and let all end."""
        self.order(*orders)
        self.tiers.finish_all()
        assert all(end.error is None for end in self.executor.transferred())

    def ended(self) -> list[int]:
        return [end.number for end in self.executor.transferred()]

    def refuses(self, one: Transfer, message: str) -> None:
        with pytest.raises(AssertionError, match=message):
            self.order(one)


def new_desk(pace: Pace | None = None, **options: object) -> Desk:
    return Desk(FakeTiers(FakeMemory(SIZE), pace or Pace(), **options))  # type: ignore[arg-type]


@pytest.fixture
def desk() -> Desk:
    """Nothing ends unless a test says so."""
    return new_desk()


def test_what_was_stored_comes_back_in_another_block(desk: Desk) -> None:
    desk.do(store(0, 0, 5), store(1, 1, 6))
    assert desk.shadow.slot_content("host", 6) == tuple(PROMPT)
    desk.do(load(2, 5, 8), load(3, 6, 9))
    assert desk.hand.begin(1, [*PROMPT, 5], [8, 9, 2], start=4) == right([*PROMPT, 5])


def test_a_spilt_block_comes_back_from_the_tier_below(desk: Desk) -> None:
    desk.do(store(0, 0, 5))
    desk.do(spill(1, 5, 2))
    desk.do(drop(2, 5), load(3, 2, 8, "disk"))
    assert desk.shadow.slot_content("host", 5) is None
    assert desk.shadow.slot_content("disk", 2) == (1, 2)
    assert desk.hand.begin(1, [1, 2, 5], [8, 2], start=2) == right([1, 2, 5])


def test_blocks_that_came_back_in_the_wrong_order_give_a_wrong_answer(desk: Desk) -> None:
    desk.do(store(0, 0, 5), store(1, 1, 6))
    desk.do(load(2, 6, 8), load(3, 5, 9))
    assert desk.hand.begin(1, [*PROMPT, 5], [8, 9, 2], start=4) != right([*PROMPT, 5])


def test_a_store_copies_what_is_there_when_it_runs(desk: Desk) -> None:
    desk.order(store(0, 0, 5))
    desk.tiers.memory.put(0, desk.tiers.memory.poison())
    desk.do()
    assert desk.shadow.slot_content("host", 5) is None
    desk.do(load(1, 5, 8))
    assert desk.hand.begin(1, [1, 2, 5], [8, 2], start=2) != right([1, 2, 5])


def test_a_store_that_has_run_does_not_see_what_comes_later(desk: Desk) -> None:
    desk.order(store(0, 0, 5))
    desk.tiers.run(0)
    desk.tiers.memory.put(0, desk.tiers.memory.poison())
    desk.do()
    assert desk.shadow.slot_content("host", 5) == (1, 2)


def test_the_target_of_a_load_is_poison_until_it_has_run(desk: Desk) -> None:
    desk.do(store(0, 0, 5))
    desk.order(load(1, 5, 1))
    assert desk.shadow.content(1) is None
    desk.tiers.run(1)
    assert desk.shadow.content(1) == (1, 2)
    assert desk.ended() == []


IN_LOAD: dict[str, Callable[[ByHand], object]] = {
    "the slice of 1 reads block 8, which transfer 1": (
        lambda hand: hand.begin(1, [1, 2, 5], [8, 2], start=2)
    ),
    "the slice of 2 reads block 8, which transfer 1": lambda hand: hand.begin(2, [5, 6], [8]),
    "the copy of block 8 to block 3 reads block 8": lambda hand: hand.copy((8, 3)),
    "the copy of block 0 to block 8 writes block 8": lambda hand: hand.copy((0, 8)),
}


@pytest.mark.parametrize("message", IN_LOAD)
@pytest.mark.parametrize("stage", ["ordered", "run", "ended"])
def test_a_step_does_not_touch_the_target_of_a_load(desk: Desk, message: str, stage: str) -> None:
    desk.do(store(0, 0, 5))
    desk.order(load(1, 5, 8))
    if stage != "ordered":
        desk.tiers.run(1)
    if stage == "ended":
        desk.tiers.finish(1)
    with pytest.raises(AssertionError, match=message):
        IN_LOAD[message](desk.hand)


@pytest.mark.parametrize("message", IN_LOAD)
def test_once_the_end_was_told_the_target_is_as_any_block(desk: Desk, message: str) -> None:
    desk.do(store(0, 0, 5))
    desk.do(load(1, 5, 8))
    IN_LOAD[message](desk.hand)


@pytest.mark.parametrize("stage", ["ordered", "run", "ended"])
def test_a_step_does_not_write_the_source_of_a_store(desk: Desk, stage: str) -> None:
    desk.order(store(1, 1, 5))
    if stage != "ordered":
        desk.tiers.run(1)
    if stage == "ended":
        desk.tiers.finish(1)
    with pytest.raises(AssertionError, match="copy of block 0 to block 1 writes block 1, which tr"):
        desk.hand.copy((0, 1))
    desk.hand.leave(0)
    with pytest.raises(AssertionError, match=r"transfer 1 \(store\) reads"):
        desk.hand.begin(1, [5], [1])


def test_a_step_may_read_the_source_of_a_store(desk: Desk) -> None:
    desk.order(store(0, 0, 5), store(1, 1, 6))
    answer = desk.hand.begin(1, [1, 2, 5], [0, 2], start=2, copies=[BlockCopy(1, 3)])
    assert answer == right([1, 2, 5])
    assert desk.hand.decode(0, BlockUpdate(0, 2, [4])) > 0


def test_orders_that_read_what_is_being_filled_are_refused(desk: Desk) -> None:
    desk.do(store(0, 0, 5))
    desk.order(store(1, 1, 6), load(2, 5, 8), spill(3, 5, 2))
    desk.refuses(load(4, 6, 9), r"transfer 4 \(load\) touches slot 6 of host, which transfer 1")
    desk.refuses(spill(4, 6, 3), r"transfer 4 \(spill\) touches slot 6 of host, which transfer 1")
    desk.refuses(load(4, 2, 9, "disk"), "touches slot 2 of disk, which transfer 3")
    desk.refuses(store(4, 8, 7), r"\(store\) reads block 8, which transfer 2 \(load\) fills")


def test_orders_that_fill_what_is_being_filled_are_refused(desk: Desk) -> None:
    desk.do(store(0, 0, 5))
    desk.order(store(1, 1, 6), load(2, 5, 8), spill(3, 5, 2))
    desk.refuses(store(4, 0, 6), "touches slot 6 of host, which transfer 1")
    desk.refuses(store(4, 0, 2, "disk"), "touches slot 2 of disk, which transfer 3")
    desk.refuses(spill(4, 5, 2), "touches slot 2 of disk, which transfer 3")
    desk.refuses(drop(4, 6), r"transfer 4 \(drop\) touches slot 6 of host, which transfer 1")
    desk.refuses(load(4, 5, 8), r"writes block 8, which transfer 2 \(load\) fills")


def test_orders_that_spoil_what_is_being_read_are_refused(desk: Desk) -> None:
    desk.do(store(0, 0, 5), store(1, 1, 6))
    desk.order(store(2, 1, 7), spill(3, 5, 2))
    desk.refuses(load(4, 6, 1), r"writes block 1, which transfer 2 \(store\) reads")
    desk.refuses(drop(4, 5), r"transfer 4 \(drop\) empties slot 5 of host, which transfer 3")
    desk.refuses(store(4, 0, 5), r"\(store\) empties slot 5 of host, which transfer 3 \(spill\)")
    desk.order(load(4, 5, 8))


def test_a_refused_order_leaves_nothing_behind(desk: Desk) -> None:
    desk.order(store(1, 1, 6))
    desk.refuses(load(2, 5, 8), "reads the empty slot 5 of host")
    assert desk.tiers.in_flight == [1]
    desk.hand.begin(1, [5], [8])


@pytest.mark.parametrize("how", ["never filled", "dropped", "failed", "given up", "overwritten"])
def test_an_empty_slot_is_not_read(desk: Desk, how: str) -> None:
    if how != "never filled":
        desk.order(store(0, 0, 5))
    if how == "failed":
        desk.tiers.fail(0, "no room")
    elif how == "given up":
        assert desk.executor.cancel_transfers([0]) == [0]
    elif how != "never filled":
        desk.tiers.finish(0)
    desk.executor.transferred()
    if how == "dropped":
        desk.order(drop(1, 5))
    elif how == "overwritten":
        desk.order(store(1, 1, 5))
        assert desk.executor.cancel_transfers([1]) == [1]
    desk.refuses(load(2, 5, 8), r"transfer 2 \(load\) reads the empty slot 5 of host")
    desk.refuses(spill(2, 5, 1), r"transfer 2 \(spill\) reads the empty slot 5 of host")


def test_a_slot_can_be_emptied_and_filled_behind_a_load_of_it(desk: Desk) -> None:
    desk.do(store(0, 0, 5))
    desk.order(load(1, 5, 8), drop(2, 5), store(3, 1, 5))
    desk.tiers.finish(3)
    assert desk.ended() == [3]
    assert desk.shadow.content(8) == (1, 2)
    assert desk.shadow.slot_content("host", 5) == tuple(PROMPT)
    desk.tiers.finish(1)
    assert desk.ended() == [1]


def test_a_given_up_store_does_not_spoil_a_load_before_it(desk: Desk) -> None:
    desk.do(store(0, 0, 5))
    desk.order(load(1, 5, 8), store(2, 1, 5))
    assert desk.executor.cancel_transfers([2]) == [2]
    desk.do()
    assert desk.shadow.content(8) == (1, 2)


def test_tiers_do_not_wait_for_one_another(desk: Desk) -> None:
    desk.order(store(0, 0, 5), store(1, 1, 2, "disk"))
    desk.tiers.finish(1)
    desk.hand.copy((0, 9))
    desk.tiers.memory.put(0, desk.tiers.memory.get(9))
    assert desk.ended() == [1]
    assert desk.shadow.slot_content("disk", 2) == tuple(PROMPT)
    assert desk.shadow.slot_content("host", 5) is None


def test_a_drop_never_ends(desk: Desk) -> None:
    desk.do(store(0, 0, 5))
    desk.order(drop(1, 5))
    assert desk.tiers.in_flight == []
    desk.tiers.finish_all()
    assert desk.ended() == []


BAD_ORDERS = {
    "two transfers have the number 7": store(7, 1, 9),
    r"transfer 1 \(store\) names slot -1 of host": store(1, 0, -1),
    r"transfer 1 \(store\) names slot 10 of 10 in host": store(1, 0, 10),
    r"transfer 1 \(store\) names no tier: 'tape'": store(1, 0, 0, "tape"),
    r"transfer 1 \(store\) names block -1": store(1, -1, 0),
    r"transfer 1 \(spill\) names slot 11 of 10 in host": spill(1, 11, 0),
    r"transfer 1 \(spill\) spills disk into itself": (
        Transfer(1, TransferKind.SPILL, "disk", 1, 2, "disk")
    ),
}


@pytest.mark.parametrize("message", BAD_ORDERS)
def test_orders_that_name_nothing_are_refused(message: str) -> None:
    desk = new_desk(num_slots={"host": 10, "disk": 10})
    desk.order(store(7, 0, 5))
    desk.refuses(BAD_ORDERS[message], message)


def test_without_a_pace_a_transfer_ends_when_it_is_ordered() -> None:
    desk = Desk(FakeTiers(FakeMemory(SIZE)))
    desk.order(store(0, 0, 5))
    assert desk.shadow.slot_content("host", 5) == (1, 2)
    assert desk.executor.transferred() == [TransferEnd(0)]
    assert desk.executor.transferred() == []


def test_transfers_end_after_some_calls() -> None:
    desk = new_desk(AfterCalls(2))
    desk.order(store(0, 0, 5))
    assert desk.ended() == []
    desk.order(store(1, 1, 6))
    assert [desk.ended(), desk.ended(), desk.ended()] == [[0], [1], []]


def orders_of_ends(seed: int) -> list[int]:
    desk = new_desk(AnyOrder(Random(seed)))
    desk.order(*(store(number, number % 2, number) for number in range(8)))
    told: list[int] = []
    while desk.tiers.in_flight:
        told += desk.ended()
    for slot in range(8):
        assert desk.shadow.slot_content("host", slot) == tuple(PROMPT[: 2 + 2 * (slot % 2)])
    return told


def test_transfers_end_in_any_order() -> None:
    orders = [orders_of_ends(seed) for seed in range(10)]
    assert all(sorted(order) == list(range(8)) for order in orders)
    assert len(set(map(tuple, orders))) == 10
    assert orders == [orders_of_ends(seed) for seed in range(10)]


def test_those_that_end_together_are_told_in_any_order() -> None:
    desk = new_desk(AnyOrder(Random(0), share=1.0))
    desk.order(*(store(number, 0, number) for number in range(8)))
    told = desk.ended()
    assert sorted(told) == list(range(8)) != told


def test_a_test_says_which_transfer_ends(desk: Desk) -> None:
    desk.order(*(store(number, 0, number) for number in range(4)))
    assert desk.ended() == []
    desk.tiers.finish(2)
    desk.tiers.fail(1, "the disk is full")
    assert desk.executor.transferred() == [TransferEnd(2), TransferEnd(1, "the disk is full")]
    with pytest.raises(AssertionError, match="transfer 2 is not under way"):
        desk.tiers.finish(2)
    desk.tiers.finish_all()
    assert desk.ended() == [0, 3]


def test_a_failed_load_leaves_garbage(desk: Desk) -> None:
    desk.do(store(0, 0, 5))
    desk.order(load(1, 5, 8))
    desk.tiers.run(1)
    desk.tiers.fail(1, "checksum")
    desk.executor.transferred()
    assert desk.shadow.content(8) is None
    assert desk.hand.begin(1, [1, 2, 5], [8, 2], start=2) != right([1, 2, 5])
    assert desk.shadow.slot_content("host", 5) == (1, 2)


def test_transfers_fail_by_list_and_by_chance() -> None:
    desk = new_desk(AtOnce(), failing={1})
    desk.order(store(0, 0, 5), store(1, 0, 6))
    assert desk.executor.transferred() == [TransferEnd(0), TransferEnd(1, "transfer 1 failed")]
    desk = new_desk(AtOnce(), failure_share=0.3, random=Random(1))
    desk.order(*(store(number, 0, number) for number in range(100)))
    failed = {end.number for end in desk.executor.transferred() if end.error is not None}
    assert 15 < len(failed) < 45
    empty = {slot for slot in range(100) if desk.shadow.slot_content("host", slot) is None}
    assert empty == failed


def test_what_is_given_up_never_runs_and_is_not_told(desk: Desk) -> None:
    desk.do(store(0, 0, 5))
    desk.order(load(1, 5, 8), load(2, 5, 9), store(3, 1, 6), spill(4, 5, 2))
    assert desk.executor.cancel_transfers([1, 3, 4]) == [1, 3, 4]
    desk.hand.begin(1, [5, 6], [8])
    desk.tiers.finish_all()
    assert desk.ended() == [2]
    assert desk.shadow.content(8) == (5, 6)
    desk.order(drop(5, 5), store(6, 1, 6))


def test_what_has_run_is_not_given_up(desk: Desk) -> None:
    desk.order(store(0, 0, 5), store(1, 1, 6))
    desk.tiers.run(0)
    assert desk.executor.cancel_transfers([0, 1]) == [1]
    assert desk.ended() == [0]
    with pytest.raises(AssertionError, match="transfer 0 is given up and is not under way"):
        desk.executor.cancel_transfers([0])


def test_what_touches_the_device_ends_soon_after_it_was_given_up() -> None:
    desk = new_desk(touching_share=1.0)
    desk.order(store(0, 0, 5), store(1, 1, 6))
    assert desk.executor.cancel_transfers([0]) == []
    with pytest.raises(AssertionError, match="writes block 0, which transfer 0"):
        desk.hand.copy((1, 0))
    desk.executor.await_transfer(1.0)
    assert desk.executor.transferred() == [TransferEnd(0)]
    assert desk.executor.cancel_transfers([1]) == []
    assert desk.ended() == [1]


def test_a_share_of_what_is_given_up_touches_the_device() -> None:
    desk = new_desk(touching_share=0.5, random=Random(2))
    desk.order(*(store(number, 0, number) for number in range(40)))
    gone = desk.executor.cancel_transfers(list(range(40)))
    assert 8 < len(gone) < 32
    assert sorted([*gone, *desk.ended()]) == list(range(40))
    assert desk.tiers.in_flight == []


@pytest.mark.parametrize("pace", [AfterCalls(99), AnyOrder(Random(0), share=0.0)])
def test_who_waits_sees_one_end(pace: Pace) -> None:
    clock = ManualClock()
    desk = new_desk(pace, clock=clock)
    desk.order(store(0, 0, 5), store(1, 1, 6))
    for _ in range(2):
        desk.executor.await_transfer(5.0)
        desk.executor.await_transfer(5.0)
        assert len(desk.executor.transferred()) == 1
    assert clock.now() == 0.0


def test_who_waits_for_tiers_that_hang_spends_the_time() -> None:
    clock = ManualClock()
    desk = new_desk(clock=clock)
    desk.order(store(0, 0, 5))
    desk.executor.await_transfer(5.0)
    assert desk.ended() == []
    assert clock.now() == 5.0
    with pytest.raises(AssertionError, match="waits for -1"):
        desk.executor.await_transfer(-1.0)


def test_transfers_go_on_while_steps_break() -> None:
    tiers = FakeTiers(FakeMemory(SIZE), Pace())
    desk = Desk(tiers, FailingExecutor(SIZE, forward=[1], tiers=tiers))
    desk.order(store(0, 0, 5))
    with pytest.raises(DeviceError):
        desk.hand.begin(1, OTHER, [2, 3])
    tiers.finish(0)
    assert desk.ended() == [0]
    assert desk.shadow.slot_content("host", 5) == (1, 2)
    desk.order(load(1, 5, 8))
    desk.executor.await_transfer(0.0)
    assert desk.executor.cancel_transfers([1]) == [1]
