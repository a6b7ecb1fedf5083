"""Inputs that a device makes, against a plain model of them, step after step."""

from random import Random
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from jackfield.core.api.kernel import OpSpec, SeatState, StepNews, StepTensors
from jackfield.plugins.kernels.torch_ops.step_inputs import TorchStepInputs
from jackfield.plugins.kernels.triton.step_inputs import TritonStepInputs

SEATS = 9
GARBAGE = -77


class Part(NamedTuple):
    """One slice. ids: None = the last token of its seat."""

    seat: int
    start: int
    length: int
    first: int
    blocks: list[int]
    ids: list[int] | None


PADDING = Part(SEATS, 3, 0, 0, [], None)


class Host:
    """What the host knows of the sequences, and so what the device should."""

    def __init__(self, random: Random, block_size: int, width: int) -> None:
        self.random, self.block_size, self.width = random, block_size, width
        self.lens = [0] * SEATS
        self.tables: list[list[int]] = [[] for _ in range(SEATS)]

    def part(self, seat: int, length: int, *, fed: bool = False) -> Part:
        """The next tokens of a seat; its last block is told once more, changed, now and then."""
        table, start = self.tables[seat], self.lens[seat]
        first = max(0, len(table) - self.random.choice([0, 0, 1]))
        need = -(-(start + length) // self.block_size)
        blocks = [self.random.randrange(1 << 20) for _ in range(first, need)]
        table[first:] = blocks
        self.lens[seat] += length
        ids = None if fed else [self.random.randrange(1 << 17) for _ in range(length)]
        return Part(seat, start, length, first, blocks, ids)

    def leave(self, seat: int) -> None:
        self.lens[seat], self.tables[seat] = 0, []

    def step(self) -> list[Part]:
        seats = self.random.sample(range(SEATS), self.random.randint(1, SEATS))
        room = self.block_size * self.width
        parts = []
        for seat in seats:
            if self.lens[seat] and self.random.random() < 0.2:
                self.leave(seat)
            left = room - self.lens[seat]
            if left > 0:
                length = 1 if self.random.random() < 0.5 else self.random.randint(1, min(left, 40))
                fed = length == 1 and self.random.random() < 0.7
                parts.append(self.part(seat, length, fed=fed))
        return parts or [PADDING]


class Device:
    """What outlives a step, and the step's tensors, full of garbage before it."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.state = SeatState(
            torch.randint(-(1 << 17), 1 << 17, (SEATS + 1,)),
            torch.full((SEATS + 1, width), GARBAGE, dtype=torch.int32),
        )

    def run(self, operation: Any, parts: list[Part], block_size: int, width: int) -> StepTensors:
        tokens = sum(max(part.length, 1) for part in parts)
        into = StepTensors(
            *(torch.full((tokens,), GARBAGE, dtype=torch.int64) for _ in range(3)),
            torch.full((len(parts),), GARBAGE, dtype=torch.int32),
            torch.full((len(parts), width), GARBAGE, dtype=torch.int32),
        )
        operation(news(parts), self.state, block_size, into)
        return into


def sums(counts: list[int]) -> list[int]:
    found = [0]
    for count in counts:
        found.append(found[-1] + count)
    return found


def news(parts: list[Part], spare: int = 2) -> StepNews:
    """As views of one buffer, at odd places; `spare` entries behind the new blocks and ids."""
    ids_begin, ids = [], [11]
    for part in parts:
        ids_begin.append(-1 if part.ids is None else len(ids))
        ids += part.ids or []
    if len(ids) == 1:
        ids = []
    columns = [
        [part.seat for part in parts],
        [part.start for part in parts],
        [part.length for part in parts],
        sums([max(part.length, 1) for part in parts]),
        [part.first for part in parts],
        sums([len(part.blocks) for part in parts]),
        ids_begin,
        [block for part in parts for block in part.blocks] + [GARBAGE] * spare,
        ids,
    ]
    merged = torch.tensor([0, *(x for column in columns for x in column)], dtype=torch.int32)
    return StepNews(*merged[1:].split([len(column) for column in columns]))


def expected(
    parts: list[Part], host: Host, last_token: Tensor
) -> tuple[list[int], list[int], list[int]]:
    """Ids, positions and slots."""
    ids, positions, slots = [], [], []
    for part in parts:
        if part.length == 0:
            ids, positions, slots = [*ids, 0], [*positions, 0], [*slots, -1]
            continue
        last = int(last_token[part.seat])
        ids += [max(last, -1 - last)] if part.ids is None else part.ids
        for position in range(part.start, part.start + part.length):
            block, offset = divmod(position, host.block_size)
            positions.append(position)
            slots.append(host.tables[part.seat][block] * host.block_size + offset)
    return ids, positions, slots


def check(host: Host, device: Device, parts: list[Part], into: StepTensors) -> None:
    ids, positions, slots = expected(parts, host, device.state.last_token_P)
    assert into.ids_T.tolist() == ids
    assert into.positions_T.tolist() == positions
    assert into.slots_T.tolist() == slots
    for index, part in enumerate(parts):
        length = part.start + part.length if part.length else 0
        assert into.lens_S[index] == length
        blocks = -(-length // host.block_size)
        told = host.tables[part.seat][:blocks] if blocks else []
        assert into.block_tables_SB[index, :blocks].tolist() == told
    for seat, table in enumerate(host.tables):
        assert device.state.tables_PB[seat, : len(table)].tolist() == table


@pytest.fixture(params=["triton", "torch"])
def operation(request: pytest.FixtureRequest, config: Any) -> Any:
    return TritonStepInputs(config) if request.param == "triton" else TorchStepInputs()


@pytest.mark.parametrize(
    "seed",
    [*range(4), *(pytest.param(seed, marks=pytest.mark.all_kernels) for seed in range(4, 12))],
)
def test_random_steps(operation: Any, seed: int) -> None:
    random = Random(seed)
    host, device = Host(random, random.choice([1, 3, 16]), 24), Device(24)
    for _ in range(4):
        parts = host.step()
        width = max([len(host.tables[part.seat]) for part in parts if part.length], default=1)
        parts += [PADDING] * random.choice([0, 0, 2])
        check(host, device, parts, device.run(operation, parts, host.block_size, width))


def test_decodes_between_padding(operation: Any) -> None:
    host, device = Host(Random(5), 4, 3), Device(3)
    first = [host.part(2, 7), host.part(4, 4)]
    check(host, device, first, device.run(operation, first, 4, 3))
    parts = [PADDING, host.part(2, 1, fed=True), PADDING, host.part(4, 1, fed=True), PADDING]
    check(host, device, parts, device.run(operation, parts, 4, 3))
    assert news(parts).ids_T.numel() == 0


def test_only_padding(operation: Any) -> None:
    host, device = Host(Random(5), 4, 3), Device(3)
    check(host, device, [PADDING] * 3, device.run(operation, [PADDING] * 3, 4, 3))


@pytest.mark.parametrize(("block_size", "length"), [(1, 1700), (2, 1200), (16, 1100)])
def test_long_slices_are_done_in_chunks(operation: Any, block_size: int, length: int) -> None:
    """The second slice changes blocks that the table has, and feeds many tokens."""
    host, device = Host(Random(5), block_size, 4000), Device(4000)
    parts = [host.part(1, length), host.part(3, 1), host.part(0, 900)]
    check(host, device, parts, device.run(operation, parts, block_size, 4000))
    parts = [host.part(1, 1, fed=True), PADDING, host.part(0, length)]
    check(host, device, parts, device.run(operation, parts, block_size, 4000))


def test_more_chunks_than_programs(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "jackfield.plugins.kernels.triton.step_inputs.PROGRAMS"
    monkeypatch.setattr(module, 2)
    host, device = Host(Random(5), 1, 4000), Device(4000)
    parts = [host.part(0, 2600)]
    check(host, device, parts, device.run(TritonStepInputs(config), parts, 1, 4000))


def test_a_table_entry_changes(operation: Any) -> None:
    """A block that was replaced, as one is before it is written to while others read it."""
    host, device = Host(Random(5), 4, 8), Device(8)
    parts = [host.part(6, 10)]
    device.run(operation, parts, 4, 8)
    host.tables[6][1] = 71
    host.lens[6] = 12
    parts = [Part(6, 10, 2, 1, [71], [1, 2])]
    check(host, device, parts, device.run(operation, parts, 4, 8))


def test_news_are_not_read_back(
    config: Any, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU some other program may not have put them into the table yet."""
    if device.type != "cpu":
        pytest.skip("only what is interpreted can be changed")
    module = "jackfield.plugins.kernels.triton.step_inputs_kernel._keep_news"
    monkeypatch.setattr(module, lambda *arguments: None)
    host, held = Host(Random(5), 4, 8), Device(8)
    parts = [host.part(6, 10), host.part(2, 3)]
    into = held.run(TritonStepInputs(config), parts, 4, 8)
    assert into.slots_T.tolist() == expected(parts, host, held.state.last_token_P)[2]
    assert into.block_tables_SB[0, :3].tolist() == host.tables[6]


def test_slots_beyond_32_bits(operation: Any) -> None:
    host, device = Host(Random(5), 16, 2), Device(2)
    parts = [Part(0, 0, 3, 0, [(1 << 30) + 5], [1, 2, 3])]
    host.tables[0], host.lens[0] = [(1 << 30) + 5], 3
    into = device.run(operation, parts, 16, 2)
    check(host, device, parts, into)
    assert int(into.slots_T[-1]) == ((1 << 30) + 5) * 16 + 2


def test_torch_leaves_it_to_the_host_of_a_cpu() -> None:
    spec = OpSpec(torch.float32, 64, 16, 100)
    assert "host" in TorchStepInputs().unsupported(spec, torch.device("cpu"))[0]
    assert TorchStepInputs().unsupported(spec, torch.device("cuda")) == []
    assert TorchStepInputs().capturable()
