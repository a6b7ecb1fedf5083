"""Laws that every store of a tier keeps."""

from collections.abc import Callable
from random import Random

import torch
from torch import Tensor

from jackfield.core.api import DirectStore, TierSpace, TierStore

MakeStore = Callable[[TierSpace], TierStore]
SPACES = (TierSpace(0, 1, 1), TierSpace(0, 24, 3), TierSpace(0, 4099, 7))
"""One byte and one slot; a few; and a size that no page or word divides."""
OPERATIONS = 200
PATTERN = 0xA5


def check_store(make_store: MakeStore, *, spaces: tuple[TierSpace, ...] = SPACES) -> None:
    """All laws, on new stores. Raises `AssertionError` that says which is broken.

    make_store: opens a store as the hook `store` would. Each is closed before the next is opened.
    """
    laws = (
        check_round_trip, check_overwriting, check_dropping, check_copying, check_walk,
        check_reopening, check_direct,
    )  # fmt: skip
    for space in spaces:
        for law in laws:
            law(make_store, space)


def check_round_trip(make_store: MakeStore, space: TierSpace) -> None:
    """Each slot gives back its own bytes, as often as it is asked, when all slots are filled."""
    store = make_store(space)
    stored = [block(space, slot) for slot in range(space.num_slots)]
    for slot, data_B in enumerate(stored):
        store.put(slot, data_B)
    for slot in [*reversed(range(space.num_slots)), *range(space.num_slots)]:
        assert torch.equal(read(store, space, slot), stored[slot]), f"slot {slot} is not its own"
    store.close()


def check_overwriting(make_store: MakeStore, space: TierSpace) -> None:
    """A slot has what was put last, and its neighbours do not notice."""
    store = make_store(space)
    for slot in range(space.num_slots):
        store.put(slot, block(space, slot))
    last = space.num_slots - 1
    store.put(last, block(space, 1000))
    assert torch.equal(read(store, space, last), block(space, 1000)), "a slot kept its old bytes"
    for slot in range(last):
        assert torch.equal(read(store, space, slot), block(space, slot)), "a neighbour changed"
    store.close()


def check_direct(make_store: MakeStore, space: TierSpace) -> None:
    """A store's own memory, if the core may use it, is what `put` and `get` handle."""
    store = make_store(space)
    if isinstance(store, DirectStore):
        for slot in range(space.num_slots):
            store.target(slot).copy_(block(space, slot))
        for slot in range(space.num_slots):
            assert torch.equal(read(store, space, slot), block(space, slot)), "a target is not kept"
            store.put(slot, block(space, slot + 1))
        for slot in range(space.num_slots):
            assert torch.equal(store.source(slot), block(space, slot + 1)), "a source is not it"
    store.close()


def check_dropping(make_store: MakeStore, space: TierSpace) -> None:
    """A slot may be dropped, also twice or when it is empty, and is filled again afterwards."""
    store = make_store(space)
    store.drop(0)
    store.put(0, block(space, 1))
    store.drop(0)
    store.drop(0)
    store.put(0, block(space, 2))
    assert torch.equal(read(store, space, 0), block(space, 2)), "put after drop is lost"
    store.close()


def check_copying(make_store: MakeStore, space: TierSpace) -> None:
    """Both buffers belong to the caller: neither is kept, and that of `put` is not written."""
    store = make_store(space)
    buffer_B = block(space, 1)
    store.put(0, buffer_B)
    assert torch.equal(buffer_B, block(space, 1)), "put changed its buffer"
    buffer_B.fill_(PATTERN)
    first_B = read(store, space, 0)
    assert torch.equal(first_B, block(space, 1)), "put kept its buffer in place of a copy"
    first_B.fill_(PATTERN)
    assert torch.equal(read(store, space, 0), block(space, 1)), "get gave away the store's memory"
    store.close()


def check_walk(make_store: MakeStore, space: TierSpace) -> None:
    """Long random use is like that of a dictionary. Only slots that hold something are read."""
    store, right, random = make_store(space), dict[int, Tensor](), Random(space.block_bytes)
    rows = torch.empty((2, space.block_bytes), dtype=torch.uint8)
    for number in range(OPERATIONS):
        slot, choice = random.randrange(space.num_slots), random.random()
        if choice < 0.4:
            right[slot] = block(space, number)
            rows[1] = right[slot]
            store.put(slot, rows[1])
        elif choice < 0.5:
            right.pop(slot, None)
            store.drop(slot)
        elif slot in right:
            store.get(slot, rows[0])
            assert torch.equal(rows[0], right[slot]), f"slot {slot} is wrong after {number} calls"
    store.close()


def check_reopening(make_store: MakeStore, space: TierSpace) -> None:
    """A store can be opened again when it was closed, full or empty."""
    store = make_store(space)
    store.put(0, block(space, 1))
    store.close()
    make_store(space).close()


def block(space: TierSpace, number: int) -> Tensor:
    """Bytes that no other number has."""
    generator = torch.Generator().manual_seed(number)
    return torch.randint(256, (space.block_bytes,), dtype=torch.uint8, generator=generator)


def read(store: TierStore, space: TierSpace, slot: int) -> Tensor:
    """The bytes of a slot, read into a buffer that holds something else."""
    into_B = torch.full((space.block_bytes,), PATTERN, dtype=torch.uint8)
    store.get(slot, into_B)
    return into_B
