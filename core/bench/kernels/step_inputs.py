"""The inputs of a step of decodes, made on the device; one in sixteen has a new block."""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from jackfield.core.api import SeatState, StepNews, StepTensors
from jackfield.core.bench.kernels.case import Case, Work
from jackfield.core.bench.kernels.subject import KernelSubject
from jackfield.core.bench.unloaded import BLOCK_SIZE

BLOCKS = 256
"""Of the longest sequence."""
INT32 = 4


def step_input_cases(subject: KernelSubject) -> Iterator[Case]:
    """At every number of sequences; none if nobody serves it."""
    owner = subject.plain.owners.get("step_inputs")
    for seats in subject.sizes.rows if owner is not None else ():
        yield Case("step_inputs", str(seats), owner or "", partial(_inputs, subject, seats))


def _inputs(subject: KernelSubject, seats: int) -> Work:
    operation, device = subject.plain.operations.step_inputs, subject.device
    assert operation is not None
    news = news_of(seats, device)

    def make() -> Callable[[], object]:
        state, into = state_of(seats, device), room_for(seats, device)
        return lambda: operation(news, state, BLOCK_SIZE, into)

    size = 2 * seats * BLOCKS * INT32
    return subject.work(make, size, capturable=operation.capturable(), bytes=size)


def news_of(seats: int, device: torch.device) -> StepNews:
    """One more token for each."""

    def ints(values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    # Sequences of 16 lengths, so that the last token of one in 16 is the first of its block.
    starts = [(BLOCKS // 2) * BLOCK_SIZE + seat % BLOCK_SIZE for seat in range(seats)]
    new = [start % BLOCK_SIZE == 0 for start in starts]
    begins = [sum(new[:seat]) for seat in range(seats + 1)]
    return StepNews(
        seats_S=ints(list(range(seats))),
        starts_S=ints(starts),
        lengths_S=ints([1] * seats),
        query_start_S1=ints(list(range(seats + 1))),
        new_first_S=ints([start // BLOCK_SIZE for start in starts]),
        new_begin_S1=ints(begins),
        ids_begin_S=ints([-1] * seats),
        new_blocks_U=ints(list(range(begins[-1]))),
        ids_T=ints([0]),
    )


def state_of(seats: int, device: torch.device) -> SeatState:
    """Seats with any blocks, and one for padding."""
    tables = torch.randint(0, seats * BLOCKS, (seats + 1, BLOCKS), device=device)
    last = torch.zeros(seats + 1, dtype=torch.int64, device=device)
    return SeatState(last, tables.to(torch.int32))


def room_for(seats: int, device: torch.device) -> StepTensors:
    """Of a step of so many decodes."""
    ids, positions, slots = torch.zeros(3, seats, dtype=torch.int64, device=device)
    lens = torch.zeros(seats, dtype=torch.int32, device=device)
    tables = torch.zeros(seats, BLOCKS, dtype=torch.int32, device=device)
    return StepTensors(ids, positions, slots, lens, tables)
