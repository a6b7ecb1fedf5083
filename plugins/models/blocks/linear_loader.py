"""Takes the weights of dense products, merges those with one input, and packs them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from jackfield.core.api.kernel import Linear
from jackfield.core.api.model import Shard, Split, Weights


class LinearLoader:
    """What the blocks of a model take their products from while it is built."""

    def __init__(self, linear: Linear, shard: Shard, weights: Weights) -> None:
        self._linear = linear
        self._weights = weights
        self.shard = shard

    def rows(self, prefix: str, outputs: Mapping[str, int], inputs: int, bias: bool) -> Any:
        """One packed product of several, whose outputs lie side by side and are divided."""
        weight = self._merged(prefix, "weight", outputs, (inputs,))
        biases = self._merged(prefix, "bias", outputs, ()) if bias else None
        return self._linear.pack(weight, biases)

    def columns(self, name: str, outputs: int, inputs: int, bias: bool) -> Any:
        """A packed product whose inputs are divided; ranks add their results up."""
        weight = self._weights.take(f"{name}.weight", (outputs, inputs), Split.COLUMNS)
        biases = self._weights.take(f"{name}.bias", (outputs,)) if bias else None
        return self._linear.pack(weight, biases if self.shard.rank == 0 else None)

    def vector(self, name: str, size: int) -> Tensor:
        """A weight that every rank holds whole, such as that of a norm."""
        return self._weights.take(name, (size,))

    def _merged(
        self, prefix: str, kind: str, outputs: Mapping[str, int], rest: tuple[int, ...]
    ) -> Tensor:
        parts = [
            self._weights.take(f"{prefix}.{name}.{kind}", (rows, *rest), Split.ROWS)
            for name, rows in outputs.items()
        ]
        return torch.cat(parts)
