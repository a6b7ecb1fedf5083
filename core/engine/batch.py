"""One step as tensors: what the model reads, how attention sees it, and which rows are sampled.

Shape suffixes: T tokens of the step, S slices, R rows that are sampled.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from jackfield.core.api import AttnBatch, ModelInputs, SampleBatch, SliceExtent
from jackfield.core.engine.steps import Slice, StepPlan


class Rows(NamedTuple):
    """The rows that are sampled: how, on which seats (int64), and which tokens of the step they
    follow (int64); None = all of them, one by one."""

    batch: SampleBatch
    seats_R: Tensor
    tokens_R: Tensor | None


class Batch(NamedTuple):
    """One step. rows: None if nothing is sampled."""

    inputs: ModelInputs
    attention: AttnBatch
    rows: Rows | None


class Columns(NamedTuple):
    """A step's slices on the host, one entry each; ends: of their tokens in the step."""

    seats_S: np.ndarray
    starts_S: np.ndarray
    lengths_S: np.ndarray
    ends_S: np.ndarray
    lens_S: np.ndarray

    @classmethod
    def of(cls, slices: Sequence[Slice]) -> "Columns":
        columns = np.array([part[1:4] for part in slices], dtype=np.int64)
        seats_S, starts_S, lengths_S = columns.T
        return cls(seats_S, starts_S, lengths_S, np.cumsum(lengths_S), starts_S + lengths_S)

    def query_start(self) -> np.ndarray:
        """Where each slice's tokens begin, and the end."""
        query_start_S1 = np.zeros(len(self.ends_S) + 1, dtype=np.int32)
        query_start_S1[1:] = self.ends_S
        return query_start_S1


class StepInputs(Protocol):
    """Keeps the last token of each seat, and makes each step's tensors."""

    def build(self, plan: StepPlan) -> Batch:
        """The step's tensors."""

    def feed(self, tokens_R: Tensor, rows: Rows) -> None:
        """These tokens are the last ones of their seats."""


def leading_singles(plan: StepPlan) -> int:
    """Slices of one token at the front: all that feed on the device, and short ones after them."""
    count = plan.num_decodes
    for part in plan.slices[count:]:
        if part.length != 1:
            break
        count += 1
    return count


def extents(plan: StepPlan, columns: Columns, first: int) -> tuple[SliceExtent, ...]:
    """Slices from `first` on."""
    begins = columns.ends_S[first:] - columns.lengths_S[first:]
    ends, lens = columns.ends_S[first:], columns.lens_S[first:]
    return tuple(map(SliceExtent, begins.tolist(), ends.tolist(), lens.tolist()))


def sampled(plan: StepPlan) -> list[int]:
    """Which slices sample."""
    return [index for index, part in enumerate(plan.slices) if part.samples]
