"""Paged attention in C: decodes by slice, key/value head and piece of keys, prefills by tiles."""

import ctypes
import weakref
from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.kernel import (
    AttnBatch,
    AttnStep,
    BatchLimits,
    KvLayer,
    KvLayout,
    KvSpec,
    KvTensor,
)
from jackfield.plugins.kernels.cpu.attention_step import PIECE, CpuStep
from jackfield.plugins.kernels.cpu.library import Functions, Library, dense_rows

HEAD_MULTIPLE = 16
MAX_HEAD = 256


class LayerStruct(ctypes.Structure):
    """`layer` of attention.h."""

    _fields_ = (
        ("k", ctypes.c_void_p),
        ("v", ctypes.c_void_p),
        ("kv_heads", ctypes.c_int64),
        ("block_size", ctypes.c_int64),
        ("head_dim", ctypes.c_int64),
        ("group", ctypes.c_int64),
        ("window", ctypes.c_int64),
        ("scale", ctypes.c_float),
    )


class _KnownLayer(NamedTuple):
    """A layer that was seen before; good as long as the same tensor is at the same address."""

    k: "weakref.ref[Tensor]"
    v_address: int
    scale: float
    window: int | None
    struct: LayerStruct
    address: int


class CpuAttention:
    """Decodes are cut into pieces of fixed size, so no result depends on the rest of the batch."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._write = Functions(library, "jackfield_write", "pppnnpnni")
        self._attend = Functions(library, "jackfield_attend", "ppnpnnpnnpi")
        self._layers: dict[int, _KnownLayer] = {}
        self._scratch = torch.empty(0)
        self._part_floats = 0
        self._block_size = 0

    def unsupported(self, spec: KvSpec, device: torch.device) -> list[str]:
        reasons = self._library.refusals(device, spec.dtype)
        if spec.head_dim % HEAD_MULTIPLE or spec.head_dim > MAX_HEAD:
            reasons.append(
                f"the head size must be a multiple of {HEAD_MULTIPLE} up to {MAX_HEAD}, "
                f"not {spec.head_dim}"
            )
        if spec.latent is not None:
            reasons.append("latent attention is not served: it reads values beside the keys")
        if spec.encoding is not None:
            reasons.append(f"it does not read keys and values stored as {spec.encoding.name}")
        return reasons

    def layout(self, spec: KvSpec) -> KvLayout:
        self._part_floats = max(self._part_floats, spec.num_heads * (spec.head_dim + 2))
        self._block_size = max(self._block_size, spec.block_size)
        shape = (spec.num_kv_heads, spec.block_size, spec.head_dim)
        return KvLayout((KvTensor("k", shape, spec.dtype), KvTensor("v", shape, spec.dtype)))

    def workspace(self, limits: BatchLimits) -> int:
        pieces = -(-limits.max_blocks * self._block_size // PIECE)
        return limits.max_seqs * pieces * self._part_floats * 4 if pieces > 1 else 0

    def capturable(self, max_rows: int, max_len: int) -> bool:
        return False

    def prepare(self, batch: AttnBatch) -> AttnStep:
        step = CpuStep()
        step.fill(batch)
        return step

    def write(self, k_TKH: Tensor, v_TKH: Tensor, layer: KvLayer, step: AttnStep) -> None:
        k_TKH, k_strides = dense_rows(k_TKH)
        v_TKH, v_strides = dense_rows(v_TKH)
        self._write[k_TKH.dtype](
            step.address,
            self._known(layer).address,
            k_TKH.data_ptr(),
            k_strides[0],
            k_strides[1],
            v_TKH.data_ptr(),
            v_strides[0],
            v_strides[1],
            torch.get_num_threads(),
        )

    def forward(self, q_TNH: Tensor, layer: KvLayer, step: AttnStep, out_TNH: Tensor) -> Tensor:
        q_TNH, q_strides = dense_rows(q_TNH)
        out_strides = out_TNH.stride()
        assert out_strides[2] == 1, "heads of the output must be dense"
        self._attend[q_TNH.dtype](
            step.address,
            self._known(layer).address,
            q_TNH.shape[1],
            q_TNH.data_ptr(),
            q_strides[0],
            q_strides[1],
            out_TNH.data_ptr(),
            out_strides[0],
            out_strides[1],
            self._room(step.parts, q_TNH) if step.parts else None,
            torch.get_num_threads(),
        )
        return out_TNH

    def _room(self, parts: int, q_TNH: Tensor) -> int:
        floats = parts * q_TNH.shape[1] * (q_TNH.shape[2] + 2)
        if self._scratch.numel() < floats:
            self._scratch = torch.empty(floats)
        return self._scratch.data_ptr()

    def _known(self, layer: KvLayer) -> _KnownLayer:
        tensors = layer.tensors
        k = tensors["k"]
        address, v_address = k.data_ptr(), tensors["v"].data_ptr()
        known = self._layers.get(address)
        if (
            known is None
            or known.k() is not k
            or known.v_address != v_address
            or known.scale != layer.scale
            or known.window != layer.window
        ):
            known = _know(k, v_address, layer)
            self._layers[address] = known
        return known


def _know(k: Tensor, v_address: int, layer: KvLayer) -> _KnownLayer:
    _, heads, block_size, width = k.shape
    struct = LayerStruct(
        k.data_ptr(), v_address, heads, block_size, width, 1, layer.window or 0, layer.scale
    )
    address = ctypes.addressof(struct)
    return _KnownLayer(weakref.ref(k), v_address, layer.scale, layer.window, struct, address)
