"""A prepared batch as the C kernels see it. The structures mirror those of attention.h."""

import ctypes

import torch
from torch import Tensor

from jackfield.core.api.kernel import AttnBatch

PIECE = 512
"""Keys of one task of a decode: as in attention.h."""
ITEM_INTS = 6
"""Int32 fields of one task: as in attention.h."""


class BatchStruct(ctypes.Structure):
    """`batch` of attention.h."""

    _fields_ = (
        ("query_start", ctypes.c_void_p),
        ("lens", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("tables_stride", ctypes.c_int64),
        ("slices", ctypes.c_int64),
        ("decodes", ctypes.c_int64),
        ("tokens", ctypes.c_int64),
        ("items", ctypes.c_void_p),
        ("num_items", ctypes.c_int64),
        ("planned_rows", ctypes.c_int64),
        ("planned_window", ctypes.c_int64),
    )


class CpuStep:
    """Holds the batch's tensors while kernels point into them. parts: of split decodes."""

    def __init__(self) -> None:
        self.struct = BatchStruct()
        self.address = ctypes.addressof(self.struct)
        self.parts = 0
        self._held: tuple[Tensor, ...] = ()

    def fill(self, batch: AttnBatch) -> None:
        tensors = (
            batch.query_start_S1.to(torch.int32).contiguous(),
            batch.lens_S.to(torch.int32).contiguous(),
            batch.block_tables_SB.to(torch.int32).contiguous(),
            batch.slots_T.to(torch.int64).contiguous(),
        )
        slices, tokens = batch.lens_S.shape[0], batch.slots_T.shape[0]
        longest = batch.num_decodes * (batch.max_len // PIECE + 1)
        items = torch.empty((longest + tokens) * ITEM_INTS, dtype=torch.int32)
        struct = self.struct
        struct.query_start, struct.lens, struct.tables, struct.slots = (
            tensor.data_ptr() for tensor in tensors
        )
        struct.tables_stride = batch.block_tables_SB.shape[1]
        struct.slices, struct.decodes, struct.tokens = slices, batch.num_decodes, tokens
        struct.items, struct.num_items = items.data_ptr(), -1
        self._held = (*tensors, items)
        self.parts = _split_parts(batch) if batch.max_len > PIECE else 0


def _split_parts(batch: AttnBatch) -> int:
    lens = batch.lens_S[: batch.num_decodes].tolist()
    return sum(-(-length // PIECE) for length in lens if length > PIECE)
