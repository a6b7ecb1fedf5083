"""How fast blocks go between a GPU's pool and the host, against a plain copy of pinned memory.

The layout is that of Qwen3-0.6B: 28 layers, 8 heads of 128, bfloat16, 16 tokens in a block.

    python scripts/bench_transfers.py [blocks of one order]
"""

import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

from jackfield.core.api import KvLayer, TierSpace
from jackfield.core.executors.transfers import Transfers
from jackfield.core.kv.copier import BlockCopier
from jackfield.core.kv.transfers import Transfer, TransferKind
from jackfield.plugins.cache.swap.host_store import HostStore

DEVICE = torch.device("cuda")
LAYERS, SHAPE = 28, (16, 8, 128)
NUM_BLOCKS = 1024
ROUNDS = 9


class Rig:
    """A pool, one tier in the host's memory, and the engine's side of it."""

    def __init__(self) -> None:
        self.layers = [KvLayer({name: self._tensor() for name in "kv"}, 1.0) for _ in range(LAYERS)]
        self.copier = BlockCopier(self.layers, DEVICE)
        space = TierSpace(0, self.copier.block_bytes, NUM_BLOCKS, pinned=True)
        self.transfers = Transfers(self.copier, {"host": HostStore(space)}, pinned=True)
        self._number = 0

    @staticmethod
    def _tensor() -> torch.Tensor:
        return torch.randn((NUM_BLOCKS, *SHAPE), device=DEVICE).bfloat16()

    def order(self, kind: TransferKind, blocks: range, checked: bool) -> tuple[float, float]:
        """Seconds that the call takes, and seconds until all blocks are there."""
        orders = [
            Transfer(self._number + i, kind, "host", block, block, "", checked)
            for i, block in enumerate(blocks)
        ]
        self._number += len(orders)
        torch.cuda.synchronize()
        started = perf_counter()
        self.transfers.transfer(orders)
        held, missing = perf_counter() - started, len(orders)
        while missing:
            self.transfers.await_transfer(1.0)
            for end in self.transfers.transferred():
                assert end.error is None, end.error
                missing -= 1
        return held, perf_counter() - started


def rate(num_bytes: int, run: Callable[[], object]) -> float:
    """GB/s, the median of some rounds after two that warm up."""
    times = []
    for _ in range(ROUNDS + 2):
        torch.cuda.synchronize()
        started = perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(perf_counter() - started)
    return num_bytes / median(times[2:]) / 1e9


def plain_copies() -> dict[str, float]:
    """GB/s of one large copy each way."""
    host = torch.empty(256 * 2**20, dtype=torch.uint8, pin_memory=True)
    there = torch.empty_like(host, device=DEVICE)
    return {
        "to the host": rate(host.nbytes, lambda: host.copy_(there, non_blocking=True)),
        "to the GPU": rate(host.nbytes, lambda: there.copy_(host, non_blocking=True)),
    }


def main(num_blocks: int) -> None:
    """Print all figures."""
    rig, plain = Rig(), plain_copies()
    blocks, num_bytes = range(num_blocks), num_blocks * rig.copier.block_bytes
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}; {num_blocks} blocks of")
    print(f"{rig.copier.block_bytes:,} bytes; plain copies {plain}")
    for checked in (False, True):
        for kind, way in ((TransferKind.STORE, "to the host"), (TransferKind.LOAD, "to the GPU")):
            runs = [rig.order(kind, blocks, checked) for _ in range(ROUNDS + 2)]
            first = num_bytes / runs[0][1] / 1e9
            speed = num_bytes / median(total for _, total in runs[2:]) / 1e9
            held = median(held for held, _ in runs[2:])
            print(
                f"{kind.value} checked={checked}: {speed:.1f} GB/s ({speed / plain[way]:.0%} of "
                f"plain; the first time {first:.1f}), the call takes {held * 1e6:.0f} us"
            )
    rig.transfers.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 64)
