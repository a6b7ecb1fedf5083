"""Dense products. On a CPU the weight is packed once in the form that is fastest at few rows."""

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear

from jackfield.plugins.kernels.torch_ops.everywhere import Everywhere

TRANSPOSED_MAX_ELEMENTS = 1 << 20
"""Float32 weights up to this size multiply faster transposed than packed, at 1 to 32 rows."""


class PackedWeight(Protocol):
    """One weight in the form its product wants."""

    def __call__(self, x_TI: Tensor) -> Tensor: ...


class PlainWeight:
    """As the checkpoint has it."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        self._weight_OI = weight_OI
        self._bias_O = bias_O

    def __call__(self, x_TI: Tensor) -> Tensor:
        return linear(x_TI, self._weight_OI, self._bias_O)


class TransposedWeight:
    """Inputs as rows: the BLAS behind torch then reads it without packing it at every call."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        self._weight_IO = weight_OI.t().contiguous()
        self._bias_O = bias_O

    def __call__(self, x_TI: Tensor) -> Tensor:
        if self._bias_O is None:
            return torch.mm(x_TI, self._weight_IO)
        return torch.addmm(self._bias_O, x_TI, self._weight_IO)


class OneDnnWeight:
    """In the blocked form of oneDNN, which is opaque: only its own product reads it."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        # A batch size as a hint makes float32 slower at every other size.
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight_OI.contiguous())
        self._bias_O = bias_O
        self._product: Any = torch.ops.mkldnn._linear_pointwise

    def __call__(self, x_TI: Tensor) -> Tensor:
        return self._product(x_TI, self._weight, self._bias_O, "none", [], "")  # type: ignore[no-any-return]


class TorchLinear(Everywhere):
    """notes: why a faster form was passed over, one sentence per element type."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._onednn: dict[torch.dtype, bool] = {}

    def pack(self, weight_OI: Tensor, bias_O: Tensor | None) -> PackedWeight:
        if weight_OI.device.type != "cpu":
            return PlainWeight(weight_OI, bias_O)
        dtype = weight_OI.dtype
        small = weight_OI.numel() <= TRANSPOSED_MAX_ELEMENTS
        if dtype is torch.float32 and small and _has_mkl():
            return TransposedWeight(weight_OI, bias_O)
        if dtype not in self._onednn:
            self._onednn[dtype] = self._probe(dtype)
        return (OneDnnWeight if self._onednn[dtype] else PlainWeight)(weight_OI, bias_O)

    def __call__(self, x_TI: Tensor, packed: PackedWeight) -> Tensor:
        return packed(x_TI)

    def _probe(self, dtype: torch.dtype) -> bool:
        reason = _why_not_onednn(dtype)
        if reason:
            self.notes.append(f"weights of {dtype} are not packed for oneDNN: {reason}")
        return not reason


def _why_not_onednn(dtype: torch.dtype) -> str:
    """Try the private operators on a small product; an empty answer means that they are right."""
    weight = (torch.arange(32 * 48) % 7 - 3).view(32, 48).to(dtype)
    x = (torch.arange(5 * 48) % 5 - 2).view(5, 48).to(dtype)
    bias = torch.arange(32).to(dtype)
    try:
        result = OneDnnWeight(weight, bias)(x)
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        return str(error).strip().splitlines()[0]
    expected = linear(x.double(), weight.double(), bias.double())
    if torch.allclose(result.double(), expected, rtol=1e-2, atol=1e-2):
        return ""
    return "it gives wrong results on this machine"


def _has_mkl() -> bool:
    return bool(torch.backends.mkl.is_available())  # type: ignore[no-untyped-call]
