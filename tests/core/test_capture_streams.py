"""Streams of graphs go from one engine to the next, once all graphs on them are destroyed."""

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from jackfield.core.api import KvLayout, PluginContractError
from jackfield.core.engine import graphs
from jackfield.core.engine.capture_streams import KINDS, CaptureStreams
from jackfield.core.engine.graphs import (
    NO_SHORT_STEPS,
    DecodeGraphs,
    Outputs,
    ShortSteps,
    Sizes,
    Variant,
)
from jackfield.core.engine.runner import Runner
from jackfield.core.executors.short_steps import short_steps
from jackfield.core.executors.single import SingleDevice

CPU = torch.device("cpu")
Compute = Callable[[Any, bool], Outputs]


class FakeStream:
    """An address, and the calls that it gets."""

    def __init__(self, address: int, log: list[str] | None = None) -> None:
        self.cuda_stream = address
        self._log = [] if log is None else log

    def wait_stream(self, other: Any) -> None:
        pass

    def synchronize(self) -> None:
        self._log.append("waited")


class FakeGraph:
    """Tells when it is reset."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def capture_begin(self, pool: Any, capture_error_mode: str) -> None:
        pass

    def capture_end(self) -> None:
        pass

    def reset(self) -> None:
        self._log.append("reset")


class Inputs:
    """As much of a step's inputs as capturing needs."""

    def nothing(self, shape: Any) -> Any:
        return SimpleNamespace(ring_1=None, listed=lambda: [np.zeros(2, dtype=np.int64)])

    def fill(self, news: Any, packing: Any, arrays: Any) -> None:
        pass

    def batch(self, views: Any, shape: Any) -> Any:
        return SimpleNamespace(rows=object())


class Bench:
    """Engines' graphs on a device that is not there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, addresses: Iterator[int]) -> None:
        self.log: list[str] = []
        self.made: list[int] = []
        self.begun: list[weakref.ref[FakeGraph]] = []
        self.current = FakeStream(0, self.log)
        self._addresses = addresses
        self.streams = CaptureStreams(self._make)
        self._give_back = self.streams.give_back
        monkeypatch.setattr(self.streams, "give_back", self._returned)
        monkeypatch.setattr(DecodeGraphs, "streams", self.streams)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
        monkeypatch.setattr(torch.cuda, "CUDAGraph", self._graph)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self.current)
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
        views = SimpleNamespace(ring_1=torch.zeros(1, dtype=torch.int64))
        monkeypatch.setattr(graphs, "views_of", lambda *given: views)

    def _make(self, device: torch.device) -> Any:
        self.made.append(next(self._addresses))
        return FakeStream(self.made[-1])

    def _returned(self, *given: Any) -> None:
        self.log.append("back")
        self._give_back(*given)

    def _graph(self) -> FakeGraph:
        graph = FakeGraph(self.log)
        self.begun.append(weakref.ref(graph))
        return graph

    def engine(
        self,
        compute: Compute | None = None,
        sizes: Sequence[int] = (1, 2),
        short_steps: ShortSteps = NO_SHORT_STEPS,
    ) -> Any:
        given: Any = Inputs()
        return DecodeGraphs(given, compute or drawn, Sizes(sizes, 32, short_steps), CPU)


def drawn(batch: Any, samples: bool) -> Outputs:
    return Outputs(None, torch.zeros(1, dtype=torch.int64))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch, iter(range(1, 100)))


def test_all_graphs_go_before_the_stream(bench: Bench) -> None:
    engine = bench.engine()
    for size in (2, 1):
        assert engine._captured(Variant(size)) is not None
    engine.close()
    assert bench.log == ["waited", "reset", "reset", "back"]
    gc.collect()
    assert not any(graph() for graph in bench.begun)
    engine.close()
    assert bench.log.count("reset") == 2 and bench.log.count("back") == 1


def test_the_next_engine_takes_the_stream_over(bench: Bench) -> None:
    for _ in range(3):
        engine = bench.engine()
        engine._captured(Variant(2))
        engine.close()
    assert bench.made == [1]


def test_engines_that_live_at_the_same_time_share_none(bench: Bench) -> None:
    first, second = bench.engine(), bench.engine()
    for engine in (first, second):
        engine._captured(Variant(2))
    assert first._side.cuda_stream != second._side.cuda_stream
    first.close()
    third = bench.engine()
    third._captured(Variant(1))
    assert bench.made == [1, 2] and third._side.cuda_stream == 1


def test_without_graphs_no_stream_is_taken(bench: Bench) -> None:
    bench.engine().close()
    assert bench.made == [] and bench.log == ["waited"]


def test_a_graph_that_failed_lasts_as_long_as_the_others(bench: Bench) -> None:
    calls = iter((False, True, False, False))

    def fails_once(batch: Any, samples: bool) -> Outputs:
        if next(calls):
            raise RuntimeError("cannot be captured")
        return drawn(batch, samples)

    engine = bench.engine(fails_once)
    assert engine._captured(Variant(2)) is None
    assert engine._captured(Variant(1)) is not None
    gc.collect()
    assert all(graph() for graph in bench.begun), "and nothing was reset"
    assert "reset" not in bench.log
    engine.close()
    assert bench.log == ["waited", "reset", "reset", "back"]


def test_a_broken_device_can_be_left(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = bench.engine()
    engine._captured(Variant(2))

    def broken() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(bench.current, "synchronize", broken)
    engine.close()
    assert bench.log == ["reset", "back"]


def test_addresses_that_come_again_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, iter((7, 7, 7, 8)))
    first = bench.streams.lend(CPU)
    second = bench.streams.lend(CPU)
    assert (first.cuda_stream, second.cuda_stream) == (7, 8)


def test_when_all_are_lent_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, cycle(range(1, KINDS + 1)))
    lent = [bench.streams.lend(CPU) for _ in range(KINDS)]
    with pytest.raises(RuntimeError, match="all 32 streams of cpu are those of other engines"):
        bench.streams.lend(CPU)
    bench.streams.give_back(lent[5], CPU)
    assert bench.streams.lend(CPU) is lent[5]


def test_devices_have_their_own() -> None:
    addresses = iter(range(1, 9))
    make: Any = lambda device: FakeStream(next(addresses))  # noqa: E731
    streams = CaptureStreams(make)
    stream = streams.lend(CPU)
    streams.give_back(stream, CPU)
    assert streams.lend(torch.device("meta")) is not stream
    assert streams.lend(CPU) is stream


def test_closing_an_executor_closes_its_graphs(bench: Bench) -> None:
    engine = bench.engine()
    engine._captured(Variant(2))
    runner = Runner.__new__(Runner)
    runner._graphs = engine
    held = weakref.ref(runner)
    executor = SingleDevice(runner, CPU)
    del runner, engine
    executor.close()
    assert bench.log == ["waited", "reset", "back"]
    assert held() is None


def found_sizes(engine: Any, tokens: int, times: int) -> list[int]:
    shape = SimpleNamespace(num_tokens=tokens, max_len=30, filtered=True, grouped=False)
    return [engine.find(shape, samples=True).size for _ in range(times)]


def test_a_larger_graph_stands_in_until_a_size_is_worth_its_own(bench: Bench) -> None:
    engine = bench.engine(sizes=[1, 2, 8, 12, 16])
    engine._captured(Variant(16, filtered=True))
    assert found_sizes(engine, 9, graphs.WORTH + 2) == [16] * graphs.WORTH + [12, 12]
    assert found_sizes(engine, 7, 2) == [12, 12], "the smallest that is large enough"
    assert found_sizes(engine, 2, 1) == [2], "nothing stands in for less than half of its size"
    assert found_sizes(engine, 1, 1) == [2]
    assert len(bench.begun) == 3


def test_what_could_not_be_captured_does_not_stand_in(bench: Bench) -> None:
    engine = bench.engine(sizes=[8, 12, 16])
    engine._graphs[Variant(16, filtered=True)] = None
    assert found_sizes(engine, 12, 1) == [12]
    assert found_sizes(engine, 8, 1) == [12]


SHORT = ShortSteps(8, 20)


@pytest.mark.parametrize(
    ("tokens", "max_len", "short"), [(8, 20, True), (8, 21, False), (9, 20, False), (1, 1, True)]
)
def test_short_steps_have_graphs_of_their_own(
    bench: Bench, tokens: int, max_len: int, short: bool
) -> None:
    engine = bench.engine(sizes=[1, 8, 12], short_steps=SHORT)
    shape = SimpleNamespace(num_tokens=tokens, max_len=max_len, filtered=False, grouped=False)
    engine.find(shape, samples=True)
    (variant,) = engine._graphs
    assert variant.short is short
    assert engine._sizes.longest(variant) == (20 if short else 32)


def test_all_plain_ones_are_captured_at_start(bench: Bench) -> None:
    engine = bench.engine(sizes=[1, 8, 12], short_steps=SHORT)
    engine.warm_up(samples=True)
    plain = [one for one in engine._graphs if not one.filtered and not one.grouped]
    assert [(one.size, one.short) for one in plain] == [
        (12, False), (8, False), (8, True), (1, False), (1, True),
    ]  # fmt: skip


def layout(*told: Any) -> KvLayout:
    return KvLayout((), short_steps=told)


def test_layer_groups_that_differ_have_no_short_steps() -> None:
    assert short_steps("k", [layout(32, 2048), layout(32, 2048)]) == ShortSteps(32, 2048)
    assert short_steps("k", [layout(32, 2048), layout(0, 0)]) == NO_SHORT_STEPS
    with pytest.raises(PluginContractError, match=r"kernel plugin k: .*\(32, -1\)"):
        short_steps("k", [layout(32, -1)])
