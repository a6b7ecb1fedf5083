"""Products as a model packs them, by the names of their weights.

Shape suffixes: T tokens, O and I outputs and inputs of a product.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jackfield.core.api import QuantWeight
from jackfield.core.checkpoint.outline_weights import OutlineWeights, Taken

HEAD = "head"
TITLES = {"o": "out", "gate": "router"}
ENDINGS = ("_with_mqa", "_proj")
USUAL_PARENTS = ("self_attn", "attn", "mlp")


class Product(NamedTuple):
    """A dense product of a rank. title: what its weights are called, without the layer. weight: how
    a quantized one is held; None = in the model's type."""

    title: str
    inputs: int
    outputs: int
    weight: QuantWeight | None = None

    @property
    def form(self) -> str:
        """Of its weight, in a word; "" = plain."""
        return "" if self.weight is None else self.weight.kind.value

    @property
    def key(self) -> tuple[Any, ...]:
        """Products of layers that are alike have the same."""
        weight = self.weight
        held = () if weight is None else (weight.kind, weight.group, weight.rows)
        return self.title, self.inputs, self.outputs, held


class OutlineProducts:
    """Serves `linear` or `quant_matmul`: notes what is packed, and makes shapes of shapes."""

    def __init__(self, weights: OutlineWeights, vocab_size: int, products: list[Product]) -> None:
        self._weights, self._vocab_size, self._products = weights, vocab_size, products

    def unsupported(self, spec: Any, device: torch.device) -> list[str]:
        """Nothing is."""
        return []

    def capturable(self) -> bool:
        """As any operation."""
        return True

    def pack(self, weight: Any, bias_O: Tensor | None) -> Product:
        """weight: [O, I], or a `QuantWeight`."""
        outputs, inputs = weight.shape
        title = self._title(outputs, inputs)
        held = weight if isinstance(weight, QuantWeight) else None
        made = Product(title, inputs, outputs, held)
        self._products.append(made)
        return made

    def __call__(self, x_TI: Tensor, packed: Product) -> Tensor:
        """[T, I] -> [T, O]."""
        return x_TI.new_empty(len(x_TI), packed.outputs)

    def _title(self, outputs: int, inputs: int) -> str:
        """Of the weights that were taken last and make so many outputs together."""
        found: list[Taken] = []
        for taken in reversed(self._weights.taken.values()):
            if sum(one.shape[0] for one in found) >= outputs:
                break
            if taken.shape[1:] == (inputs,):
                found.append(taken)
        if any(one.rows == self._vocab_size for one in found):
            return HEAD
        return title_of([one.name for one in reversed(found)])


def title_of(names: Sequence[str]) -> str:
    """As "qkv", "gate_up" or "shared_experts gate_up"."""
    modules = [name.split(".")[:-1] for name in names]
    shorts = [_short(module[-1]) for module in modules]
    joined = ("" if all(len(one) == 1 for one in shorts) else "_").join(shorts)
    parent = modules[0][-2] if len(modules[0]) > 1 else ""
    title = TITLES.get(joined, joined)
    return title if parent in ("", *USUAL_PARENTS) else f"{parent} {title}"


def _short(module: str) -> str:
    for ending in ENDINGS:
        module = module.removesuffix(ending)
    return module
