"""The block pool against a plain model of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.core.kv.pool import BlockPool

BLOCKS = 6
operations = st.lists(
    st.tuples(st.sampled_from(["take", "share", "release"]), st.integers(0, 9)), max_size=60
)


@given(operations)
def test_every_block_is_free_or_held(operations: list[tuple[str, int]]) -> None:
    pool = BlockPool(BLOCKS, 4)
    tables: list[list[int]] = []
    for name, number in operations:
        if name == "take" and 0 < number <= pool.num_free:
            taken = pool.take(number)
            held = {block for table in tables for block in table}
            assert len(taken) == number and not held & set(taken)
            tables.append(taken)
        elif name == "share" and tables:
            table = list(tables[number % len(tables)])
            pool.share(table)
            tables.append(table)
        elif name == "release" and tables:
            pool.release(tables.pop(number % len(tables)), last_step=number)
        pool.check(tables)
        held = {block for table in tables for block in table}
        assert pool.num_free == BLOCKS - len(held)
    for table in tables:
        pool.release(table, 0)
    assert pool.num_free == BLOCKS


def test_blocks_for_rounds_up() -> None:
    pool = BlockPool(3, 4)
    assert [pool.blocks_for(n) for n in (0, 1, 4, 5, 12)] == [0, 1, 1, 2, 3]
    assert pool.num_tokens == 12


def test_a_shared_block_is_free_after_its_last_holder() -> None:
    pool = BlockPool(2, 4)
    blocks = pool.take(2)
    pool.share(blocks[:1])
    pool.release(blocks, 3)
    assert pool.num_free == 1
    assert pool.holders(blocks[0]) == 1
    pool.release(blocks[:1], 7)
    assert pool.num_free == 2
    assert (pool.last_step(blocks[0]), pool.last_step(blocks[1])) == (7, 3)


def test_last_step_never_goes_back() -> None:
    pool = BlockPool(1, 4)
    for last_step in (5, 2):
        pool.release(pool.take(1), last_step)
    assert pool.last_step(0) == 5


@pytest.mark.parametrize("count", [0, 3])
def test_taking_none_or_too_many_is_a_fault_of_the_engine(count: int) -> None:
    with pytest.raises(AssertionError, match="2 free blocks"):
        BlockPool(2, 4).take(count)


def test_double_release_and_sharing_of_free_blocks_are_caught() -> None:
    pool = BlockPool(2, 4)
    blocks = pool.take(1)
    pool.release(blocks, 0)
    with pytest.raises(AssertionError, match="released twice"):
        pool.release(blocks, 0)
    with pytest.raises(AssertionError, match="cannot be shared"):
        pool.share(blocks)


def test_check_finds_a_lost_block() -> None:
    pool = BlockPool(2, 4)
    pool.take(1)
    with pytest.raises(AssertionError, match="0 tables hold it, counted 1"):
        pool.check([])
