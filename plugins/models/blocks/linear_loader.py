"""Takes the weights of dense products, merges those with one input, and packs them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from jackfield.core.api.kernel import Linear
from jackfield.core.api.model import Shard, Split, Weights
from jackfield.plugins.models.blocks.quant_loader import quant_loader


class LinearLoader:
    """What the blocks of a model take their products from while it is built.

    Weights are left quantized if `linear` serves such, which `quantized_too` sees to.
    """

    def __init__(self, linear: Linear, shard: Shard, weights: Weights) -> None:
        self._linear = linear
        self._weights = weights
        self._quantized = quant_loader(linear, weights)
        self.shard = shard

    def rows(self, prefix: str, outputs: Mapping[str, int], inputs: int, bias: bool) -> Any:
        """One packed product of several, whose outputs lie side by side and are divided."""
        shapes = {f"{prefix}.{name}": (rows, inputs) for name, rows in outputs.items()}
        packed = self._quantized.rows(shapes, bias) if self._quantized else None
        if packed is not None:
            return packed
        weight = self._merged(prefix, "weight", outputs, (inputs,))
        biases = self._merged(prefix, "bias", outputs, ()) if bias else None
        return self._linear.pack(weight, biases)

    def columns(self, name: str, outputs: int, inputs: int, bias: bool) -> Any:
        """A packed product whose inputs are divided; ranks add their results up."""
        if self._quantized:
            shape, first_rank = (outputs, inputs), self.shard.rank == 0
            packed = self._quantized.columns(name, shape, bias, first_rank)
            if packed is not None:
                return packed
        weight = self._weights.take(f"{name}.weight", (outputs, inputs), Split.COLUMNS)
        biases = self._weights.take(f"{name}.bias", (outputs,)) if bias else None
        return self._linear.pack(weight, biases if self.shard.rank == 0 else None)

    def whole(self, name: str, outputs: int, inputs: int) -> Any:
        """A packed product without bias that every rank makes whole."""
        packed = self._quantized.whole(name, (outputs, inputs)) if self._quantized else None
        if packed is not None:
            return packed
        return self._linear.pack(self.matrix(f"{name}.weight", outputs, inputs), None)

    def matrix(self, name: str, rows: int, columns: int) -> Tensor:
        """A weight that every rank holds whole, as the checkpoint has it."""
        return self._weights.take(name, (rows, columns))

    def row_stack(self, prefixes: Sequence[str], outputs: Mapping[str, int], inputs: int) -> Tensor:
        """What `rows` merges, without biases, of many alike: `[len(prefixes), ...]`, not packed."""
        return _stack(
            len(prefixes), (self._merged(p, "weight", outputs, (inputs,)) for p in prefixes)
        )

    def column_stack(self, names: Sequence[str], outputs: int, inputs: int) -> Tensor:
        """What `columns` takes, without biases, of many alike: `[len(names), ...]`, not packed."""
        shape = (outputs, inputs)
        return _stack(
            len(names), (self._weights.take(f"{n}.weight", shape, Split.COLUMNS) for n in names)
        )

    def vector(self, name: str, size: int) -> Tensor:
        """A weight that every rank holds whole, such as that of a norm."""
        return self._weights.take(name, (size,))

    def exact_vector(self, name: str, size: int) -> Tensor:
        """The same in float32, whatever the model's type."""
        return self._weights.take_exact(name, (size,))

    def _merged(
        self, prefix: str, kind: str, outputs: Mapping[str, int], rest: tuple[int, ...]
    ) -> Tensor:
        parts = [
            self._weights.take(f"{prefix}.{name}.{kind}", (rows, *rest), Split.ROWS)
            for name, rows in outputs.items()
        ]
        return torch.cat(parts)


def _stack(count: int, parts: Iterator[Tensor]) -> Tensor:
    """Beside the stack there is one part at a time."""
    first = next(parts)
    stack = first.new_empty((count, *first.shape))
    stack[0].copy_(first)
    for index, part in enumerate(parts, 1):
        stack[index].copy_(part)
    return stack
