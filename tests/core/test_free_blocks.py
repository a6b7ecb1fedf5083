"""The free list of the block pool: nothing is lost, and sequences stay consecutive."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.core.kv.free_blocks import FreeBlocks

NUM_BLOCKS = 24


def _consecutive(blocks: list[int]) -> bool:
    return blocks == list(range(blocks[0], blocks[0] + len(blocks)))


def _check(free: FreeBlocks, expected: set[int], num_blocks: int) -> None:
    assert len(free) == len(expected)
    assert {block for block in range(-1, num_blocks + 1) if block in free} == expected


def test_an_empty_pool_has_all_blocks() -> None:
    free = FreeBlocks(3)
    _check(free, {0, 1, 2}, 3)
    assert free.take(3) == [0, 1, 2]
    _check(free, set(), 3)


def test_a_sequence_goes_on_where_it_ended() -> None:
    free = FreeBlocks(10)
    taken = free.take(4)
    assert free.take(1, after=taken[-1]) == [4]
    assert free.take(3, after=4) == [5, 6, 7]


def test_what_does_not_follow_the_sequence_is_found_elsewhere() -> None:
    free = FreeBlocks(10)
    assert free.take(10) == list(range(10))
    free.put([3, 4, 8])
    assert free.take(3, after=2) == [3, 4, 8]
    free.put([0])
    assert free.take(1, after=9) == [0]


def test_one_free_block_behind_the_last_is_not_there() -> None:
    free = FreeBlocks(4)
    free.take(4)
    free.put([1])
    assert free.take(1, after=3) == [1]


@pytest.mark.parametrize("room", [1, 7, 64])
def test_sequences_that_grow_side_by_side_stay_consecutive(room: int) -> None:
    free = FreeBlocks(8 * room)
    sequences = [free.take(1) for _ in range(8)]
    for _ in range(room - 1):
        for sequence in sequences:
            sequence += free.take(1, after=sequence[-1])
    assert all(_consecutive(sequence) for sequence in sequences)
    assert len(free) == 0


def test_sequences_that_arrive_while_others_grow_stay_consecutive() -> None:
    free = FreeBlocks(512)
    sequences: list[list[int]] = []
    for _ in range(8):
        sequences.append(free.take(4))
        for sequence in sequences:
            sequence += free.take(1, after=sequence[-1])
    assert all(_consecutive(sequence) for sequence in sequences)


def test_a_new_sequence_starts_in_the_middle_of_the_longest_run() -> None:
    free = FreeBlocks(100)
    free.take(100)
    free.put(range(10, 20))
    free.put(range(50, 80))
    assert free.take(4) == [63, 64, 65, 66]


def test_a_run_that_fits_exactly_is_taken_whole() -> None:
    free = FreeBlocks(100)
    free.take(100)
    free.put(range(10, 14))
    free.put(range(60, 68))
    assert free.take(8) == list(range(60, 68))


def test_neighbours_given_back_apart_become_one_run() -> None:
    free = FreeBlocks(100)
    free.take(100)
    for block in (42, 40, 43, 41):
        free.put([block])
    free.put([7])
    assert free.take(4) == [40, 41, 42, 43]


def test_the_order_of_what_is_given_back_does_not_matter() -> None:
    first, second = FreeBlocks(40), FreeBlocks(40)
    for free in (first, second):
        free.take(40)
    first.put([5, 6, 7, 20, 21, 30])
    second.put([30, 21, 7, 20, 6, 5])
    assert first.take(6) == second.take(6) == [5, 6, 7, 20, 21, 30]


def test_a_block_that_is_free_is_not_given_back() -> None:
    free = FreeBlocks(4)
    taken = free.take(2)
    free.put(taken)
    with pytest.raises(AssertionError, match="block 0 is free twice"):
        free.put([0])
    with pytest.raises(AssertionError, match="5 of 4 free blocks"):
        free.take(5)


STEPS = st.lists(st.tuples(st.sampled_from(["take", "grow", "put"]), st.integers(0, 1000)))


@given(STEPS)
def test_every_block_is_free_or_held_by_one(steps: list[tuple[str, int]]) -> None:
    free, twin = FreeBlocks(NUM_BLOCKS), FreeBlocks(NUM_BLOCKS)
    expected, held = set(range(NUM_BLOCKS)), []
    for action, number in steps:
        if action == "put" and held:
            blocks = held.pop(number % len(held))
            free.put(blocks)
            twin.put(blocks)
            expected.update(blocks)
        elif action != "put" and expected:
            after = held[number % len(held)][-1] if action == "grow" and held else None
            count = 1 + number % len(expected)
            blocks = free.take(count, after)
            assert blocks == twin.take(count, after)
            assert len(set(blocks)) == count and expected.issuperset(blocks)
            assert after is None or after + 1 not in expected or blocks[0] == after + 1
            expected.difference_update(blocks)
            held.append(blocks)
        _check(free, expected, NUM_BLOCKS)


def _longest_run(blocks: set[int]) -> int:
    longest = length = 0
    for block in range(max(blocks, default=0) + 1):
        length = length + 1 if block in blocks else 0
        longest = max(longest, length)
    return longest


def test_churn_loses_nothing_and_leaves_no_run_unseen() -> None:
    chance, free, expected = random.Random(7), FreeBlocks(600), set(range(600))
    held: list[list[int]] = []
    for _ in range(4000):
        if held and (chance.random() < 0.4 or len(free) < 40):
            blocks = held.pop(chance.randrange(len(held)))
            free.put(blocks)
            expected.update(blocks)
        elif held and chance.random() < 0.5:
            sequence = held[chance.randrange(len(held))]
            grown = free.take(1, after=sequence[-1])
            sequence += grown
            expected.difference_update(grown)
        else:
            count = chance.randint(1, 40)
            blocks = free.take(count)
            assert _consecutive(blocks) == (count <= _longest_run(expected))
            expected.difference_update(blocks)
            held.append(blocks)
    _check(free, expected, 600)
    for blocks in held:
        free.put(blocks)
    assert free.take(600) == list(range(600))
