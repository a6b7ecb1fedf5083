"""What a process that is a rank does for `test_all_reduce.py`. Ranks share files as memory."""

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as distributed
from torch import Tensor

from jackfield.core.api import Ranks
from jackfield.plugins.kernels.triton.add_rms_norm import TritonAddRmsNorm
from jackfield.plugins.kernels.triton.all_reduce import TritonAllReduce
from jackfield.plugins.kernels.triton.all_reduce_add_rms_norm import TritonAllReduceAddRmsNorm
from jackfield.plugins.kernels.triton.support import TritonConfig
from jackfield.plugins.kernels.triton.symmetric import Memory, OpenMemory, Sizes, Way
from jackfield.plugins.kernels.triton.symmetric_exchange import Exchange

CPU = torch.device("cpu")
CONFIG = TritonConfig(interpret=True)
EPS = 1e-5
WIDTHS = (2048, 48, 1000)


class Call(NamedTuple):
    """One of those that all ranks make. shape: of the tensor. fused: with residual sum and norm."""

    number: int
    shape: tuple[int, int]
    dtype: torch.dtype
    fused: bool


def opener(folder: Path, name: str) -> OpenMemory:
    """Files that all ranks map."""

    def opens(ranks: Ranks, device: torch.device, size: int) -> Memory:
        paths = [folder / f"{name} {rank}" for rank in range(ranks.size)]
        paths[ranks.rank].write_bytes(b"\xff" * size)
        distributed.barrier(ranks.group)
        maps = [
            torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8) for path in paths
        ]
        return Memory(maps[ranks.rank], [each.data_ptr() for each in maps], maps)

    return opens


def joined(ranks: Ranks, folder: Path, name: str, sizes: Sizes) -> Exchange:
    exchange = Exchange(CONFIG, sizes, opener(folder, name))
    exchange.join(ranks, CPU)
    exchange.join(ranks, CPU)
    assert exchange.peers is not None
    return exchange


def part(call: Call, rank: int) -> Tensor:
    """What a rank has for a call; no two calls have the same."""
    made = torch.Generator().manual_seed(1000 * call.number + rank)
    return torch.randn(call.shape, generator=made).to(call.dtype)


def total(call: Call, size: int) -> Tensor:
    """In the order of ranks, rounded once."""
    found = part(call, 0).float()
    for rank in range(1, size):
        found += part(call, rank).float()
    return found.to(call.dtype)


def norm_inputs(call: Call) -> tuple[Tensor, Tensor]:
    """Residual and weight, which all ranks have alike."""
    made = torch.Generator().manual_seed(77_000 + call.number)
    residual = torch.randn(call.shape, generator=made).to(call.dtype)
    return residual, torch.randn(call.shape[1], generator=made).to(call.dtype)


def normed(call: Call, size: int) -> tuple[Tensor, Tensor]:
    residual, weight = norm_inputs(call)
    return TritonAddRmsNorm(CONFIG)(total(call, size), residual, weight, EPS)


def calls(programs: int, count: int) -> Iterator[Call]:
    """Numbers of rows around those of programs, of rows that fill blocks of the table and that
    do not."""
    rows = (1, max(programs - 1, 1), programs, programs + 1, 3 * programs)
    for number in range(count):
        width, dtype = WIDTHS[number % 3], (torch.float16, torch.float32)[number // 2 % 2]
        yield Call(number, (rows[number % 5], width), dtype, number % 2 == 0)


class Maker:
    """Makes calls of both operations, and remembers in which ways."""

    def __init__(self, ranks: Ranks, exchange: Exchange) -> None:
        self._ranks, self._exchange = ranks, exchange
        self._sum = TritonAllReduce(exchange)
        self._fused = TritonAllReduceAddRmsNorm(exchange, CONFIG)
        self.ways: dict[str, int] = {}

    def check(self, call: Call) -> Tensor:
        """What it gave, which is right."""
        x, size = part(call, self._ranks.rank), self._ranks.size
        exact = self._noted(call) is not Way.APART
        if not call.fused:
            found = self._sum(x)
            self._equal(found, total(call, size), call, exact)
            return found
        residual, weight = norm_inputs(call)
        out, kept = self._fused(x, residual, weight, EPS)
        wanted_out, wanted_kept = normed(call, size)
        self._equal(kept, wanted_kept, call, exact)
        small = 1e-6 if exact else 1e-2
        torch.testing.assert_close(out, wanted_out, atol=small, rtol=small)
        return torch.stack([out, kept])

    def _noted(self, call: Call) -> Way:
        peers = self._exchange.peers
        assert peers is not None
        block = call.shape[1] if call.fused else 2048
        rows = -(-call.shape[0] * call.shape[1] // block)
        way = peers.way(rows, block * call.dtype.itemsize)
        name = f"{'fused' if call.fused else 'sum'} {way.name}"
        self.ways[name] = self.ways.get(name, 0) + 1
        return way

    def _equal(self, found: Tensor, wanted: Tensor, call: Call, exact: bool) -> None:
        """Others need not add in this order."""
        if not torch.allclose(found, wanted, atol=0 if exact else 1e-2, rtol=0):
            worst = (found.float() - wanted.float()).abs().max()
            raise AssertionError(f"{call}: rank {self._ranks.rank} is {worst} off")


def work(ranks: Ranks, folder: Path, sizes: Sequence[Sizes], count: int) -> dict[str, Any]:
    """Bytes of all that was computed, and how often in which way."""
    _wait_gently()
    found = [_mixed(ranks, folder, f"mixed {at}", each, count) for at, each in enumerate(sizes)]
    return {
        "mixed": found,
        "ways agree": _ways_agree(ranks, folder, sizes[0].programs),
        "slow": _slow(ranks, folder),
        "long lived": _long_lived(ranks, folder),
        "refused": [_refused(ranks, folder, wrong) for wrong in (False, True)],
    }


def _wait_gently() -> None:
    """Whoever looks at its flags in vain leaves the processor to others."""
    from triton.runtime.interpreter import InterpreterBuilder

    apply: Any = InterpreterBuilder.create_atomic_rmw

    def gently(builder: Any, kind: Any, *asked: Any) -> Any:
        if "MAX" in str(kind):
            time.sleep(0.0005)
        return apply(builder, kind, *asked)

    patched: Any = InterpreterBuilder
    patched.create_atomic_rmw = gently


def _mixed(
    ranks: Ranks, folder: Path, name: str, sizes: Sizes, count: int
) -> tuple[list[bytes], dict[str, int]]:
    maker = Maker(ranks, joined(ranks, folder, name, sizes))
    given = [maker.check(call).numpy().tobytes() for call in calls(sizes.programs, count)]
    return given, maker.ways


def _ways_agree(ranks: Ranks, folder: Path, programs: int) -> bool:
    """The same sums in all ways of a kernel."""
    size = 1 << 20
    found: list[list[Tensor]] = []
    for name, sizes in (("one", Sizes(size, 0, programs)), ("two", Sizes(0, size, programs))):
        maker = Maker(ranks, joined(ranks, folder, name, sizes))
        found.append([maker.check(call) for call in calls(programs, 5)])
        assert {way.split()[1] for way in maker.ways} == {name.upper()}
    return all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def _slow(ranks: Ranks, folder: Path) -> int:
    """Each rank in turn comes late, others as soon as they can. Returns how often all was right."""
    maker = Maker(ranks, joined(ranks, folder, "slow", Sizes(1 << 14, 1 << 18, 2)))
    delays = random.Random(ranks.rank)
    for number in range(16):
        if number // 2 % ranks.size == ranks.rank:
            time.sleep(delays.random() * 0.01)
        shape = (3, 48) if number % 3 else (8, 1024)
        maker.check(Call(number, shape, torch.float32, number % 2 == 0))
    return number + 1


def _long_lived(ranks: Ranks, folder: Path) -> list[int]:
    """Numbers of calls after many; programs without a row make none."""
    exchange = joined(ranks, folder, "long lived", Sizes(1 << 14, 1 << 18, 3))
    peers = exchange.peers
    assert peers is not None
    peers.calls.fill_(1 << 33)
    distributed.barrier(ranks.group)
    maker = Maker(ranks, exchange)
    for number, rows in enumerate((1, 2, 3, 1)):
        maker.check(Call(number, (rows, 64), torch.float32, True))
    TritonAllReduce(exchange)(torch.ones(0, 64))
    return [count - (1 << 33) for count in peers.calls.tolist()]


def _refused(ranks: Ranks, folder: Path, wrong: bool) -> list[bool]:
    """Where one rank has no such memory, or sums wrongly, all of them do without."""
    opens = opener(folder, f"refused {wrong}")

    def fails(*asked: Any) -> Memory:
        raise RuntimeError("not permitted\nat all")

    last = ranks.rank == ranks.size - 1
    sizes = Sizes(1 << 14, 1 << 18, 3)
    exchange = Exchange(CONFIG, sizes, fails if last and not wrong else opens)
    if not wrong and not last:
        # Whoever can open it alone does not wait for whoever cannot.
        exchange = Exchange(CONFIG, sizes, _alone)
    if wrong and last:
        tried = exchange._tried
        exchange._tried = lambda *asked: not tried(*asked)  # type: ignore[method-assign]
    exchange.join(ranks, CPU)
    call = Call(7, (3, 64), torch.float32, True)
    residual, weight = norm_inputs(call)
    out, kept = TritonAllReduceAddRmsNorm(exchange, CONFIG)(
        part(call, ranks.rank), residual, weight, EPS
    )
    whole = TritonAllReduce(exchange)(part(call, ranks.rank))
    close = [
        torch.allclose(found, wanted, atol=1e-5)
        for found, wanted in zip((out, kept), normed(call, ranks.size), strict=True)
    ]
    return [exchange.peers is None, torch.allclose(whole, total(call, ranks.size)), *close]


def _alone(ranks: Ranks, device: torch.device, size: int) -> Memory:
    own = torch.empty(size, dtype=torch.uint8)
    return Memory(own, [own.data_ptr()] * ranks.size)
