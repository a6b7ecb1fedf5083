"""Which kernels sums over ranks want, noted by ranks that have nobody beside them.

Run without TRITON_INTERPRET, with a cache of its own. There is no GPU, but Triton is told of one.
"""

import json
from collections.abc import Sequence
from typing import Any

import torch
from pretended_driver import ARCH, Driver
from triton.runtime import driver

from jackfield.core.api import Ranks
from jackfield.plugins.kernels.triton.all_reduce import TritonAllReduce
from jackfield.plugins.kernels.triton.all_reduce_add_rms_norm import TritonAllReduceAddRmsNorm
from jackfield.plugins.kernels.triton.compiling import Wanted, compile_wanted, is_compiled
from jackfield.plugins.kernels.triton.noting import Notes, noted
from jackfield.plugins.kernels.triton.support import TritonConfig
from jackfield.plugins.kernels.triton.symmetric import Memory, Peers, Sizes, bytes_of, leaving_word
from jackfield.plugins.kernels.triton.symmetric_exchange import Exchange

CPU = torch.device("cpu")
SIZES = Sizes(1 << 14, 1 << 18, 16)


def exchange_of(rank: int) -> Exchange:
    """Whose other rank never comes."""
    ranks = Ranks(rank, 2)
    memories = [torch.zeros(bytes_of(ranks, SIZES), dtype=torch.uint8) for _ in range(2)]
    exchange = Exchange(TritonConfig())
    memory = Memory(memories[rank], [each.data_ptr() for each in memories], memories)
    exchange.peers = Peers(ranks, SIZES, memory, leaving_word(CPU))
    return exchange


def launch(exchange: Exchange, rows: Sequence[int]) -> None:
    reduce = TritonAllReduce(exchange)
    fused = TritonAllReduceAddRmsNorm(exchange, TritonConfig())
    for count in rows:
        x = torch.zeros(count, 512, dtype=torch.bfloat16)
        reduce(x)
        fused(x, x.clone(), x[0], 1e-6)


def wanted(exchange: Exchange, rows: Sequence[int]) -> list[Wanted]:
    notes = Notes(ARCH)
    with noted(notes):
        launch(exchange, rows)
    assert not notes.foreign
    return notes.wanted


def main() -> dict[str, Any]:
    told = Driver()
    driver.set_active(told)  # type: ignore[arg-type]
    first, second = exchange_of(0), exchange_of(1)
    found = wanted(first, (1, 64, 200))
    for one in found:
        compile_wanted(one)
    alike = wanted(second, (1, 64, 200)) == found
    later = wanted(first, (2, 3, 16, 17, 100, 256))
    launched = list(told.launched)
    launch(first, (1,))
    assert first.peers is not None
    return {
        "names": sorted(one.name for one in found), "compiled": all(map(is_compiled, found)),
        "alike": alike, "late": [one.name for one in later if one not in found],
        "launched": launched, "afterwards": told.launched,
        "calls": first.peers.calls.sum().item(),
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(main()))
