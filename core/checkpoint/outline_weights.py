"""Weights that have shapes and no content, and what was taken of them."""

from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jackfield.core.api import Shard, Split
from jackfield.core.api.quant import QuantWeight
from jackfield.core.checkpoint.dummy_quant_weights import WEIGHT, DummyQuantWeights
from jackfield.core.checkpoint.quant_plan import QuantPlan
from jackfield.core.checkpoint.shard_slice import shard_slice

META = torch.device("meta")


Key = tuple[str, tuple[tuple[int, int], ...]]
"""Name and part of a weight."""


class Taken(NamedTuple):
    """A rank's part of a weight. rows: of the whole one."""

    name: str
    rows: int
    shape: tuple[int, ...]
    nbytes: int

    @property
    def numel(self) -> int:
        """Entries, however many bits they have."""
        return prod(self.shape)


class OutlineWeights:
    """Implements `QuantizedWeights` on the device "meta". taken: in the order of the model; of a
    part that was taken twice, since the first was of no use, as it was taken last.

    plan: None = nothing is quantized.
    """

    def __init__(self, dtype: torch.dtype, shard: Shard, plan: QuantPlan | None) -> None:
        self.taken: dict[Key, Taken] = {}
        self._dtype, self._shard, self._plan = dtype, shard, plan
        self._quantized = plan and DummyQuantWeights(dtype, META, shard, 0, plan)
        self._known: dict[tuple[Any, ...], QuantWeight | None] = {}

    @property
    def nbytes(self) -> int:
        """Of all that was taken."""
        return sum(one.nbytes for one in self.taken.values())

    def take(
        self,
        name: str,
        shape: tuple[int, ...],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> Tensor:
        """Any tensor that is asked for."""
        key = self._key(name, shape, split, part)
        sizes = [stop - start for start, stop in key[1]]
        made = torch.empty(sizes, dtype=self._dtype, device=META)
        self._note(key, shape, made)
        return made

    def take_exact(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """In float32."""
        key = self._key(name, shape, Split.NONE, None)
        made = torch.empty(shape, dtype=torch.float32, device=META)
        self._note(key, shape, made)
        return made

    def take_quantized(
        self,
        name: str,
        shape: tuple[int, int],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> QuantWeight | None:
        """As `QuantizedWeights.take_quantized`. Parts that are alike are made once."""
        if self._plan is None or self._quantized is None:
            return None
        key = self._key(name, shape, split, part)
        kind = self._plan.scheme(name.removesuffix(WEIGHT)), shape, split, key[1]
        if kind not in self._known:
            self._known[kind] = self._quantized.take_quantized(name, shape, split, part)
        found = self._known[kind]
        if found is not None:
            self._note(key, shape, found)
        return found

    def _key(self, name: str, shape: tuple[int, ...], split: Split, part: range | None) -> Key:
        slices = shard_slice(name, shape, split, self._shard, part)
        return name, tuple((one.start, one.stop) for one in slices)

    def _note(self, key: Key, whole: tuple[int, ...], weight: Tensor | QuantWeight) -> None:
        self.taken.pop(key, None)
        self.taken[key] = Taken(key[0], whole[0], tuple(weight.shape), weight.nbytes)

    def has(self, name: str) -> bool:
        """Nothing is stored."""
        return False

    def ignore(self, pattern: str) -> None:
        """Nothing is stored."""
