"""Sums over ranks that are processes: the kernels, interpreted, on memory that they share."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield.core.api import Ranks
from jackfield.core.api.kernel import OpSpec
from jackfield.core.testing.process_ranks import on_processes
from jackfield.plugins.kernels.triton.all_reduce_launch import sum_in_place
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.support import TritonConfig
from jackfield.plugins.kernels.triton.symmetric import (
    Memory,
    Peers,
    Sizes,
    Way,
    bytes_of,
    leave,
    leaving_word,
)
from jackfield.plugins.kernels.triton.symmetric_exchange import Exchange

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="its memory is the host's")
SCRIPT = Path(__file__).with_name("all_reduce_ranks.py")
CPU = torch.device("cpu")
SMALL, LARGE = 1 << 14, 1 << 16
COUNT = 15


@pytest.mark.parametrize(("size", "programs"), [(2, 3), (3, 2), (4, 2)])
def test_ranks(size: int, programs: int, tmp_path: Path) -> None:
    """All of it by the same processes, since they take longer to start than most tests."""
    sizes = [Sizes(SMALL, LARGE, programs), *([Sizes(4096, 8192, 1)] if size == 2 else [])]
    ranks = on_processes(size, SCRIPT, tmp_path, tmp_path, sizes, COUNT)
    ways = {way for _, counts in ranks[0]["mixed"] for way in counts}
    chosen = [way for way in Way if way is not Way.APART or size == 2]
    assert ways == {f"{kind} {way.name}" for kind in ("sum", "fused") for way in chosen}
    bits = [given for given, _ in ranks[0]["mixed"]]
    for rank in ranks:
        assert [given for given, _ in rank["mixed"]] == bits, "the same bits on all ranks"
        assert [sum(ways.values()) for _, ways in rank["mixed"]] == [COUNT] * len(sizes)
        assert rank["ways agree"]
        assert rank["slow"] == 16, "whoever is late finds what it should"
        assert rank["long lived"] == [8, 4, 2], "programs count their own calls"
        assert rank["refused"] == [[True] * 4] * 2


@pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
def test_nobody_waits_for_ranks_that_have_gone() -> None:
    ranks, sizes, leaving = Ranks(0, 2), Sizes(SMALL, 0, 2), leaving_word(CPU)
    memories = [torch.zeros(bytes_of(ranks, sizes), dtype=torch.uint8) for _ in range(2)]
    memory = Memory(memories[0], [each.data_ptr() for each in memories])
    peers, config = Peers(ranks, sizes, memory, leaving), Configs("all_reduce")
    x, begun = torch.ones(2, 64), time.monotonic()
    timer = threading.Timer(0.3, leave, [leaving])
    timer.start()
    for _ in range(3):
        sum_in_place(x, peers, config.find("sum", x.dtype, CPU), Way.ONE)
    assert time.monotonic() - begun >= 0.3, "it waited"
    timer.join()


def test_sizes_decide_the_way() -> None:
    ranks, sizes = Ranks(0, 2), Sizes(1024, 4096, 4)
    own = torch.zeros(bytes_of(ranks, sizes), dtype=torch.uint8)
    peers = Peers(ranks, sizes, Memory(own, [own.data_ptr()] * 2), leaving_word(CPU))
    ways = [peers.way(rows, 256) for rows in (0, 1, 4, 5, 16, 17)]
    assert ways == [Way.ONE] * 3 + [Way.TWO] * 2 + [Way.APART]
    assert peers.way(1, 1040) is Way.APART, "a row must fit into what a program keeps"
    assert [peers.programs(rows) for rows in (1, 4, 9)] == [1, 4, 4]


class Devices:
    """What torch says of GPUs that are not there. closed: pairs that cannot read each other."""

    def __init__(self, closed: set[tuple[int, int]], processors: int) -> None:
        self.closed, self.processors = closed, processors

    def can_device_access_peer(self, one: int, other: int) -> bool:
        assert one != other
        return (one, other) not in self.closed


@pytest.fixture
def reasons(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    from jackfield.plugins.kernels.triton import configs, symmetric_support

    def ask(
        ranks: Ranks, closed: set[tuple[int, int]], processors: int, dtype: torch.dtype
    ) -> list[str]:
        devices = Devices(closed, processors)
        monkeypatch.setattr(torch.cuda, "can_device_access_peer", devices.can_device_access_peer)
        monkeypatch.setattr(symmetric_support, "num_processors", lambda *asked: processors)
        monkeypatch.setattr(configs, "architecture", lambda device: "sm_90")
        known = dtype in (torch.float32, torch.float16, torch.bfloat16)
        monkeypatch.setattr(
            symmetric_support, "reasons", lambda *asked: [] if known else [f"not for {asked[1]}"]
        )
        spec = OpSpec(dtype, 64, 16, 100, ranks)
        return Exchange(TritonConfig()).unsupported(spec, torch.device("cuda", ranks.rank))

    return ask


@pytest.mark.parametrize(
    ("ranks", "closed", "processors", "dtype", "wanted"),
    [
        (Ranks(1, 2), set(), 132, torch.bfloat16, []),
        (Ranks(0, 3), set(), 64, torch.float16, []),
        (Ranks(0, 2), set(), 132, torch.float64, ["not for torch.float64"]),
        (Ranks(0, 4, None, 2), set(), 132, torch.float16, ["ranks on 2 hosts cannot"]),
        (Ranks(0, 16), set(), 132, torch.float16, ["up to 8 ranks, not over 16"]),
        (Ranks(2, 3), {(1, 0)}, 132, torch.float16, ["GPU 1 cannot access the memory of GPU 0"]),
        (Ranks(0, 2), set(), 42, torch.float16, ["64 programs .* and GPU 0 has 42 multi"]),
    ],
)
def test_who_is_refused(
    reasons: Callable[..., list[str]],
    ranks: Ranks,
    closed: set[tuple[int, int]],
    processors: int,
    dtype: torch.dtype,
    wanted: list[str],
) -> None:
    import re

    found = reasons(ranks, closed, processors, dtype)
    assert len(found) == len(wanted)
    assert all(re.search(one, other) for one, other in zip(wanted, found, strict=True))


def test_processors_are_refused() -> None:
    spec = OpSpec(torch.float32, 64, 16, 100, Ranks(0, 2))
    found = Exchange(TritonConfig(interpret=True)).unsupported(spec, CPU)
    assert found == ["ranks read each other's memory on NVIDIA GPUs only"]


def test_what_does_not_work_is_told(caplog: pytest.LogCaptureFixture) -> None:
    exchange = Exchange(TritonConfig(), Sizes(SMALL, 0, 2))

    def fails(*asked: Any) -> Memory:
        raise RuntimeError("not permitted\nat all")

    exchange._opens = fails
    exchange._agreed = lambda fine, device: fine  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING, "jackfield.kernels"):
        exchange.join(Ranks(0, 2), CPU)
    assert exchange.peers is None
    (told,) = caplog.messages
    assert told.startswith("sums over ranks are left to torch.distributed")
    assert told.endswith("does not work here: not permitted")
