"""Pieces of the host's memory, locked where a GPU copies from them.

Torch's own locked memory is not used: what is given back to it stays locked, and it takes the next
power of two.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def new_slab(num_rows: int, block_bytes: int, pinned: bool) -> "Tensor":
    """Memory for so many blocks. Raises `MemoryError` if it cannot be locked."""
    import torch

    slab = torch.empty((num_rows, block_bytes), dtype=torch.uint8)
    if pinned:
        failed = int(torch.cuda.cudart().cudaHostRegister(slab.data_ptr(), slab.nbytes, 0))  # type: ignore[no-untyped-call]
        if failed:
            raise MemoryError(
                f"{slab.nbytes:,} bytes of the host cannot be locked for the GPU (error {failed} "
                f"of CUDA); set cache.swap.memory to less"
            )
    return slab


def unlock(slab: "Tensor") -> None:
    """Before its memory is given back."""
    import torch

    torch.cuda.cudart().cudaHostUnregister(slab.data_ptr())  # type: ignore[no-untyped-call]
