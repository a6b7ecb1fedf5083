"""How large the pool gets, and whose memory counts."""

import pytest

from jackfield.core.api import CapacityError
from jackfield.core.kv.sizing import (
    GIB,
    Budget,
    Memory,
    PoolWish,
    count_blocks,
    held_by_us,
    share_of,
)

NOTHING = PoolWish(None, None)
DEVICE = Memory(total=100 * GIB, free=45 * GIB)


def test_memory_of_other_processes_is_not_charged_to_this_one() -> None:
    """Half of the device was taken before; 5 GiB are weights of this process."""
    budget = share_of(DEVICE, 0.3, own=5 * GIB, scratch=GIB)
    assert budget.bytes == 24 * GIB
    assert count_blocks(NOTHING, DEVICE, GIB, 1000, budget) == 24


def test_own_use_is_what_this_process_knows_of_and_a_little_more() -> None:
    """Half of the device was taken before; loading took 5 GiB, and kernels took half a GiB."""
    before = Memory(100 * GIB, 50 * GIB)
    assert held_by_us(before, Memory(100 * GIB, 45 * GIB, own=5 * GIB)) == 5 * GIB
    assert held_by_us(before, Memory(100 * GIB, 45 * GIB - GIB // 2, 5 * GIB)) == 5.5 * GIB


def test_what_others_take_or_give_back_meanwhile_is_not_charged_either() -> None:
    before = Memory(100 * GIB, 50 * GIB, own=GIB)
    assert held_by_us(before, Memory(100 * GIB, 15 * GIB, own=6 * GIB)) == 7 * GIB
    assert held_by_us(before, Memory(100 * GIB, 90 * GIB, own=6 * GIB)) == 6 * GIB


def test_what_others_leave_is_the_limit() -> None:
    assert share_of(DEVICE, 0.9, own=5 * GIB, scratch=GIB).bytes == 44 * GIB


def test_a_share_that_is_used_up_tells_all_numbers() -> None:
    budget = share_of(DEVICE, 0.05, own=5 * GIB, scratch=GIB)
    with pytest.raises(CapacityError) as refused:
        count_blocks(NOTHING, DEVICE, GIB, 1000, budget)
    for part in ("0.05 of the device", "5.00 GiB held by this process", "1.00 GiB for a step",
                 "45.00 GiB of 100.00 GiB are free", "cache.memory"):  # fmt: skip
        assert part in str(refused.value)


def test_no_more_blocks_than_are_of_use() -> None:
    assert count_blocks(NOTHING, DEVICE, GIB, 7, Budget(24 * GIB, "")) == 7


def test_what_is_asked_for_is_exact_or_refused() -> None:
    assert count_blocks(PoolWish(9, None), DEVICE, GIB, 7, Budget(0, "")) == 9
    assert count_blocks(PoolWish(None, 5 * GIB + 1), DEVICE, GIB, 7, Budget(0, "")) == 5
    for wish in (PoolWish(46, None), PoolWish(None, 46 * GIB), PoolWish(None, GIB - 1)):
        with pytest.raises(CapacityError, match=r"blocks of 1,073,741,824 bytes need"):
            count_blocks(wish, DEVICE, GIB, 100, Budget(0, ""))
