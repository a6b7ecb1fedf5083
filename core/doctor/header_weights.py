"""Weights that are nothing but shapes: what a model takes is held against headers of files."""

import re
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api import QuantWeight, Split
from jackfield.core.checkpoint.kv_scales import KV_SCALE_NAME
from jackfield.core.checkpoint.quant_headers import Part, parts_of
from jackfield.core.checkpoint.quant_plan import QuantPlan
from jackfield.core.checkpoint.quant_reader import is_quantized
from jackfield.core.checkpoint.quant_scheme import Scheme
from jackfield.core.checkpoint.quantized_weights import ACTIVATIONS, WEIGHT
from jackfield.core.checkpoint.safetensors_header import StoredTensor
from jackfield.core.checkpoint.safetensors_weights import FLOATS

FLOAT32_BYTES = 4


class Unlike(NamedTuple):
    """A tensor that is not as it should be. stored: what it is; None = it is missing. wanted: what
    it should be."""

    name: str
    stored: str | None
    wanted: str


class HeaderWeights:
    """Implements `QuantizedWeights` on the device "meta"; nothing raises.

    unlike: what does not fit, in the order in which it was asked for. bytes: of all that was taken,
    as it would be held. kept, dequantized: quantized weights the model would hold the one way and
    the other.
    """

    def __init__(
        self, stored: Mapping[str, StoredTensor], plan: QuantPlan | None, dtype: torch.dtype
    ) -> None:
        self.stored, self.dtype = stored, dtype
        self.unlike: list[Unlike] = []
        self.bytes = self.kept = self.dequantized = 0
        self._plan = plan
        self._taken: set[str] = set()
        self._asked: set[str] = set()
        self._ignored = [re.compile(KV_SCALE_NAME)]
        if plan is not None:
            self._ignored.append(re.compile(ACTIVATIONS))

    def has(self, name: str) -> bool:
        """As `Weights.has`."""
        return name in self.stored or self._scheme(name) is not None

    def take(
        self,
        name: str,
        shape: tuple[int, ...],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> Tensor:
        """Never what is stored, but something of that shape. There is one rank."""
        scheme = self._scheme(name) if len(shape) == 2 else None
        if scheme is not None:
            self._take_parts(name.removesuffix(WEIGHT), (shape[0], shape[1]), scheme)
        else:
            self._take_plain(name, shape)
            self.bytes += prod(shape) * self.dtype.itemsize
        return torch.empty(shape, dtype=self.dtype, device="meta")

    def take_exact(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """As `Weights.take_exact`."""
        self._take_plain(name, shape)
        self.bytes += prod(shape) * FLOAT32_BYTES
        return torch.empty(shape, dtype=torch.float32, device="meta")

    def take_quantized(
        self,
        name: str,
        shape: tuple[int, int],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> QuantWeight | None:
        """None; but that it was asked for tells that the weight would be held as it is."""
        self._asked.add(name)
        return None

    def ignore(self, pattern: str) -> None:
        """As `Weights.ignore`."""
        self._ignored.append(re.compile(pattern))

    def surplus(self) -> list[str]:
        """Tensors that were neither taken nor ignored. What belongs to ignored weights, and biases
        of quantized ones, which may be zeros, are not told."""
        return [name for name in sorted(self.stored) if not self._is_known(name)]

    def _is_known(self, name: str) -> bool:
        module, _, kind = name.rpartition(".")
        weight = f"{module}{WEIGHT}"
        quantized = self._scheme(weight) is not None
        if name in self._taken or (quantized and kind == "bias"):
            return True
        names = (name, weight) if quantized else (name,)
        return any(known.fullmatch(each) for known in self._ignored for each in names)

    def _scheme(self, name: str) -> Scheme | None:
        """How the weight is quantized, if the files hold parts of it."""
        if self._plan is None or not name.endswith(WEIGHT):
            return None
        module = name.removesuffix(WEIGHT)
        scheme = self._plan.scheme(module)
        if scheme is None:
            self._tell_contradiction(module, name)
            return None
        whole = is_quantized(module, scheme.layout, self.stored)
        torn = name not in self.stored and any(
            f"{module}.{part.suffix}" in self.stored
            for part in parts_of(scheme, (1, 1), module, self.stored)
        )
        return scheme if whole or torn else None

    def _tell_contradiction(self, module: str, name: str) -> None:
        assert self._plan is not None
        for layout in self._plan.layouts:
            if is_quantized(module, layout, self.stored):
                told = Unlike(name, "quantized", "plain, since quantization_config leaves it out")
                if told not in self.unlike:
                    self.unlike.append(told)

    def _take_parts(self, module: str, shape: tuple[int, int], scheme: Scheme) -> None:
        kept = f"{module}{WEIGHT}" in self._asked
        for part in parts_of(scheme, shape, module, self.stored):
            found = self._take_part(f"{module}.{part.suffix}", part, scheme)
            self.bytes += found.bytes if kept and found else 0
        self.kept += kept
        self.dequantized += not kept
        self.bytes += 0 if kept else prod(shape) * self.dtype.itemsize

    def _take_part(self, name: str, part: Part, scheme: Scheme) -> StoredTensor | None:
        found = self.stored.get(name)
        wanted = f"{list(part.shapes[0])} for {scheme.text}"
        if found is None:
            if not part.optional:
                self.unlike.append(Unlike(name, None, wanted))
            return None
        self._taken.add(name)
        if found.shape not in part.shapes:
            self.unlike.append(Unlike(name, str(list(found.shape)), wanted))
        elif found.dtype not in part.types:
            self.unlike.append(Unlike(name, found.dtype, f"{' or '.join(part.types)} for "
                                                         f"{scheme.text}"))  # fmt: skip
        return found

    def _take_plain(self, name: str, shape: tuple[int, ...]) -> None:
        found = self.stored.get(name)
        if found is None:
            self.unlike.append(Unlike(name, None, str(list(shape))))
            return
        self._taken.add(name)
        if found.shape != shape:
            self.unlike.append(Unlike(name, str(list(found.shape)), str(list(shape))))
        elif found.dtype not in FLOATS:
            self.unlike.append(Unlike(name, found.dtype, " or ".join(FLOATS)))
