"""Any calls of an evictor in any legal order, also those that a core never makes."""

from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from jackfield.core.api import DEVICE, BlockMeta, EvictionSpace
from jackfield.core.testing.eviction_tier import check_answer, victims_of
from jackfield.core.testing.eviction_traces import MakeEvictor, content

CAPACITY = 6
metas = st.builds(
    BlockMeta,
    key=st.integers(0, 7).map(content),
    depth=st.integers(0, 3),
    priority=st.sampled_from([0, 0, -1, 1]),
    pinned=st.booleans(),
    expires=st.none() | st.sampled_from([0.0, 1.0, 5.0, 20.0, float("inf")]),
)
places = st.lists(st.integers(0, CAPACITY - 1), max_size=3)


def eviction_machine(make: MakeEvictor) -> type[RuleBasedStateMachine]:
    """A state machine on evictors that `make` makes. Laws E1, E3 and E4."""

    class Machine(RuleBasedStateMachine):
        """Blocks without parents; whoever wants can be evictable, touched, or go."""

        def __init__(self) -> None:
            super().__init__()
            self.evictor = make(EvictionSpace(DEVICE, CAPACITY))
            self.blocks: list[int] = []
            self.evictable: set[int] = set()
            self.gone: list[int] = []
            self.ids = count()
            self.now = 0.0

        def at(self, places: list[int]) -> list[int]:
            """Distinct blocks at these places."""
            chosen = [self.blocks[place % len(self.blocks)] for place in places]
            return list(dict.fromkeys(chosen))

        @rule(metas=st.lists(metas, max_size=3), again=st.booleans())
        def insert(self, metas: list[BlockMeta], again: bool) -> None:
            """New blocks, or such as were there before, as many as there is room for."""
            metas = metas[: CAPACITY - len(self.blocks)]
            back = self.gone[: len(metas)] if again else []
            del self.gone[: len(back)]
            blocks = [*back, *(next(self.ids) for _ in metas[len(back) :])]
            self.blocks += blocks
            self.evictor.insert(blocks, metas, self.now)

        @precondition(lambda self: self.blocks)
        @rule(places=places)
        def touch(self, places: list[int]) -> None:
            """Whether they can be given up or not."""
            self.evictor.touch(self.at(places), self.now)

        @precondition(lambda self: self.blocks)
        @rule(places=places, meta=metas)
        def update(self, places: list[int], meta: BlockMeta) -> None:
            """All of them to the same."""
            blocks = self.at(places)
            self.evictor.update(blocks, [meta] * len(blocks), self.now)

        @precondition(lambda self: self.blocks)
        @rule(places=places)
        def idle(self, places: list[int]) -> None:
            """Also such as are so already."""
            blocks = self.at(places)
            self.evictable.update(blocks)
            self.evictor.evictable(blocks)

        @precondition(lambda self: self.blocks)
        @rule(places=places)
        def busy(self, places: list[int]) -> None:
            """Also such as are so already."""
            blocks = self.at(places)
            self.evictable.difference_update(blocks)
            self.evictor.busy(blocks)

        @precondition(lambda self: self.blocks)
        @rule(places=places)
        def remove(self, places: list[int]) -> None:
            """Also busy ones, which the core drops when their content is void."""
            blocks = self.at(places)
            self.blocks = [block for block in self.blocks if block not in blocks]
            self.gone += blocks
            self.evictable.difference_update(blocks)
            self.evictor.remove(blocks)

        @rule(seconds=st.sampled_from([0.5, 1.0, 10.0]))
        def wait(self, seconds: float) -> None:
            """The clock only goes forwards."""
            self.now += seconds

        @rule(number=st.integers(0, CAPACITY + 1))
        def ask(self, number: int) -> None:
            """Twice, with the same answer."""
            answer = victims_of(self.evictor, number, self.now)
            check_answer(answer, number, self.evictable, set(self.blocks))
            again = victims_of(self.evictor, number, self.now)
            assert again == answer, f"E1: it said {answer} and then {again}"

    return Machine
