"""A step's tensors made by a device equal those that the host makes, also padded and shared."""

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from jackfield.core.api import SamplingParams
from jackfield.core.engine.batch import Batch, Columns
from jackfield.core.engine.device_inputs import Arrays, DeviceInputs, Shape, views_of
from jackfield.core.engine.host_inputs import HostInputs
from jackfield.core.engine.packing import ALIGNMENT, Packing
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.prefix_groups import LatestGroups, prefix_groups
from jackfield.core.engine.seat_tables import SeatTables
from jackfield.core.engine.steps import BlockUpdate, Join, Slice, StepPlan
from jackfield.plugins.kernels.torch_ops.step_inputs import TorchStepInputs

CPU = torch.device("cpu")
SIZE = 4
LIMITS = Limits(max_tokens=64, max_seqs=6, max_model_len=50)


class Life:
    """Sequences that come, are computed in pieces, decode and go; one plan after another."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.number = 0
        self.lens: dict[int, int] = {}
        self.prompts: dict[int, list[int]] = {}
        self.blocks: dict[int, int] = {}

    def plan(self) -> StepPlan:
        plan = StepPlan(self.number)
        self.number += 1
        for seat in [seat for seat in self.lens if self.random.random() < 0.1]:
            plan.leaves.append(seat)
            del self.lens[seat]
        if self.random.random() < 0.5:
            self._join(plan)
        decoding = [s for s, length in self.lens.items() if length >= len(self.prompts[s])]
        for seat in decoding:
            if self.lens[seat] < LIMITS.max_model_len and self.random.random() < 0.9:
                plan.slices.append(self._slice(plan, seat, 1, None))
        plan.num_decodes = len(plan.slices)
        for seat in set(self.lens) - set(decoding):
            left = len(self.prompts[seat]) - self.lens[seat]
            count = self.random.randint(1, left)
            start = self.lens[seat]
            plan.slices.append(
                self._slice(plan, seat, count, self.prompts[seat][start : start + count])
            )
        return plan

    def _join(self, plan: StepPlan) -> None:
        free = [seat for seat in range(LIMITS.max_seqs) if seat not in self.lens]
        if not free:
            return
        seat = self.random.choice(free)
        prompt = [self.random.randrange(1000) for _ in range(self.random.randint(1, 30))]
        params = SamplingParams(
            temperature=self.random.choice([0.0, 0.7]), top_k=self.random.choice([0, 5]),
            top_p=self.random.choice([1.0, 0.5]), min_p=self.random.choice([0.0, 0.2]),
        )  # fmt: skip
        seed = self.random.getrandbits(63)
        plan.joins.append(Join(seat, seat, params, seed, prompt, (), frozenset(), ()))
        self.lens[seat], self.prompts[seat], self.blocks[seat] = 0, prompt, 0

    def _slice(
        self, plan: StepPlan, seat: int, count: int, tokens: Sequence[int] | None
    ) -> Slice:
        start = self.lens[seat]
        self.lens[seat] = end = start + count
        while self.blocks[seat] * SIZE < end:
            new = [self.random.randrange(500) for _ in range(self.random.randint(1, 2))]
            new = new[: -(-LIMITS.max_model_len // SIZE) - self.blocks[seat]]
            plan.blocks.append(BlockUpdate(seat, self.blocks[seat], new))
            self.blocks[seat] += len(new)
        done = end >= len(self.prompts[seat])
        return Slice(seat, seat, start, count, tokens, int(done), False)


def both(prompt_lens: bool) -> tuple[SeatTables, SeatTables, HostInputs, DeviceInputs]:
    one, other = SeatTables(LIMITS, SIZE), SeatTables(LIMITS, SIZE)
    host = HostInputs(one, SIZE, CPU, prompt_lens=prompt_lens)
    device = DeviceInputs(other, SIZE, CPU, TorchStepInputs(), prompt_lens=prompt_lens)
    return one, other, host, device


def equal(found: Any, wanted: Any) -> None:
    if isinstance(wanted, torch.Tensor):
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted), (found, wanted)
    else:
        assert found == wanted


def same(found: Batch, wanted: Batch) -> None:
    for name, value in wanted.inputs._asdict().items():
        if name != "slots_T":
            equal(getattr(found.inputs, name), value)
    assert wanted.inputs.slots_T is None, "nothing is padded on the host"
    equal(found.inputs.slots_T, found.attention.slots_T)
    for name, value in wanted.attention._asdict().items():
        if name != "block_tables_SB":
            equal(getattr(found.attention, name), value)
    _same_tables(found, wanted, len(wanted.attention.lens_S))
    assert (found.rows is None) == (wanted.rows is None)
    if wanted.rows is not None and found.rows is not None:
        equal(found.rows.seats_R, wanted.rows.seats_R)
        equal(found.rows.tokens_R, wanted.rows.tokens_R)
        for name, value in wanted.rows.batch._asdict().items():
            equal(getattr(found.rows.batch, name), value)


def _same_tables(found: Batch, wanted: Batch, count: int) -> None:
    for row in range(count):
        used = -(-int(wanted.attention.lens_S[row]) // SIZE)
        equal(
            found.attention.block_tables_SB[row, :used],
            wanted.attention.block_tables_SB[row, :used],
        )


def feed(host: HostInputs, device: DeviceInputs, one: Batch, other: Batch, step: int) -> None:
    if one.rows is None or other.rows is None:
        return
    tokens = torch.arange(len(one.rows.seats_R)) + 100 * step
    host.feed(tokens, one.rows)
    # Marked as the sampler marks a token whose logit is no number.
    device.feed(torch.where(tokens % 3 == 0, -1 - tokens, tokens), other.rows)


@pytest.mark.parametrize("seed", range(12))
def test_whole_lives(seed: int) -> None:
    life = Life(seed)
    one, other, host, device = both(prompt_lens=seed % 2 == 0)
    for step in range(60):
        plan = life.plan()
        one.update(plan)
        other.update(plan)
        if plan.slices:
            batches = host.build(plan), device.build(plan)
            same(batches[1], batches[0])
            feed(host, device, *batches, step)


@pytest.mark.parametrize("seed", range(12))
def test_steps_of_decodes_in_a_graphs_memory(seed: int) -> None:
    """Padded to sizes, told in one buffer, as what a graph captured sees them."""
    life = Life(100 + seed)
    one, other, host, device = both(prompt_lens=seed % 2 == 0)
    padded = 0
    for step in range(120):
        plan = life.plan()
        one.update(plan)
        other.update(plan)
        if not plan.slices:
            continue
        wanted = host.build(plan)
        if plan.num_decodes < len(plan.slices):
            found = device.build(plan)
        else:
            padded += 1
            found = replayed(device, plan, size=len(plan.slices) + step % 3)
            count = len(plan.slices)
            _is_padding(found, count)
            _same_tables(found, wanted, count)
            for name in ("lens_S", "slots_T"):
                equal(getattr(found.attention, name)[:count], getattr(wanted.attention, name))
            equal(found.inputs.ids_T[:count], wanted.inputs.ids_T)
            equal(found.inputs.positions_T[:count], wanted.inputs.positions_T)
            assert found.rows is not None and wanted.rows is not None
            for mine, theirs in zip(found.rows.batch[:6], wanted.rows.batch[:6], strict=True):
                equal(mine[:count], theirs)
            found = found._replace(rows=found.rows._replace(seats_R=found.rows.seats_R[:count]))
        feed(host, device, wanted, found, step)
    assert padded > 3


def replayed(device: DeviceInputs, plan: StepPlan, size: int) -> Batch:
    arrays, shape = device.news(plan)
    if len(arrays.new_blocks_U) > size:
        device.tell(arrays, shape)
    static = Shape(size, size, 1, LIMITS.max_model_len, (), False, True, False)
    nothing = device.nothing(static)
    packing = Packing.of(nothing.listed())
    news = torch.empty(packing.size, dtype=torch.uint8)
    views = views_of(nothing, packing.views(news), static)
    device.fill(news, packing, device.padded(arrays, size))
    return device.batch(views, static)


def _is_padding(found: Batch, count: int) -> None:
    rest = slice(count, None)
    assert (found.attention.slots_T[rest] == -1).all()
    for tensor in (found.attention.lens_S, found.inputs.ids_T, found.inputs.positions_T):
        assert (tensor[rest] == 0).all()
    assert found.rows is not None
    assert (found.rows.seats_R[rest] == LIMITS.max_seqs).all()
    assert (found.rows.batch.temperature_R[rest] == 0).all()
    starts = found.attention.query_start_S1
    equal(starts, torch.arange(len(starts), dtype=torch.int32))


def test_every_array_begins_where_kernels_want_it() -> None:
    arrays = [np.arange(n, dtype=t) for n, t in ((3, np.int32), (0, np.int64), (5, np.float32))]
    packing = Packing.of(arrays)
    assert all(part.begin % ALIGNMENT == 0 for part in packing.parts)
    memory = np.full(packing.size, 255, dtype=np.uint8)
    packing.fill(memory, arrays)
    for view, array in zip(packing.views(torch.from_numpy(memory)), arrays, strict=True):
        assert view.numpy().tolist() == array.tolist()


def groups_of(tables: list[list[int]], lens: list[int]) -> Any:
    blocks = np.zeros((len(tables), 200), dtype=np.int32)
    for seat, row in enumerate(tables):
        blocks[seat, : len(row)] = row
    slices = [Slice(i, i, n - 1, 1, None, 1, False) for i, n in enumerate(lens)]
    return prefix_groups(blocks, Columns.of(slices), len(slices), 16)


def test_groups_of_equal_beginnings() -> None:
    common, other = list(range(1000, 1040)), list(range(2000, 2090))
    private = [[9000 + 100 * i + j for j in range(60)] for i in range(9)]
    tables = [common + private[i] for i in range(5)]  # 0..4 share 640 positions
    tables += [private[5] + private[6]]  # 5 shares nothing
    tables += [other[: 80 + i] + private[7] for i in range(4)]  # 6..9 share 80 blocks
    lens = [700, 900, 641, 1000, 656, 900, 1290, 1300, 1350, 1400]
    order = [9, 0, 5, 1, 6, 7, 2, 8, 3, 4]  # in the step they stand in any order
    found = groups_of([tables[i] for i in order], [lens[i] for i in order])
    by_row = {}
    for place, row in enumerate(found.order_S):
        by_row[order[row]] = (found.size_S[place], found.shared_S[place])
    assert [by_row[i] for i in range(5)] == [(5, 640)] * 5
    assert by_row[5] == (1, 0)
    assert [by_row[i] for i in range(6, 10)] == [(4, 1280)] * 4
    for place, rank in enumerate(found.rank_S):
        assert rank == 0 or found.rank_S[place - 1] == rank - 1, "members stand side by side"
    assert sorted(found.order_S) == list(range(10))


def test_groups_are_found_anew_when_somebody_comes_or_goes() -> None:
    """In between they are those of the step before."""
    limits = Limits(max_tokens=64, max_seqs=8, max_model_len=3200)
    tables = SeatTables(limits, 16)
    groups = LatestGroups(tables, 16)
    common = list(range(1, 33))

    def join(seat: int, first: list[int]) -> StepPlan:
        entry = Join(seat, seat, SamplingParams(), 0, [1], (), frozenset(), ())
        own = [1000 * (seat + 1) + place for place in range(40)]
        return StepPlan(0, joins=[entry], blocks=[BlockUpdate(seat, 0, first + own)])

    def found(seats: Sequence[int], length: int) -> Any:
        slices = [Slice(seat, seat, length - 1, 1, None, 1, False) for seat in seats]
        return groups.of(Columns.of(slices), len(slices))

    for seat in range(5):
        tables.update(join(seat, common))
    assert found(range(5), 512) is None, "none is long enough"
    first = found(range(5), 600)
    assert first.size_S.tolist() == [5] * 5 and first.shared_S.tolist() == [512] * 5
    tables.update(StepPlan(1, blocks=[BlockUpdate(0, 72, [9999])]))
    assert found(range(5), 601) is first
    assert found(range(4), 602).size_S.tolist() == [4] * 4
    assert found([4, 3, 2, 1], 602).order_S.tolist() == [0, 1, 2, 3]
    tables.update(StepPlan(2, leaves=[1], joins=join(1, []).joins, blocks=join(1, []).blocks))
    assert found([4, 3, 2, 1], 603) is None, "another sequence sits on that seat"
    assert sorted(found(range(5), 604).size_S.tolist()) == [1, 4, 4, 4, 4]


def test_the_last_position_is_nobodys_in_common() -> None:
    same_table = list(range(1, 65))
    found = groups_of([same_table] * 4, [1024, 1024, 1024, 1024])
    assert set(found.shared_S) == {63 * 16}


@pytest.mark.parametrize(
    ("tables", "lens"),
    [
        ([list(range(64))] * 3, [1000] * 3),  # too few
        ([list(range(31))] * 8, [490] * 8),  # too short
        ([[i * 100 + j for j in range(64)] for i in range(8)], [1000] * 8),  # nothing in common
        ([[i, *range(1000, 1064)] for i in range(8)], [1000] * 8),  # not from the first on
    ],
)
def test_no_group_is_worth_it(tables: list[list[int]], lens: list[int]) -> None:
    found = groups_of(tables, lens)
    assert found is None or not found.shared_S.any()


def test_arrays_are_listed_as_they_are_taken_apart() -> None:
    _, other, _, device = both(prompt_lens=True)
    life = Life(3)
    plan = life.plan()
    while not any(part.samples for part in plan.slices):
        other.update(plan)
        plan = life.plan()
    other.update(plan)
    arrays, shape = device.news(plan)
    assert isinstance(arrays, Arrays)
    tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays.listed()]
    views = views_of(arrays, tensors, shape)
    for name in views.news._fields:
        assert getattr(views.news, name).tolist() == getattr(arrays, name).tolist()
    for name in views.batch._fields[:6]:
        assert getattr(views.batch, name).tolist() == getattr(arrays, name).tolist()
