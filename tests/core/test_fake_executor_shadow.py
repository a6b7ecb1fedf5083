"""The shadow of a fake device: what it finds, and what it does not overlook."""

import pytest

from jackfield.core.engine.steps import BlockUpdate
from jackfield.core.kv.transfers import Transfer, TransferKind
from jackfield.core.testing.by_hand import ByHand
from jackfield.core.testing.fake_executor import FakeExecutor
from jackfield.core.testing.shadow import Place, Shadow

SIZE = 2
PROMPT = [1, 2, 3, 4]


class Scene:
    """Blocks 0 and 1 hold PROMPT, of seat 0, and block 2 its first answer; slot 6 holds block 1."""

    def __init__(self) -> None:
        self.executor = FakeExecutor(SIZE)
        self.hand = ByHand(self.executor)
        self.shadow = Shadow(self.executor)
        self.token = self.hand.begin(0, PROMPT, [0, 1])
        self.hand.decode(0, BlockUpdate(0, 2, [2]))
        self.executor.transfer([Transfer(0, TransferKind.STORE, "host", 6, 1)])
        self.executor.transferred()

    def check(self) -> None:
        self.shadow.check_tables(self.executor.seats.values())


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_block_stands_for_all_tokens_up_to_its_end(scene: Scene) -> None:
    assert scene.shadow.content(0) == (1, 2)
    assert scene.shadow.content(1) == (1, 2, 3, 4)
    assert scene.shadow.content(2) == (1, 2, 3, 4, scene.token)
    assert scene.shadow.slot_content("host", 6) == (1, 2, 3, 4)


def test_what_nobody_wrote_stands_for_nothing(scene: Scene) -> None:
    assert scene.shadow.content(7) is None
    assert scene.shadow.slot_content("host", 7) is None
    assert scene.shadow.slot_content("disk", 6) is None


def test_what_an_owner_before_left_is_not_the_content(scene: Scene) -> None:
    scene.hand.leave(0)
    scene.hand.begin(0, [1, 2, 9], [0, 1], start=2)
    assert scene.shadow.content(1) == (1, 2, 9)


def test_tables_that_are_right_pass(scene: Scene) -> None:
    scene.hand.begin(1, [*PROMPT, 5], [0, 1, 3], start=4)
    scene.hand.decode(1)
    scene.check()


def test_a_seat_without_a_step_passes(scene: Scene) -> None:
    scene.executor.seats[0].end = None
    scene.check()


def test_a_block_that_was_overwritten_is_found(scene: Scene) -> None:
    scene.hand.copy((0, 1))
    with pytest.raises(AssertionError, match=r"position 2 of 0 is in block 1, which holds the end"):
        scene.check()


def test_a_block_that_was_spoilt_is_found(scene: Scene) -> None:
    scene.executor.memory.put(1, scene.executor.memory.poison())
    with pytest.raises(AssertionError, match="block 1, which holds nothing sensible and should"):
        scene.check()


def test_a_block_that_was_lost_is_found(scene: Scene) -> None:
    scene.executor.memory.put(2, {})
    with pytest.raises(AssertionError, match="position 4 of 0 is in block 2"):
        scene.check()


def test_a_shared_block_with_other_tokens_is_found(scene: Scene) -> None:
    scene.hand.begin(1, [1, 9, 5], [0, 3], start=2)
    with pytest.raises(AssertionError, match="position 1 of 1 is in block 0"):
        scene.check()


def test_the_same_tokens_after_others_are_found(scene: Scene) -> None:
    scene.hand.begin(1, [8, 8], [3])
    scene.hand.begin(2, [8, 8, 3, 4, 5], [3, 1, 4], start=4)
    with pytest.raises(AssertionError, match="position 2 of 2 is in block 1"):
        scene.check()


def test_more_positions_than_tokens_are_found(scene: Scene) -> None:
    scene.executor.seats[0].end = 99
    with pytest.raises(AssertionError, match="0 has computed more than its tokens"):
        scene.check()


def test_records_that_are_right_pass(scene: Scene) -> None:
    scene.shadow.check_entries(
        [(0, [1, 2]), (1, [3, 4]), (2, [scene.token]), (("host", 6), [3, 4])]
    )
    scene.shadow.check_prefixes(
        [(0, [1, 2]), (1, PROMPT), (2, [*PROMPT, scene.token]), (("host", 6), PROMPT)]
    )
    scene.shadow.check_entries([(0, [1])])
    scene.shadow.check_prefixes([(1, [1, 2, 3])])


WRONG: list[tuple[Place, list[int]]] = [
    (0, [1, 3]),
    (0, [2]),
    (0, [1, 2, 3]),
    (2, [5, 5]),
    (7, [1, 2]),
    (("host", 6), [1, 2]),
    (("host", 5), [3, 4]),
    (("disk", 6), [3, 4]),
]


@pytest.mark.parametrize(("place", "tokens"), WRONG)
def test_records_that_are_wrong_are_found(scene: Scene, place: Place, tokens: list[int]) -> None:
    name = f"block {place}" if isinstance(place, int) else f"slot {place[1]} of {place[0]}"
    with pytest.raises(AssertionError, match=f"{name} is recorded with"):
        scene.shadow.check_entries([(0, [1, 2]), (place, tokens)])


@pytest.mark.parametrize("prefix", [[9, 9, 3, 4], [3, 4], [1, 2, 3, 4, 1, 2], [1, 2, 4, 3]])
def test_prefixes_that_are_wrong_are_found(scene: Scene, prefix: list[int]) -> None:
    for place in (1, ("host", 6)):
        with pytest.raises(AssertionError, match="is recorded as the end of"):
            scene.shadow.check_prefixes([(place, prefix)])


def test_a_record_of_a_block_that_is_being_loaded_is_wrong(scene: Scene) -> None:
    scene.executor.memory.put(0, scene.executor.memory.poison())
    with pytest.raises(AssertionError, match="block 0 is recorded with"):
        scene.shadow.check_entries([(0, [1, 2])])
    with pytest.raises(AssertionError, match="block 0 is recorded as"):
        scene.shadow.check_prefixes([(0, [-1])])
