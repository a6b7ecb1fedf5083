"""Takes the weights of dense products, merges those with one input, and packs them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from jackfield.core.api.kernel import Linear
from jackfield.core.api.model import Shard, Split, Weights
from jackfield.core.api.quant_experts import QuantExperts
from jackfield.plugins.models.blocks.quant_experts import quant_expert_loader
from jackfield.plugins.models.blocks.quant_loader import quant_loader
from jackfield.plugins.models.blocks.share import Share


class LinearLoader:
    """What the blocks of a model take their products from while it is built.

    Weights are left quantized if `linear` serves such, which `quantized_too` sees to.
    quant_experts: takes experts whose weights stay quantized; None = none do.
    """

    def __init__(
        self,
        linear: Linear,
        shard: Shard,
        weights: Weights,
        quant_experts: QuantExperts | None = None,
    ) -> None:
        self._linear = linear
        self._weights = weights
        self._quantized = quant_loader(linear, weights)
        self.quant_experts = quant_expert_loader(quant_experts, weights)
        self.shard = shard

    def rows(self, prefix: str, outputs: Mapping[str, Share], inputs: int, bias: bool) -> Any:
        """One packed product of several, whose outputs lie side by side."""
        named = {f"{prefix}.{name}": share for name, share in outputs.items()}
        packed = self._quantized.rows(named, inputs, bias) if self._quantized else None
        if packed is not None:
            return packed
        weight = self._merged(named, "weight", (inputs,))
        return self._linear.pack(weight, self._merged(named, "bias", ()) if bias else None)

    def columns(self, name: str, outputs: int, inputs: Share, bias: bool) -> Any:
        """A packed product whose inputs are divided; ranks add their results up, so that one of
        them has the bias."""
        if self._quantized:
            first_rank = self.shard.rank == 0
            packed = self._quantized.columns(name, outputs, inputs, bias, first_rank)
            if packed is not None:
                return packed
        weight = self._columns(name, outputs, inputs)
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

    def row_matrix(self, name: str, rows: Share, columns: int) -> Tensor:
        """This rank's rows of a weight, as the checkpoint has them."""
        return self._weights.take(name, (rows.total, columns), *rows.split(Split.ROWS))

    def row_stack(
        self, prefixes: Sequence[str], outputs: Mapping[str, Share], inputs: int
    ) -> Tensor:
        """What `rows` merges, without biases, of many alike: `[len(prefixes), ...]`, not packed."""
        every = [{f"{p}.{name}": share for name, share in outputs.items()} for p in prefixes]
        return _stack(len(every), (self._merged(named, "weight", (inputs,)) for named in every))

    def column_stack(self, names: Sequence[str], outputs: int, inputs: Share) -> Tensor:
        """What `columns` takes, without biases, of many alike: `[len(names), ...]`, not packed."""
        return _stack(len(names), (self._columns(name, outputs, inputs) for name in names))

    def vector(self, name: str, size: int) -> Tensor:
        """A weight that every rank holds whole, such as that of a norm."""
        return self._weights.take(name, (size,))

    def exact_vector(self, name: str, size: int) -> Tensor:
        """The same in float32, whatever the model's type."""
        return self._weights.take_exact(name, (size,))

    def _columns(self, name: str, outputs: int, inputs: Share) -> Tensor:
        shape, split = (outputs, inputs.total), inputs.split(Split.COLUMNS)
        return self._weights.take(f"{name}.weight", shape, *split)

    def _merged(self, named: Mapping[str, Share], kind: str, rest: tuple[int, ...]) -> Tensor:
        parts = [
            self._weights.take(f"{name}.{kind}", (share.total, *rest), *share.split(Split.ROWS))
            for name, share in named.items()
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
