"""Takes the quantized weights of products, and merges those with one input where they are alike."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from jackfield.core.api.kernel import Linear
from jackfield.core.api.model import Split, Weights
from jackfield.core.api.quant import QuantizedWeights, QuantWeight
from jackfield.plugins.models.blocks.quant_linear import QuantLinear, SideBySide
from jackfield.plugins.models.blocks.quant_merge import merge
from jackfield.plugins.models.blocks.share import Share

Shares = Mapping[str, Share]
"""By the path of a module, its outputs."""


class QuantLoader:
    """Each method gives None, and has taken nothing, where no weight is quantized."""

    def __init__(self, linear: QuantLinear, weights: QuantizedWeights) -> None:
        self._linear, self._weights = linear, weights

    def columns(self, name: str, outputs: int, inputs: Share, bias: bool, first_rank: bool) -> Any:
        """As `LinearLoader.columns`."""
        shape, split = (outputs, inputs.total), inputs.split(Split.COLUMNS)
        weight = self._weights.take_quantized(f"{name}.weight", shape, *split)
        if weight is None:
            return None
        bias_O = self._weights.take(f"{name}.bias", (outputs,)) if bias else None
        return self._linear.pack_quantized(weight, bias_O if first_rank else None)

    def whole(self, name: str, shape: tuple[int, int]) -> Any:
        """As `LinearLoader.whole`."""
        weight = self._weights.take_quantized(f"{name}.weight", shape)
        return None if weight is None else self._linear.pack_quantized(weight, None)

    def rows(self, shares: Shares, inputs: int, bias: bool) -> Any:
        """One product if all weights are quantized alike, else one for each."""
        found = {name: self._take(name, share, inputs) for name, share in shares.items()}
        quantized = [weight for weight in found.values() if weight is not None]
        if not quantized:
            return None
        biases = self._biases(shares) if bias else {}
        merged = merge(quantized) if len(quantized) == len(shares) else None
        if merged is not None:
            joined = torch.cat(list(biases.values())) if bias else None
            return self._linear.pack_quantized(merged, joined)
        return SideBySide(tuple(
            self._pack(name, share, inputs, found[name], biases.get(name))
            for name, share in shares.items()
        ))  # fmt: skip

    def _take(self, name: str, share: Share, inputs: int) -> QuantWeight | None:
        shape, split = (share.total, inputs), share.split(Split.ROWS)
        return self._weights.take_quantized(f"{name}.weight", shape, *split)

    def _pack(
        self,
        name: str,
        share: Share,
        inputs: int,
        weight: QuantWeight | None,
        bias_O: Tensor | None,
    ) -> Any:
        if weight is not None:
            return self._linear.pack_quantized(weight, bias_O)
        shape, split = (share.total, inputs), share.split(Split.ROWS)
        return self._linear.pack(self._weights.take(f"{name}.weight", shape, *split), bias_O)

    def _biases(self, shares: Shares) -> dict[str, Tensor]:
        return {
            name: self._weights.take(f"{name}.bias", (share.total,), *share.split(Split.ROWS))
            for name, share in shares.items()
        }


def quant_loader(linear: Linear, weights: Weights) -> QuantLoader | None:
    """None where weights are plain, or are to be dequantized when they are taken."""
    if isinstance(linear, QuantLinear) and isinstance(weights, QuantizedWeights):
        return QuantLoader(linear, weights)
    return None
