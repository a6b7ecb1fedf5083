"""The weights of a quantized checkpoint, as they are stored or dequantized."""

import logging
import re

import torch
from torch import Tensor

from jackfield.core.api.errors import CheckpointError
from jackfield.core.api.model import Split
from jackfield.core.api.quant import ELEMENTS_AT_ONCE, QuantWeight
from jackfield.core.checkpoint.quant_part import quant_part
from jackfield.core.checkpoint.quant_plan import QuantPlan
from jackfield.core.checkpoint.quant_reader import is_quantized, read_quant_weight
from jackfield.core.checkpoint.quant_scheme import Scheme
from jackfield.core.checkpoint.quant_tensors import QuantTensors
from jackfield.core.checkpoint.safetensors_weights import SafetensorsWeights
from jackfield.core.checkpoint.shard_slice import shard_slice

ACTIVATIONS = r".*\.(input_scale|input_zero_point|input_global_scale|input_scale_ub)"
"""How inputs of products may be quantized, which they are not."""
WEIGHT = ".weight"

log = logging.getLogger("jackfield.checkpoint")


class PlannedWeights:
    """Implements `QuantizedWeights` on files that a `quantization_config` describes.

    Memory beside what it returned: one weight as it is stored, a few times. kept, dequantized: how
    many weights were taken the one way and the other; what was taken both ways was dequantized.
    """

    def __init__(self, weights: SafetensorsWeights, plan: QuantPlan) -> None:
        self._weights, self._plan = weights, plan
        self._asked: set[str] = set()
        self._kept: set[str] = set()
        self._plain: set[str] = set()
        weights.ignore(ACTIVATIONS)

    @property
    def kept(self) -> int:
        return len(self._kept - self._plain)

    @property
    def dequantized(self) -> int:
        return len(self._plain)

    def has(self, name: str) -> bool:
        """Whether there is such a weight, however it is stored."""
        return self._weights.has(name) or self._is_quantized(name)

    def take(
        self,
        name: str,
        shape: tuple[int, ...],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> Tensor:
        """As `Weights.take`; a quantized weight is dequantized, a block at a time."""
        weight = self._read(name, shape)
        if weight is None:
            return self._weights.take(name, shape, split, part)
        self._plain.add(name)
        slices = shard_slice(name, shape, split, self._weights.shard, part)
        whole = _dequantize(weight, self._weights.dtype)
        return whole[slices].clone() if split is not Split.NONE else whole

    def take_exact(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """As `Weights.take_exact`, of a tensor that is not quantized."""
        return self._weights.take_exact(name, shape)

    def take_quantized(
        self,
        name: str,
        shape: tuple[int, int],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> QuantWeight | None:
        """As `QuantizedWeights.take_quantized`."""
        weight = self._read(name, shape)
        if weight is None:
            return None
        self._asked.add(name)
        found = quant_part(name, weight, split, self._weights.shard, part)
        if found is not None:
            self._kept.add(name)
        return found

    def ignore(self, pattern: str) -> None:
        """Also what stands for a weight of that name."""
        self._weights.ignore(pattern)
        known = re.compile(pattern)
        for name in self._weights.stored:
            module = name.rpartition(".")[0]
            if known.fullmatch(module + WEIGHT) and self._is_quantized(module + WEIGHT):
                self._weights.ignore(re.escape(name))

    def finish(self) -> None:
        """Raise CheckpointError for what has no place, and where nothing was quantized."""
        for name in self._weights.surplus():
            if self._is_empty_bias(name):
                self._weights.ignore(re.escape(name))
        self._weights.finish()
        if not self.kept + self.dequantized:
            raise CheckpointError(
                f"config.json says that weights are quantized ({self._plan.method}), but none that "
                f"the model takes is; remove quantization_config, or fetch the model again."
            )
        if self.dequantized:
            log.warning(
                "%d quantized weights of %d were dequantized while they were loaded, since %s.",
                self.dequantized,
                self.dequantized + self.kept,
                self._why(),
            )

    def _why(self) -> str:
        """Of what was dequantized."""
        undivided = (self._plain & self._asked) - self._kept
        reasons = (
            ("the model or the kernels do not take %d as they are", self._plain - undivided),
            ("ranks cannot share %d as they are", undivided),
        )
        return " and ".join(text % len(names) for text, names in reasons if names)

    def _is_empty_bias(self, name: str) -> bool:
        """Some tools store zeros for products that have no bias."""
        module, _, kind = name.rpartition(".")
        if kind != "bias" or not self._is_quantized(module + WEIGHT):
            return False
        return not bool(self._weights.look_at(name).any())

    def _is_quantized(self, name: str) -> bool:
        return name.endswith(WEIGHT) and any(
            is_quantized(name.removesuffix(WEIGHT), layout, self._weights.stored)
            for layout in self._plan.layouts
        )

    def _read(self, name: str, shape: tuple[int, ...]) -> QuantWeight | None:
        if len(shape) != 2 or not name.endswith(WEIGHT):
            return None
        module = name.removesuffix(WEIGHT)
        scheme = self._plan.scheme(module)
        if not self._is_quantized(name):
            self._require_any(name, shape, scheme)
            return None
        if scheme is None:
            raise CheckpointError(self._contradiction(module))
        return read_quant_weight(QuantTensors(self._weights, module, (shape[0], shape[1]), scheme))

    def _require_any(self, name: str, shape: tuple[int, ...], scheme: Scheme | None) -> None:
        """A weight may be stored plain, and then is a missing one for whoever takes it so."""
        beside = f"{name.removesuffix(WEIGHT)}."
        if scheme is None or self._weights.has(name):
            return
        if any(stored.startswith(beside) for stored in self._weights.stored):
            tensors = QuantTensors(
                self._weights, name.removesuffix(WEIGHT), (shape[0], shape[1]), scheme
            )
            read_quant_weight(tensors)

    def _contradiction(self, module: str) -> str:
        stored = self._weights.stored
        name = next(name for name in stored if name.startswith(f"{module}."))
        return (
            f"{stored[name].file}, tensor {name!r} is quantized, but quantization_config in "
            f"config.json leaves {module!r} out; remove it from the modules that are not "
            f"quantized, or fetch the model again."
        )


def _dequantize(weight: QuantWeight, dtype: torch.dtype) -> Tensor:
    result_OI = torch.empty(weight.shape, dtype=dtype, device=weight.values.device)
    for outputs, block in weight.blocks(ELEMENTS_AT_ONCE):
        if weight.order_I is None:
            result_OI[outputs] = block.dequantized(dtype)
        else:
            result_OI[outputs, weight.order_I] = block.dequantized(dtype)
    return result_OI
