"""Transfers do what was ordered, tell how it ended, and hang nothing but themselves."""

import gc
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor

from jackfield.core.api import KvLayer, TierStore
from jackfield.core.executors import transfer_lane, transfers
from jackfield.core.executors.transfer_spills import NUM_BUFFERS
from jackfield.core.executors.transfers import NoTransfers, Transfers
from jackfield.core.kv.copier import BlockCopier
from jackfield.core.kv.transfers import Transfer, TransferKind
from jackfield.core.testing.faulty_stores import Faults, FaultyStore, MemoryStore

NUM_BLOCKS = 40
PATIENCE = 30.0
STORE, LOAD, SPILL, DROP = TransferKind
GROWTH = 64 * 2**10
"""Less than 20 bytes for each of a thousand blocks that go down and up."""
RESIDENT_GROWTH = 8 * 2**20


class WatchedCopier(BlockCopier):
    """Counts batches, and stops inside of one if told to."""

    def __init__(self, layers: Sequence[KvLayer]) -> None:
        super().__init__(layers, torch.device("cpu"))
        self.gathered: list[int] = []
        self.scattered: list[int] = []
        self.stops = False
        self.inside, self.go_on = threading.Event(), threading.Event()

    def gather(self, blocks: Sequence[int], into_NB: Tensor, after: Any = None) -> None:
        self.gathered.append(len(blocks))
        self._stop()
        super().gather(blocks, into_NB, after)

    def scatter(self, blocks: Sequence[int], data_NB: Tensor, after: Any = None) -> None:
        self.scattered.append(len(blocks))
        self._stop()
        super().scatter(blocks, data_NB, after)

    def _stop(self) -> None:
        if self.stops:
            self.inside.set()
            assert self.go_on.wait(PATIENCE)


class Rig:
    """A tiny pool with tiers, and the engine's side of the transfers."""

    def __init__(self, **stores: TierStore) -> None:
        self.k = torch.randn(NUM_BLOCKS, 2, 3).to(torch.float8_e4m3fn)
        self.flags = torch.randint(100, (NUM_BLOCKS, 3), dtype=torch.int32)
        self.copier = WatchedCopier([KvLayer({"k": self.k, "flags": self.flags}, 1.0)])
        self.stores: Mapping[str, TierStore] = stores
        self.transfers = Transfers(self.copier, stores)
        self._number = 0

    def order(
        self, kind: TransferKind, tier: str, slot: int, block: int = -1, **more: Any
    ) -> Transfer:
        self._number += 1
        return Transfer(self._number, kind, tier, slot, block, **more)

    def ends(self, count: int) -> dict[int, str | None]:
        """The next so many ends, by number."""
        found: dict[int, str | None] = {}
        while len(found) < count:
            self.transfers.await_transfer(PATIENCE)
            told = self.transfers.transferred()
            assert told, f"{len(found)} of {count} transfers ended"
            found.update((end.number, end.error) for end in told)
        assert len(found) == count
        return found

    def run(self, *orders: Transfer) -> list[str | None]:
        """Their errors, in order; DROPs excepted."""
        self.transfers.transfer(orders)
        waited = [order.number for order in orders if order.kind is not DROP]
        ends = self.ends(len(waited))
        return [ends[number] for number in waited]

    def content(self, block: int) -> tuple[bytes, bytes]:
        k = bytes(self.k[block].view(torch.uint8).flatten().tolist())
        return k, bytes(self.flags[block].view(torch.uint8).tolist())

    def wipe(self, block: int) -> None:
        self.k.view(torch.uint8)[block] = 0
        self.flags[block] = 0


MakeRig = Callable[..., Rig]


@pytest.fixture
def make_rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeRig]:
    monkeypatch.setattr(transfers, "CLOSING_SECONDS", PATIENCE)
    made: list[Rig] = []

    def make(**stores: TierStore) -> Rig:
        made.append(Rig(**stores))
        return made[-1]

    yield make
    for rig in made:
        rig.copier.go_on.set()
        for store in rig.stores.values():
            if isinstance(store, FaultyStore):
                store._faults.released.set()
        rig.transfers.close()


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    return make_rig(host=MemoryStore(), disk=MemoryStore())


def memory(store: TierStore) -> MemoryStore:
    assert isinstance(store, MemoryStore)
    return store


def test_a_stored_block_is_loaded_into_another(rig: Rig) -> None:
    right = rig.content(3)
    assert rig.run(rig.order(STORE, "host", 0, 3)) == [None]
    rig.wipe(3)
    assert rig.run(rig.order(LOAD, "host", 0, 7)) == [None]
    assert rig.content(7) == right


def test_orders_of_one_call_are_one_batch_per_kind(rig: Rig) -> None:
    right = [rig.content(block) for block in range(5)]
    stores = [rig.order(STORE, "host", block, block) for block in range(5)]
    elsewhere = rig.order(STORE, "disk", 0, 9)
    assert rig.run(*stores[:2], elsewhere, *stores[2:]) == [None] * 6
    assert sorted(rig.copier.gathered) == [1, 5]
    assert rig.run(*(rig.order(LOAD, "host", slot, 11 - slot) for slot in range(5))) == [None] * 5
    assert rig.copier.scattered == [5]
    assert [rig.content(11 - block) for block in range(5)] == right


def test_batches_are_as_large_as_the_buffer(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer_lane, "MOST_BLOCKS", 2)
    rig = make_rig(host=MemoryStore())
    right = [rig.content(block) for block in range(5)]
    assert rig.run(*(rig.order(STORE, "host", b, b) for b in range(5))) == [None] * 5
    assert rig.run(*(rig.order(LOAD, "host", b, b + 5) for b in range(5))) == [None] * 5
    assert rig.copier.gathered == rig.copier.scattered == [2, 2, 1]
    assert [rig.content(block + 5) for block in range(5)] == right


def test_orders_of_a_tier_keep_their_order(rig: Rig) -> None:
    right = rig.content(2)
    rig.run(rig.order(STORE, "host", 0, 1))
    orders = [
        rig.order(DROP, "host", 0), rig.order(STORE, "host", 0, 2), rig.order(LOAD, "host", 0, 5),
        rig.order(DROP, "host", 0),
    ]  # fmt: skip
    assert rig.run(*orders) == [None, None]
    assert rig.content(5) == right
    rig.run(rig.order(STORE, "host", 1, 1))
    kinds = [name for name, slot in memory(rig.stores["host"]).calls if slot == 0]
    assert kinds == ["put", "drop", "put", "get", "drop"]


def test_a_block_goes_down_two_tiers_and_back(rig: Rig) -> None:
    right = rig.content(4)
    rig.run(rig.order(STORE, "host", 2, 4))
    assert rig.run(rig.order(SPILL, "disk", 5, 2, above="host")) == [None]
    rig.transfers.transfer([rig.order(DROP, "host", 2)])
    assert rig.run(rig.order(LOAD, "disk", 5, 0)) == [None]
    assert rig.content(0) == right
    assert rig.copier.gathered == rig.copier.scattered == [1]


def test_each_store_has_a_thread_of_its_own(rig: Rig) -> None:
    rig.run(*(rig.order(STORE, "host", slot, slot) for slot in range(3)))
    rig.run(*(rig.order(SPILL, "disk", slot, slot, above="host") for slot in range(3)))
    rig.run(rig.order(LOAD, "disk", 0, 0), rig.order(LOAD, "host", 0, 1))
    rig.transfers.close()
    used = [memory(store).threads for store in rig.stores.values()]
    assert [len(threads) for threads in used] == [1, 1]
    assert len(used[0] | used[1] | {threading.get_ident()}) == 3
    assert all(memory(store).closed for store in rig.stores.values())


ERRORS = [OSError("no room"), ValueError(), SystemExit(3), KeyboardInterrupt()]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_failing_put_fails_its_transfer_alone(make_rig: MakeRig, error: BaseException) -> None:
    rig = make_rig(host=FaultyStore(MemoryStore(), Faults(puts={1}, error=error)))
    errors = rig.run(*(rig.order(STORE, "host", slot, slot) for slot in range(3)))
    assert (errors[0], errors[2]) == (None, None)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    assert errors[1] == f"tier 'host': slot 1 could not be stored: {text}"
    (unread,) = rig.run(rig.order(LOAD, "host", 1, 5))
    assert unread is not None and "nothing is known of what the slot holds" in unread


def test_a_failing_put_over_an_old_block_leaves_none(make_rig: MakeRig) -> None:
    rig = make_rig(host=FaultyStore(MemoryStore(), Faults(puts={1})))
    rig.run(rig.order(STORE, "host", 0, 0))
    assert rig.run(rig.order(STORE, "host", 0, 1)) != [None]
    assert rig.run(rig.order(LOAD, "host", 0, 2)) != [None]


@pytest.mark.parametrize("faults", [Faults(gets={1}), Faults(corrupted={1}), Faults(cut={1})])
def test_a_block_that_comes_back_wrong_is_not_loaded(make_rig: MakeRig, faults: Faults) -> None:
    rig = make_rig(host=FaultyStore(MemoryStore(), faults))
    right = [rig.content(block) for block in range(3)]
    untouched = rig.content(7)
    rig.run(*(rig.order(STORE, "host", slot, slot) for slot in range(3)))
    rig.run(*(rig.order(STORE, "host", slot, slot) for slot in range(3, 6)))  # other bytes remain
    errors = rig.run(*(rig.order(LOAD, "host", slot, slot + 6) for slot in range(3)))
    assert (errors[0], errors[2]) == (None, None)
    assert errors[1] is not None and errors[1].startswith("tier 'host': slot 1 could not be read")
    assert [rig.content(block) for block in (6, 7, 8)] == [right[0], untouched, right[2]]


def test_without_a_checksum_nothing_is_compared(make_rig: MakeRig) -> None:
    rig = make_rig(host=FaultyStore(MemoryStore(), Faults(corrupted={0})))
    right = rig.content(0)
    rig.run(rig.order(STORE, "host", 0, 0, checked=False))
    assert rig.run(rig.order(LOAD, "host", 0, 1, checked=False)) == [None]
    assert rig.content(1) != right


def test_a_block_is_compared_before_it_goes_down(make_rig: MakeRig) -> None:
    rig = make_rig(host=FaultyStore(MemoryStore(), Faults(corrupted={0})), disk=MemoryStore())
    rig.run(rig.order(STORE, "host", 0, 0))
    (error,) = rig.run(rig.order(SPILL, "disk", 0, 0, above="host", checked=False))
    assert error is not None and error.startswith("tier 'host': slot 0 could not be read: Damaged")
    assert memory(rig.stores["disk"]).calls == []
    assert rig.run(rig.order(SPILL, "disk", 0, 0, above="host")) == [None]


def test_a_failing_lower_tier_fails_the_spill(make_rig: MakeRig) -> None:
    rig = make_rig(host=MemoryStore(), disk=FaultyStore(MemoryStore(), Faults(puts={0, 1, 2})))
    rig.run(rig.order(STORE, "host", 0, 0))
    spills = [rig.order(SPILL, "disk", slot, 0, above="host") for slot in range(5)]
    errors = rig.run(*spills)
    assert [error is None for error in errors] == [False, False, False, True, True]
    assert errors[0] == "tier 'disk': slot 0 could not be stored: StoreError: the store is broken"


def test_a_failing_copy_fails_its_batch(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("the device is gone")

    with monkeypatch.context() as patch:
        patch.setattr(rig.copier, "gather", broken)
        errors = rig.run(rig.order(STORE, "host", 0, 0), rig.order(STORE, "host", 1, 1))
    assert errors == ["tier 'host': the copy failed: RuntimeError: the device is gone"] * 2
    assert rig.run(rig.order(STORE, "host", 0, 0)) == [None]
    with monkeypatch.context() as patch:
        patch.setattr(rig.copier, "scatter", broken)
        assert rig.run(rig.order(LOAD, "host", 0, 0)) == [errors[0]]


def hung(make_rig: MakeRig, faults: Faults) -> Rig:
    """A host that works, and a disk that hangs when the test says so."""
    return make_rig(host=MemoryStore(), disk=FaultyStore(MemoryStore(), faults))


def test_a_tier_that_hangs_holds_up_no_other(make_rig: MakeRig) -> None:
    faults = Faults(hanging_puts={0})
    rig = hung(make_rig, faults)
    rig.run(*(rig.order(STORE, "host", slot, slot) for slot in range(8)))
    spills = [rig.order(SPILL, "disk", slot, slot, above="host") for slot in range(8)]
    rig.transfers.transfer(spills)
    assert faults.reached.wait(PATIENCE)
    assert rig.run(rig.order(LOAD, "host", 1, 9), rig.order(STORE, "host", 9, 9)) == [None, None]
    assert rig.transfers.transferred() == ()
    reads = [slot for name, slot in memory(rig.stores["host"]).calls if name == "get"]
    assert len(reads) == 1 + NUM_BUFFERS, "blocks on their way to a tier that hangs take memory"
    faults.released.set()
    assert rig.ends(8) == {order.number: None for order in spills}
    assert rig.run(rig.order(LOAD, "disk", 7, 0)) == [None]
    assert rig.content(0) == rig.content(7)


def test_an_upper_tier_that_hangs_holds_up_no_lower_one(make_rig: MakeRig) -> None:
    faults = Faults(hanging_gets={0})
    rig = make_rig(host=FaultyStore(MemoryStore(), faults), disk=MemoryStore())
    rig.run(rig.order(STORE, "host", 0, 0), rig.order(STORE, "disk", 5, 1))
    rig.transfers.transfer([rig.order(SPILL, "disk", 0, 0, above="host")])
    assert faults.reached.wait(PATIENCE)
    assert rig.run(rig.order(LOAD, "disk", 5, 2)) == [None]
    assert rig.content(2) == rig.content(1)


def test_a_tier_that_never_answers_does_not_keep_the_engine_from_closing(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "CLOSING_SECONDS", 0.05)
    faults, disk = Faults(hanging_puts={0}), MemoryStore()
    rig = make_rig(host=MemoryStore(), disk=FaultyStore(disk, faults))
    rig.transfers.transfer([rig.order(STORE, "disk", slot, slot) for slot in range(2)])
    assert faults.reached.wait(PATIENCE)
    rig.transfers.close()
    assert memory(rig.stores["host"]).closed and not disk.closed
    threads = [one for one in threading.enumerate() if one.name == "jackfield-tier-disk"]
    assert all(thread.daemon for thread in threads)
    faults.released.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert disk.closed


def test_a_store_that_waits_is_given_up_and_never_reads_its_block(make_rig: MakeRig) -> None:
    faults, disk = Faults(hanging_puts={0}), MemoryStore()
    rig = make_rig(disk=FaultyStore(disk, faults))
    first, second = rig.order(STORE, "disk", 0, 0), rig.order(STORE, "disk", 1, 1)
    rig.transfers.transfer([first])
    assert faults.reached.wait(PATIENCE)
    rig.transfers.transfer([second])
    assert rig.transfers.cancel_transfers([second.number]) == [second.number]
    faults.released.set()
    assert rig.ends(1) == {first.number: None}
    assert rig.run(rig.order(STORE, "disk", 2, 2)) == [None]
    assert rig.copier.gathered == [1, 1]
    assert sorted(disk.slots) == [0, 2]


def test_a_store_that_has_left_the_device_is_given_up(make_rig: MakeRig) -> None:
    faults, disk = Faults(hanging_puts={0}), MemoryStore()
    rig = make_rig(disk=FaultyStore(disk, faults))
    orders = [rig.order(STORE, "disk", slot, slot) for slot in range(3)]
    rig.transfers.transfer(orders)
    assert faults.reached.wait(PATIENCE)
    given_up = [orders[0].number, orders[2].number]
    assert rig.transfers.cancel_transfers(given_up) == given_up
    right = rig.content(5)
    again = [rig.order(DROP, "disk", 0), rig.order(STORE, "disk", 0, 5)]
    rig.transfers.transfer(again)
    faults.released.set()
    assert rig.ends(2) == {orders[1].number: None, again[1].number: None}
    assert sorted(disk.slots) == [0, 1]
    assert rig.run(rig.order(LOAD, "disk", 0, 6)) == [None]
    assert rig.content(6) == right


@pytest.mark.parametrize("kind", [STORE, LOAD])
def test_what_is_touching_the_device_is_not_given_up(rig: Rig, kind: TransferKind) -> None:
    rig.run(rig.order(STORE, "host", 0, 0))
    rig.copier.stops = True
    order = rig.order(kind, "host", 0, 1)
    rig.transfers.transfer([order])
    assert rig.copier.inside.wait(PATIENCE)
    assert rig.transfers.cancel_transfers([order.number]) == []
    rig.copier.go_on.set()
    assert rig.ends(1) == {order.number: None}


def test_a_load_that_hangs_is_given_up_and_never_writes_its_block(make_rig: MakeRig) -> None:
    faults = Faults(hanging_gets={1})
    rig = make_rig(host=FaultyStore(MemoryStore(), faults))
    rig.run(*(rig.order(STORE, "host", slot, slot) for slot in range(3)))
    loads = [rig.order(LOAD, "host", slot, slot + 5) for slot in range(3)]
    rig.transfers.transfer(loads)
    assert faults.reached.wait(PATIENCE)
    given_up = [loads[0].number, loads[1].number]
    assert rig.transfers.cancel_transfers(given_up) == given_up
    rig.wipe(5)
    rig.wipe(6)
    faults.released.set()
    assert rig.ends(1) == {loads[2].number: None}
    assert rig.content(7) == rig.content(2)
    assert all(not any(part) for block in (5, 6) for part in rig.content(block))


def test_a_load_is_given_up_between_reading_and_scattering(rig: Rig) -> None:
    """The rest of its batch is scattered from the right rows."""
    rig.run(*(rig.order(STORE, "host", slot, slot) for slot in range(3)))
    loads = [rig.order(LOAD, "host", slot, slot + 5) for slot in range(3)]
    wanted, untouched = rig.content(2), rig.content(6)
    ledger = rig.transfers._ledger
    touch = ledger.touch

    def cancel_first(numbers: Any) -> set[int]:
        assert ledger.cancel([loads[1].number]) == [loads[1].number]
        return touch(numbers)

    ledger.touch = cancel_first  # type: ignore[method-assign]
    rig.transfers.transfer(loads)
    assert rig.ends(2) == {loads[0].number: None, loads[2].number: None}
    assert (rig.content(6), rig.content(7)) == (untouched, wanted)


def test_spills_are_given_up_wherever_they_are(make_rig: MakeRig) -> None:
    faults, disk = Faults(hanging_puts={0}), MemoryStore()
    rig = make_rig(host=MemoryStore(), disk=FaultyStore(disk, faults))
    rig.run(*(rig.order(STORE, "host", slot, slot) for slot in range(6)))
    spills = [rig.order(SPILL, "disk", slot, slot, above="host") for slot in range(6)]
    rig.transfers.transfer(spills)
    assert faults.reached.wait(PATIENCE)
    given_up = [order.number for order in spills[:5]]
    assert rig.transfers.cancel_transfers(given_up) == given_up
    faults.released.set()
    assert rig.ends(1) == {spills[5].number: None}
    assert sorted(disk.slots) == [0, 5]


def test_what_ended_is_told_and_not_given_up(rig: Rig) -> None:
    order = rig.order(STORE, "host", 0, 0)
    rig.transfers.transfer([order])
    rig.transfers.await_transfer(PATIENCE)
    assert rig.transfers.cancel_transfers([order.number, 999]) == []
    assert [end.number for end in rig.transfers.transferred()] == [order.number]
    assert rig.transfers.transferred() == ()
    assert rig.transfers.cancel_transfers([order.number]) == []


def test_waiting_ends_when_the_time_is_over(rig: Rig) -> None:
    rig.transfers.await_transfer(0.0)
    assert rig.transfers.transferred() == ()


def test_a_tier_with_too_many_orders_refuses_more(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer_lane, "MOST_WAITING", 4)
    faults = Faults(hanging_puts={0})
    rig = hung(make_rig, faults)
    stores = [rig.order(STORE, "disk", slot, slot) for slot in range(5)]
    rig.transfers.transfer(stores[:4])
    assert faults.reached.wait(PATIENCE)
    rig.transfers.transfer([stores[4], rig.order(DROP, "disk", 7)])
    (error,) = rig.ends(1).values()
    assert error is not None and error.startswith("tier 'disk': too many transfers wait")
    assert rig.run(rig.order(STORE, "host", 0, 0)) == [None]
    faults.released.set()
    assert rig.ends(4) == {order.number: None for order in stores[:4]}


def test_ten_thousand_blocks_come_and_go_in_the_same_memory(rig: Rig) -> None:
    """Nothing that a transfer needs outlives it."""

    def cycle() -> None:
        down = [rig.order(STORE, "host", slot, slot) for slot in range(NUM_BLOCKS)]
        assert set(rig.run(*down)) == {None}
        further = [rig.order(SPILL, "disk", slot, slot, above="host") for slot in range(NUM_BLOCKS)]
        assert set(rig.run(*further)) == {None}
        up = [rig.order(LOAD, "disk", slot, slot) for slot in range(NUM_BLOCKS)]
        drops = [rig.order(DROP, tier, slot) for tier in rig.stores for slot in range(NUM_BLOCKS)]
        assert set(rig.run(*up, *drops)) == {None}
        for store in rig.stores.values():
            memory(store).calls.clear()
        rig.copier.gathered.clear()
        rig.copier.scattered.clear()

    before = [rig.content(block) for block in range(NUM_BLOCKS)]
    process, rounds = psutil.Process(), 10_000 // NUM_BLOCKS
    for _ in range(rounds // 10):
        cycle()
    resident = process.memory_info().rss
    for _ in range(rounds - 2 * (rounds // 10)):
        cycle()
    assert process.memory_info().rss - resident < RESIDENT_GROWTH
    assert traced_growth(cycle, rounds // 10) < GROWTH
    assert [rig.content(block) for block in range(NUM_BLOCKS)] == before


def traced_growth(cycle: Callable[[], None], rounds: int) -> int:
    """Bytes that Python holds more after so many rounds than after the first."""

    def held() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    cycle()
    start = held()
    for _ in range(rounds):
        cycle()
    growth = held() - start
    tracemalloc.stop()
    return growth


def test_orders_that_wait_when_all_ends_are_dropped(make_rig: MakeRig) -> None:
    faults, disk = Faults(hanging_puts={0}), MemoryStore()
    rig = make_rig(disk=FaultyStore(disk, faults))
    rig.transfers.transfer([rig.order(STORE, "disk", 0, 0), rig.order(STORE, "disk", 1, 1)])
    assert faults.reached.wait(PATIENCE)
    rig.transfers.transfer([rig.order(STORE, "disk", 2, 2)])
    closing = threading.Thread(target=rig.transfers.close)
    closing.start()
    while not rig.transfers._lanes["disk"].is_closing:
        pass
    faults.released.set()
    closing.join(PATIENCE)
    assert disk.closed
    assert [call for call in disk.calls if call[0] == "put"] == [("put", 0)]


def test_an_engine_without_tiers_moves_nothing() -> None:
    none = NoTransfers()
    none.transfer([])
    none.await_transfer(0.0)
    assert (*none.transferred(), *none.cancel_transfers([1])) == ()
    with pytest.raises(AssertionError, match="there is no tier"):
        none.transfer([Transfer(1, STORE, "host", 0, 0)])
    none.close()
