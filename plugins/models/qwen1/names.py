"""The tensors of Qwen1 under the names that the blocks of the Llama family ask for."""

import re

from torch import Tensor

from jackfield.core.api.model import Shard, Split, Weights
from jackfield.core.api.quant import QuantizedWeights, QuantWeight

TOP = {
    "model.embed_tokens.weight": "transformer.wte.weight",
    "model.norm.weight": "transformer.ln_f.weight",
}
MODULES = {
    "input_layernorm": "ln_1",
    "post_attention_layernorm": "ln_2",
    "self_attn.o_proj": "attn.c_proj",
    "mlp.gate_proj": "mlp.w2",
    "mlp.up_proj": "mlp.w1",
    "mlp.down_proj": "mlp.c_proj",
}
MERGED = {"self_attn.q_proj": 0, "self_attn.k_proj": 1, "self_attn.v_proj": 2}
"""Which third of `attn.c_attn` each product is."""
LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.(\w+)")


class Qwen1Weights:
    """Implements `Weights` on those of a Qwen1 checkpoint.

    Queries, keys and values are one tensor there, which is held until all three were taken.
    """

    def __init__(self, weights: Weights, shard: Shard) -> None:
        self._weights, self._shard = weights, shard
        self._merged: tuple[str, Tensor] | None = None

    def take(
        self,
        name: str,
        shape: tuple[int, ...],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> Tensor:
        """As `Weights.take`."""
        own, third = translated(name)
        if third is None:
            return self._weights.take(own, shape, split, part)
        if self._merged is None or self._merged[0] != own:
            self._merged = own, self._weights.take(own, (3 * shape[0], *shape[1:]))
        rows = self._rows(third, shape[0], split, part)
        taken = self._merged[1][rows].clone()
        self._merged = self._merged if third < 2 else None
        return taken

    def take_exact(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """As `Weights.take_exact`; of none that is merged."""
        own, third = translated(name)
        assert third is None, f"{name} is a part of {own}"
        return self._weights.take_exact(own, shape)

    def has(self, name: str) -> bool:
        """As `Weights.has`."""
        return self._weights.has(translated(name)[0])

    def ignore(self, pattern: str) -> None:
        """As `Weights.ignore`; the pattern is one of names in the checkpoint."""
        self._weights.ignore(pattern)

    def _rows(self, third: int, rows: int, split: Split, part: range | None) -> slice:
        assert split is not Split.COLUMNS, "queries, keys and values are divided by heads"
        if split is Split.NONE:
            part = range(rows)
        elif part is None:
            part = self._shard.part(rows)
        return slice(third * rows + part.start, third * rows + part.stop)


class QuantizedQwen1Weights(Qwen1Weights):
    """The same of a checkpoint with quantized weights."""

    def __init__(self, weights: QuantizedWeights, shard: Shard) -> None:
        super().__init__(weights, shard)
        self._quantized = weights
        self._whole: tuple[str, QuantWeight | None] | None = None

    def take_quantized(
        self,
        name: str,
        shape: tuple[int, int],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> QuantWeight | None:
        """As `QuantizedWeights.take_quantized`."""
        own, third = translated(name)
        if third is None:
            return self._quantized.take_quantized(own, shape, split, part)
        if self._whole is None or self._whole[0] != own:
            self._whole = own, self._quantized.take_quantized(own, (3 * shape[0], shape[1]))
        whole, rows = self._whole[1], self._rows(third, shape[0], split, part)
        self._whole = self._whole if third < 2 else None
        return None if whole is None else whole.block(rows.start, rows.stop)


def qwen1_weights(weights: Weights, shard: Shard) -> Qwen1Weights:
    """What fits the weights."""
    if isinstance(weights, QuantizedWeights):
        return QuantizedQwen1Weights(weights, shard)
    return Qwen1Weights(weights, shard)


def translated(name: str) -> tuple[str, int | None]:
    """The name in the checkpoint, and which third of that tensor it is; None = all of it."""
    found = LAYER.fullmatch(name)
    if found is None:
        return TOP.get(name, name), None
    layer, module, kind = f"transformer.h.{found[1]}", found[2], found[3]
    if module in MERGED:
        return f"{layer}.attn.c_attn.{kind}", MERGED[module]
    return f"{layer}.{MODULES.get(module, module)}.{kind}", None
