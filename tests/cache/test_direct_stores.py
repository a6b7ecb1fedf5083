"""Stores whose memory the core copies to and from itself, as it does for a GPU."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from jackfield.core.api import DirectStore, KvLayer, TierSpace
from jackfield.core.executors.transfers import Transfers
from jackfield.core.kv.copier import BlockCopier
from jackfield.core.kv.transfers import Transfer, TransferKind
from jackfield.plugins.cache.swap import host_store
from jackfield.plugins.cache.swap.host_store import HostStore

NUM_BLOCKS = 8
PATIENCE = 30.0
STORE, LOAD, SPILL, DROP = TransferKind


class WatchedStore(HostStore):
    """Nobody calls `put` or `get`. Slots of `bad` have no memory."""

    bad: tuple[int, ...] = ()

    def put(self, slot: int, data_B: Tensor) -> None:
        raise AssertionError("put was called")

    def get(self, slot: int, into_B: Tensor) -> None:
        raise AssertionError("get was called")

    def target(self, slot: int) -> Tensor:
        if slot in self.bad:
            raise MemoryError("nothing is left")
        return super().target(slot)


class Rig:
    """A pool on the CPU whose tier is used as on a GPU."""

    def __init__(self) -> None:
        self.k = torch.randn(NUM_BLOCKS, 2, 3)
        copier = BlockCopier([KvLayer({"k": self.k}, 1.0)], torch.device("cpu"))
        self.store = WatchedStore(TierSpace(0, copier.block_bytes, 6))
        self.transfers = Transfers(copier, {"host": self.store}, pinned=True)

    def run(self, *orders: Transfer) -> list[str | None]:
        """Errors of the orders, by their numbers."""
        self.transfers.transfer(orders)
        ends: dict[int, str | None] = {}
        while len(ends) < len(orders):
            self.transfers.await_transfer(PATIENCE)
            ends |= {end.number: end.error for end in self.transfers.transferred()}
        return [ends[order.number] for order in orders]


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.transfers.close()


def orders(
    kind: TransferKind, slots: list[int], blocks: list[int], checked: bool
) -> list[Transfer]:
    return [
        Transfer(slot, kind, "host", slot, block, "", checked)
        for slot, block in zip(slots, blocks, strict=True)
    ]


@pytest.mark.parametrize("checked", [False, True])
def test_blocks_go_to_the_memory_of_the_store_and_back(rig: Rig, checked: bool) -> None:
    assert isinstance(rig.store, DirectStore)
    before = rig.k.clone()
    assert rig.run(*orders(STORE, [4, 0, 5], [1, 7, 2], checked)) == [None] * 3
    assert torch.equal(rig.store.source(0), before[7].view(-1).view(torch.uint8))
    assert rig.run(*orders(LOAD, [5, 4, 0], [0, 3, 6], checked)) == [None] * 3
    expected = before.clone()
    expected[0], expected[3], expected[6] = before[2], before[1], before[7]
    assert torch.equal(rig.k, expected)


def test_what_has_changed_there_is_noticed(rig: Rig) -> None:
    before = rig.k.clone()
    rig.run(*orders(STORE, [0, 1], [0, 1], True))
    rig.store.source(0)[3] ^= 1
    errors = rig.run(*orders(LOAD, [0, 1], [5, 6], True))
    assert errors[0] is not None and "slot 0 could not be read: Damaged" in errors[0]
    assert errors[1] is None
    assert torch.equal(rig.k[5], before[5]) and torch.equal(rig.k[6], before[1])


def test_a_slot_that_is_filled_again_has_a_new_checksum(rig: Rig) -> None:
    rig.run(*orders(STORE, [0], [0], True))
    rig.run(*orders(STORE, [0], [1], False))
    (error,) = rig.run(*orders(LOAD, [0], [2], True))
    assert error is not None and "nothing is known" in error
    assert rig.run(*orders(LOAD, [0], [2], False)) == [None]
    assert torch.equal(rig.k[2], rig.k[1])


def test_memory_that_is_not_there_costs_its_own_transfer(rig: Rig) -> None:
    rig.store.bad = (1,)
    errors = rig.run(*orders(STORE, [0, 1, 2], [0, 1, 2], False))
    assert errors[0] is errors[2] is None
    assert errors[1] == "tier 'host': slot 1 could not be stored: MemoryError: nothing is left"
    (empty,) = rig.run(*orders(LOAD, [3], [4], False))
    assert empty is not None and "it holds nothing" in empty


def test_slabs_come_as_they_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_store, "SLAB_BYTES", 64)
    store = HostStore(TierSpace(0, 24, 5))
    assert not store._slabs
    store.put(3, torch.full((24,), 7, dtype=torch.uint8))
    assert [len(slab) for slab in store._slabs.values()] == [2]
    store.put(4, torch.full((24,), 9, dtype=torch.uint8))
    assert [len(slab) for slab in store._slabs.values()] == [2, 1]
    assert int(store.source(3)[0]) == 7 and int(store.source(4)[23]) == 9
    store.close()
    assert not store._slabs
