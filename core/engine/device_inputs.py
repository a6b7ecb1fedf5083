"""A step's tensors where a device makes them: the host tells it what is new, in one copy.

Shape suffixes: T tokens of the step, S slices, R rows that are sampled, U new blocks, P seats.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from jackfield.core.api import (
    AttnBatch,
    ModelInputs,
    SampleBatch,
    SeatState,
    SharedPrefixes,
    SliceExtent,
    StepNews,
    StepTensors,
)
from jackfield.core.engine.batch import Batch, Columns, Rows, extents, leading_singles, sampled
from jackfield.core.engine.packing import Packing
from jackfield.core.engine.prefix_groups import LatestGroups, PrefixGroups
from jackfield.core.engine.seat_tables import SeatTables
from jackfield.core.engine.staging import Staging
from jackfield.core.engine.steps import StepPlan

WIDTH = 16
"""Block tables have a multiple of so many entries."""

MakeInputs = Callable[[StepNews, SeatState, int, StepTensors], None]


class Shape(NamedTuple):
    """What the host knows of a step whose tensors are on the device."""

    num_tokens: int
    num_decodes: int
    max_query_len: int
    max_len: int
    prompts: tuple[SliceExtent, ...]
    all_greedy: bool
    filtered: bool
    grouped: bool


@dataclass(slots=True)
class Arrays:
    """All that the host tells of a step. rows_R: tokens that are sampled after, None = all.
    ring_1: the slot of a ring that its tokens go to, if they go to one."""

    seats_S: np.ndarray
    starts_S: np.ndarray
    lengths_S: np.ndarray
    query_start_S1: np.ndarray
    new_first_S: np.ndarray
    new_begin_S1: np.ndarray
    ids_begin_S: np.ndarray
    new_blocks_U: np.ndarray
    ids_T: np.ndarray
    temperature_R: np.ndarray
    top_p_R: np.ndarray
    min_p_R: np.ndarray
    top_k_R: np.ndarray
    seeds_R: np.ndarray
    positions_R: np.ndarray
    seats_R: np.ndarray
    rows_R: np.ndarray | None = None
    prompt_lens_T: np.ndarray | None = None
    ring_1: np.ndarray | None = None
    groups: PrefixGroups | None = None

    def listed(self) -> list[np.ndarray]:
        """In the order in which `views_of` takes them apart."""
        names = self.__slots__[:16]
        arrays = [getattr(self, name) for name in names]
        optional = (self.rows_R, self.prompt_lens_T, self.ring_1, *(self.groups or ()))
        return arrays + [array for array in optional if array is not None]


class Views(NamedTuple):
    """The same on the device."""

    news: StepNews
    batch: SampleBatch
    seats_R: Tensor
    rows_R: Tensor | None
    prompt_lens_T: Tensor | None
    ring_1: Tensor | None
    shared: SharedPrefixes | None


def views_of(arrays: Arrays, tensors: Sequence[Tensor], shape: Shape) -> Views:
    """What was packed from `arrays.listed()`."""
    found = iter(tensors)
    news = StepNews(*(next(found) for _ in StepNews._fields))
    temperature, top_p, min_p, top_k, seeds, positions, seats = (next(found) for _ in range(7))
    batch = SampleBatch(
        temperature, top_k, top_p, min_p, seeds, positions, shape.all_greedy, shape.filtered
    )
    rows = None if arrays.rows_R is None else next(found)
    prompt_lens = None if arrays.prompt_lens_T is None else next(found)
    ring = None if arrays.ring_1 is None else next(found)
    shared = None if arrays.groups is None else SharedPrefixes(*found)
    return Views(news, batch, seats, rows, prompt_lens, ring, shared)


class DeviceInputs:
    """State per seat on the device; what changes comes with the step that needs it.

    make: the operation `step_inputs`.
    """

    def __init__(
        self,
        tables: SeatTables,
        block_size: int,
        device: torch.device,
        make: MakeInputs,
        *,
        prompt_lens: bool,
    ) -> None:
        self._tables = tables
        self._staging = Staging(device)
        self._make = make
        self._uses_prompt_lens = prompt_lens
        self._block_size = block_size
        self._groups = LatestGroups(tables, block_size)
        self._device = device
        max_seqs, max_blocks = tables.blocks_PB.shape
        self._padding_seat = max_seqs
        # Kernels are compiled anew for strides that are no multiples of 16.
        shape = (max_seqs + 1, -(-max_blocks // WIDTH) * WIDTH)
        self._state = SeatState(
            torch.zeros(shape[0], dtype=torch.int64, device=device),
            torch.zeros(shape, dtype=torch.int32, device=device),
        )

    def feed(self, tokens_R: Tensor, rows: Rows) -> None:
        """These tokens are the last ones of their seats. May be captured."""
        self._state.last_token_P.index_copy_(0, rows.seats_R, tokens_R)

    def build(self, plan: StepPlan) -> Batch:
        """Tensors of one step, in memory of their own."""
        return self.upload(*self.news(plan))

    def news(self, plan: StepPlan) -> tuple[Arrays, Shape]:
        """What is new in a step. Called once per plan: what was told is not new any more."""
        columns = Columns.of(plan.slices)
        first_S, counts_S, found = self._tables.changed(columns.seats_S)
        ids, ids_begin_S = _known_ids(plan, columns)
        rows = sampled(plan)
        picked = slice(None) if len(rows) == len(plan.slices) else rows
        seats_R = columns.seats_S[picked]
        params = self._tables.params.of(seats_R)
        num_tokens = int(columns.ends_S[-1])
        decodes = leading_singles(plan)
        groups = self._groups.of(columns, decodes)
        arrays = Arrays(
            seats_S=columns.seats_S.astype(np.int32),
            starts_S=columns.starts_S.astype(np.int32),
            lengths_S=columns.lengths_S.astype(np.int32),
            query_start_S1=columns.query_start(),
            new_first_S=first_S.astype(np.int32),
            new_begin_S1=_begins(counts_S),
            ids_begin_S=ids_begin_S,
            new_blocks_U=np.concatenate(found) if found else np.empty(0, dtype=np.int32),
            ids_T=ids,
            temperature_R=params.temperature_R,
            top_p_R=params.top_p_R,
            min_p_R=params.min_p_R,
            top_k_R=params.top_k_R,
            seeds_R=params.seeds_R,
            positions_R=columns.lens_S[picked],
            seats_R=seats_R,
            rows_R=None if len(rows) == num_tokens else columns.ends_S[picked] - 1,
            prompt_lens_T=self._prompt_lens(columns),
            groups=groups,
        )
        shape = Shape(
            num_tokens,
            decodes,
            int(columns.lengths_S.max()),
            int(columns.lens_S.max()),
            extents(plan, columns, decodes),
            params.all_greedy,
            params.filtered,
            groups is not None,
        )
        return arrays, shape

    def upload(self, arrays: Arrays, shape: Shape) -> Batch:
        """The step's tensors from its news, in memory of their own."""
        tensors = self._staging.upload(arrays.listed())
        return self.batch(views_of(arrays, tensors, shape), shape)

    def tell(self, arrays: Arrays, shape: Shape) -> None:
        """Put the new blocks of a step into the state, ahead of the step itself."""
        self.upload(arrays, shape)
        arrays.new_blocks_U = arrays.new_blocks_U[:0]
        arrays.new_begin_S1 = np.zeros_like(arrays.new_begin_S1)

    def padded(self, arrays: Arrays, size: int) -> Arrays:
        """A step of decodes as one of `size`, with at most as many new blocks."""
        return _padded(arrays, size, self._padding_seat)

    def nothing(self, shape: Shape) -> Arrays:
        """A step of as many slices of padding as it has tokens."""
        empty, start = np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int32)
        floats, longs = np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64)
        groups = PrefixGroups(empty, empty, empty, empty) if shape.grouped else None
        lens = longs if self._uses_prompt_lens else None
        arrays = Arrays(
            empty, empty, empty, start, empty, start, empty, empty, empty, floats, floats, floats,
            empty, longs, longs, longs, None, lens, None, groups,
        )  # fmt: skip
        return self.padded(arrays, shape.num_tokens)

    def fill(self, buffer: Tensor, packing: Packing, arrays: Arrays) -> None:
        """Tell a captured step what is new."""
        self._staging.fill(buffer, packing, arrays.listed())

    def _prompt_lens(self, columns: Columns) -> np.ndarray | None:
        if not self._uses_prompt_lens:
            return None
        return np.repeat(self._tables.prompt_lens_P[columns.seats_S], columns.lengths_S)

    def batch(self, views: Views, shape: Shape) -> Batch:
        """The step's tensors from its news on the device. May be captured in a CUDA graph."""
        tensors = self._room(views.news.seats_S.shape[0], shape)
        self._make(views.news, self._state, self._block_size, tensors)
        attention = AttnBatch(
            query_start_S1=views.news.query_start_S1,
            lens_S=tensors.lens_S,
            block_tables_SB=tensors.block_tables_SB,
            slots_T=tensors.slots_T,
            num_decodes=shape.num_decodes,
            max_query_len=shape.max_query_len,
            max_len=shape.max_len,
            prompts=shape.prompts,
            shared=views.shared,
        )
        inputs = ModelInputs(
            tensors.ids_T, tensors.positions_T, views.prompt_lens_T, tensors.slots_T
        )
        rows = Rows(views.batch, views.seats_R, views.rows_R) if len(views.seats_R) else None
        return Batch(inputs, attention, rows)

    def _room(self, num_slices: int, shape: Shape) -> StepTensors:
        width = -(-shape.max_len // (self._block_size * WIDTH)) * WIDTH
        ids_T = torch.empty(shape.num_tokens, dtype=torch.int64, device=self._device)
        positions_T, slots_T = torch.empty_like(ids_T), torch.empty_like(ids_T)
        lens_S = torch.empty(num_slices, dtype=torch.int32, device=self._device)
        tables_SB = torch.empty((num_slices, width), dtype=torch.int32, device=self._device)
        return StepTensors(ids_T, positions_T, slots_T, lens_S, tables_SB)


def _known_ids(plan: StepPlan, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """The ids of all slices that do not feed on the device, and where those of each begin."""
    decodes = plan.num_decodes
    ids_begin_S = np.full(len(plan.slices), -1, dtype=np.int32)
    if decodes == len(plan.slices):
        return np.empty(0, dtype=np.int32), ids_begin_S
    first = columns.ends_S[decodes] - columns.lengths_S[decodes]
    ids_begin_S[decodes:] = columns.ends_S[decodes:] - columns.lengths_S[decodes:] - first
    known: list[int] = []
    for part in plan.slices[decodes:]:
        known.extend(part.tokens or ())
    return np.array(known, dtype=np.int32), ids_begin_S


def _begins(counts_S: np.ndarray) -> np.ndarray:
    begins_S1 = np.zeros(len(counts_S) + 1, dtype=np.int32)
    np.cumsum(counts_S, out=begins_S1[1:])
    return begins_S1


def _padded(arrays: Arrays, size: int, padding_seat: int) -> Arrays:
    count = len(arrays.seats_S)
    new = len(arrays.new_blocks_U)
    groups = arrays.groups

    def pad(array: np.ndarray, value: int = 0) -> np.ndarray:
        return _pad(array, size, value)

    begins = _pad(arrays.new_begin_S1, size + 1, new)
    starts = np.arange(size + 1, dtype=np.int32)
    lens = None if arrays.prompt_lens_T is None else pad(arrays.prompt_lens_T)
    if groups is not None:
        order = np.concatenate((groups.order_S, np.arange(count, size, dtype=np.int32)))
        groups = PrefixGroups(
            order, pad(groups.rank_S), pad(groups.size_S, 1), pad(groups.shared_S)
        )
    return Arrays(
        pad(arrays.seats_S, padding_seat), pad(arrays.starts_S), pad(arrays.lengths_S), starts,
        pad(arrays.new_first_S), begins, pad(arrays.ids_begin_S, -1), pad(arrays.new_blocks_U),
        arrays.ids_T, pad(arrays.temperature_R), pad(arrays.top_p_R, 1), pad(arrays.min_p_R),
        pad(arrays.top_k_R), pad(arrays.seeds_R), pad(arrays.positions_R),
        pad(arrays.seats_R, padding_seat), None, lens, arrays.ring_1, groups,
    )  # fmt: skip


def _pad(array: np.ndarray, size: int, value: int) -> np.ndarray:
    padded = np.full(size, value, dtype=array.dtype)
    padded[: len(array)] = array
    return padded
