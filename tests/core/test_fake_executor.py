"""Steps and copies of blocks on the fake device, with plans made by hand."""

from collections.abc import Callable, Sequence

import pytest

from jackfield.core.engine.steps import BlockUpdate, Slice, StepPlan
from jackfield.core.kv.transfers import BlockCopy
from jackfield.core.testing.by_hand import ByHand
from jackfield.core.testing.failing_executor import DeviceError, FailingExecutor
from jackfield.core.testing.fake_executor import FakeExecutor, hashed
from jackfield.core.testing.fake_memory import FakeMemory
from jackfield.core.testing.fake_tiers import FakeTiers
from jackfield.core.testing.shadow import Shadow

SIZE = 2
PROMPT = [1, 2, 3, 4]


@pytest.fixture
def executor() -> FakeExecutor:
    return FakeExecutor(SIZE)


@pytest.fixture
def hand(executor: FakeExecutor) -> ByHand:
    return ByHand(executor)


def right(prefix: Sequence[int]) -> int:
    return hashed(prefix, 0, 1000)


def test_an_answer_depends_on_all_tokens_before(hand: ByHand) -> None:
    first = hand.begin(0, PROMPT, [5, 3])
    second = hand.decode(0, BlockUpdate(0, 2, [4]))
    assert first == right(PROMPT)
    assert second == right([*PROMPT, first])


def test_a_table_that_names_blocks_in_another_order_gives_a_wrong_answer(hand: ByHand) -> None:
    hand.begin(0, PROMPT, [0, 1])
    assert hand.begin(1, [*PROMPT, 5], [1, 0, 2], start=4) != right([*PROMPT, 5])


def test_a_cached_block_can_be_read_by_the_next_owner(hand: ByHand) -> None:
    hand.begin(0, PROMPT, [0, 1])
    hand.leave(0)
    assert hand.begin(0, [1, 2, 9], [0, 2], start=2) == right([1, 2, 9])


def test_the_same_tokens_after_others_are_not_the_same(hand: ByHand) -> None:
    hand.begin(0, [7, 7, 3, 4], [0, 1])
    hand.begin(1, [1, 2], [2])
    assert hand.begin(2, [1, 2, 3, 4, 5], [2, 1, 3], start=4) != right([1, 2, 3, 4, 5])


def test_what_an_owner_left_stays_and_gives_a_wrong_answer(hand: ByHand) -> None:
    hand.begin(0, PROMPT, [0, 1])
    hand.leave(0)
    assert hand.begin(0, [8, 8, 8, 8, 9], [0, 1, 2], start=4) != right([8, 8, 8, 8, 9])


def test_a_position_that_nobody_wrote_is_not_read(hand: ByHand) -> None:
    with pytest.raises(AssertionError, match="position 0 is read from block 6 and was never"):
        hand.begin(0, [1, 2, 3], [6, 7], start=2)


def test_a_sequence_goes_on_in_the_copy_of_a_block(hand: ByHand) -> None:
    hand.begin(0, PROMPT, [0, 1])
    answer = hand.begin(1, PROMPT, [0, 2], start=3, copies=[BlockCopy(1, 2)])
    assert answer == right(PROMPT)


def test_a_missing_copy_is_noticed(hand: ByHand) -> None:
    hand.begin(0, PROMPT, [0, 1])
    with pytest.raises(AssertionError, match="position 2 is read from block 2 and was never"):
        hand.begin(1, PROMPT, [0, 2], start=3)


def test_a_copy_of_the_wrong_block_gives_a_wrong_answer(hand: ByHand) -> None:
    hand.begin(0, PROMPT, [0, 1])
    answer = hand.begin(1, PROMPT, [0, 2], start=3, copies=[BlockCopy(0, 2)])
    assert answer != right(PROMPT)


def test_copies_come_before_anything_is_computed(hand: ByHand, executor: FakeExecutor) -> None:
    hand.begin(0, PROMPT, [0, 1])
    hand.leave(0)
    hand.begin(0, [8, 8], [1], copies=[BlockCopy(1, 2)])
    shadow = Shadow(executor)
    assert shadow.content(2) == tuple(PROMPT)
    assert shadow.content(1) == (8, 8)


def test_nothing_of_the_old_content_is_left_after_a_copy(
    hand: ByHand, executor: FakeExecutor
) -> None:
    hand.begin(0, PROMPT, [0, 1])
    hand.begin(1, [1], [2])
    hand.copy((2, 1))
    assert Shadow(executor).content(1) == (1,)
    with pytest.raises(AssertionError, match="position 3 is read from block 1 and was never"):
        hand.decode(0, BlockUpdate(0, 2, [3]))


def test_copies_in_a_row_read_what_was_there_before_the_step(
    hand: ByHand, executor: FakeExecutor
) -> None:
    hand.begin(0, PROMPT, [0, 1])
    hand.copy((1, 2), (0, 1))
    assert Shadow(executor).content(2) == tuple(PROMPT)
    assert Shadow(executor).content(1) == (1, 2)


BAD_COPIES: dict[str, list[tuple[int, int]]] = {
    "does nothing": [(0, 0)],
    "depends on a copy of the same step": [(0, 5), (5, 6)],
    "is the second one to that block": [(0, 5), (1, 5)],
    "block 0 to block 4 overwrites what several tables hold": [(0, 4)],
}


@pytest.mark.parametrize("message", BAD_COPIES)
def test_copies_that_no_device_can_make_are_refused(hand: ByHand, message: str) -> None:
    hand.begin(0, PROMPT, [0, 1])
    hand.begin(1, [5, 5], [4])
    hand.begin(2, [5, 5, 6], [4, 3], start=2)
    with pytest.raises(AssertionError, match=message):
        hand.copy(*BAD_COPIES[message])


def test_a_block_of_two_tables_is_not_written(hand: ByHand) -> None:
    hand.begin(0, [1, 2, 3], [0, 1])
    with pytest.raises(AssertionError, match="the slice of 1 writes block 1 of several tables"):
        hand.begin(1, [1, 2, 3, 4], [0, 1], start=3)


def test_a_block_can_be_written_when_the_other_table_is_gone(hand: ByHand) -> None:
    hand.begin(0, [1, 2, 3], [0, 1])
    hand.leave(0)
    assert hand.begin(1, PROMPT, [0, 1], start=3) == right(PROMPT)


def skip(hand: ByHand) -> None:
    hand._ends[0] += 1
    hand.decode(0)


def repeat(hand: ByHand) -> None:
    hand._ends[0] -= 1
    hand.decode(0)


BAD_STEPS: dict[str, Callable[[ByHand], object]] = {
    "positions are not contiguous": skip,
    "positions are not contiguous ": repeat,
    "a taken seat is joined": lambda hand: hand.begin(0, [1], [9]),
    "a block table has a gap": lambda hand: hand.decode(0, BlockUpdate(0, 3, [9])),
    "the slice of 0 needs 3 blocks and has 2": lambda hand: hand.decode(0),
}


@pytest.mark.parametrize("message", BAD_STEPS)
def test_steps_that_no_device_can_run_are_refused(hand: ByHand, message: str) -> None:
    hand.begin(0, PROMPT, [0, 1])
    with pytest.raises(AssertionError, match=message.strip()):
        BAD_STEPS[message](hand)


def test_tiers_of_another_block_size_are_refused() -> None:
    with pytest.raises(AssertionError, match="blocks of another size"):
        FakeExecutor(SIZE, tiers=FakeTiers(FakeMemory(SIZE + 1)))


@pytest.mark.parametrize("where", ["forward", "collect"])
def test_what_a_broken_step_copied_to_is_garbage(where: str) -> None:
    executor = FailingExecutor(SIZE, **{where: [1]})
    hand, shadow = ByHand(executor), Shadow(executor)
    hand.begin(0, PROMPT, [0, 1])
    with pytest.raises(DeviceError):
        hand.begin(1, PROMPT, [0, 2], start=3, copies=[BlockCopy(1, 2)])
    assert shadow.content(1) == tuple(PROMPT)
    assert shadow.content(2) is None
    hand.leave(1)
    assert hand.begin(1, PROMPT, [0, 2], start=3) != right(PROMPT)


def part(seat: int, tokens: Sequence[int] | None, *, handle: int | None = None) -> Slice:
    """A position after PROMPT."""
    return Slice(seat if handle is None else handle, seat, 4, 1, tokens, 1, False)


BAD_PLANS = {
    "steps come in order": StepPlan(1),
    "a sequence has two slices": StepPlan(3, [part(0, [5]), part(0, [6])]),
    "slices that feed come first": StepPlan(3, [part(1, [5]), part(0, None)], 1),
    "num_decodes counts other slices": StepPlan(3, [part(0, None)], 0),
    "a slice runs on somebody else's seat": StepPlan(3, [part(0, None, handle=1)], 1),
    "more or fewer tokens than positions": StepPlan(3, [part(0, [5, 6])]),
}


@pytest.mark.parametrize("message", BAD_PLANS)
def test_plans_that_contradict_themselves_are_refused(
    executor: FakeExecutor, hand: ByHand, message: str
) -> None:
    hand.begin(0, PROMPT, [0, 1, 2])
    hand.begin(1, PROMPT, [3, 4, 5])
    hand.copy()
    with pytest.raises(AssertionError, match=message):
        executor.forward(BAD_PLANS[message])


def test_a_token_is_sampled_before_it_is_fed_and_before_it_is_collected(
    executor: FakeExecutor, hand: ByHand
) -> None:
    hand.begin(0, PROMPT, [0, 1])
    executor.seats[0].sampled.clear()
    ticket = executor.forward(StepPlan(1, blocks=[BlockUpdate(0, 2, [2])]))
    with pytest.raises(AssertionError, match="before it was sampled"):
        executor.collect(ticket)
    with pytest.raises(AssertionError, match="a token that was never sampled"):
        executor.forward(StepPlan(2, [part(0, None)], 1))
