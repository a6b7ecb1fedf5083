"""What a GPU's timeline tells: gaps between steps, and kernels, from events and from traces."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jackfield.core.bench.device_figures import NOT_MEASURED, from_steps
from jackfield.core.bench.gaps import Gap, GapFigures, GapRecorder
from jackfield.core.bench.timeline import TracedStep, gaps_us, traced_steps
from jackfield.core.bench.watching import wrapped


class Device:
    """A stream with a clock: work is queued by a host whose own clock goes on."""

    def __init__(self) -> None:
        self.host = 0.0
        self.free = 0.0

    def launch(self, seconds: float) -> None:
        self.free = max(self.free, self.host) + seconds

    def mark(self) -> "Mark":
        self.free = max(self.free, self.host)
        return Mark(self, self.free)


@dataclass
class Mark:
    device: Device
    moment: float

    def query(self) -> bool:
        return self.device.host >= self.moment

    def elapsed_time(self, end_event: Any) -> float:
        return 1e3 * float(end_event.moment - self.moment)


class Executor:
    """A step: seconds of the device, and of the host before and after it launches that."""

    def __init__(self, device: Device, compute: float, before: float, after: float) -> None:
        self.device, self.compute, self.before, self.after = device, compute, before, after

    def forward(self, plan: Any) -> Any:
        self.device.host += self.before
        self.device.launch(self.compute)
        self.device.host += self.after
        return plan

    def sample(self, ticket: Any, late: Any) -> None:
        self.device.launch(0.25)


def recorded(device: Device, executor: Any, waits: list[float]) -> list[Gap]:
    """waits: of the host before each step, until the device has ended and longer, or less."""
    recorder = GapRecorder(device.mark)
    with recorder.installed(executor):
        for wait in waits:
            device.host = max(device.host, device.free + wait)
            executor.sample(executor.forward(None), {})
    assert "forward" not in vars(executor) and "sample" not in vars(executor)
    return recorder.gaps()


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> Device:
    """The host's clock of the recorder is that of the device's host."""
    device = Device()
    monkeypatch.setattr("jackfield.core.bench.gaps.perf_counter", lambda: device.host)
    return device


def test_a_step_that_is_queued_in_time_has_no_gap(no_time: Device) -> None:
    executor = Executor(no_time, compute=8.0, before=0.5, after=0.5)
    assert recorded(no_time, executor, [0.0, -8.0, -8.0]) == [Gap(0.0, 0.0)] * 2


def test_a_late_step_waits_for_the_host(no_time: Device) -> None:
    executor = Executor(no_time, compute=8.0, before=0.5, after=0.5)
    assert recorded(no_time, executor, [0.0, 3.0, 0.0]) == [Gap(3.0, 4.0), Gap(0.0, 1.0)]


def test_a_step_that_is_queued_while_the_last_one_ends(no_time: Device) -> None:
    """`forward` begins in time, and launches when the device already stands still."""
    executor = Executor(no_time, compute=8.0, before=2.0, after=0.0)
    [gap] = recorded(no_time, executor, [0.0, -0.25])
    assert gap == Gap(0.0, 2.0)
    assert gap.least <= 1.75 <= gap.most


def test_nothing_lies_between_two_waves(no_time: Device) -> None:
    recorder, executor = GapRecorder(no_time.mark), Executor(no_time, 8.0, 0.5, 0.5)
    with recorder.installed(executor):  # type: ignore[arg-type]
        executor.sample(executor.forward(None), {})
        recorder.restart()
        no_time.host = 100.0
        executor.sample(executor.forward(None), {})
    assert recorder.gaps() == []


def test_gaps_as_figures() -> None:
    gaps = [Gap(one / 1e6, 2 * one / 1e6) for one in range(1, 101)]
    assert GapFigures.of(gaps) == (100, 51.0, 100.0, 102.0, 200.0)


def test_watching_ends_as_it_began() -> None:
    class Owner:
        def call(self) -> str:
            return "a"

    owner = Owner()
    with wrapped(owner, "call", lambda call: lambda: call() + "b"):
        with wrapped(owner, "call", lambda call: lambda: call() + "c"):
            assert owner.call() == "abc"
        assert owner.call() == "ab"
    assert owner.call() == "a" and vars(owner) == {}


def event(category: str, name: str, begin: float, length: float, **arguments: Any) -> Any:
    found = {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": length, "tid": 1}
    return {**found, "args": arguments}


def launched(
    correlation: int, host: float, begin: float, length: float, thread: int = 1
) -> list[Any]:
    launch = event("cuda_runtime", "cudaLaunchKernel", host, 1, correlation=correlation)
    kernel = event("kernel", "some kernel", begin, length, correlation=correlation)
    return [{**launch, "tid": thread}, kernel]


TRACE = [
    {"ph": "M", "name": "process_name"},
    event("user_annotation", "step", 0, 100),
    event("user_annotation", "forward", 10, 20),
    event("user_annotation", "sample", 40, 10),
    event("user_annotation", "forward", 110, 20),
    event("user_annotation", "sample", 140, 10),
    event("user_annotation", "forward", 210, 5),
    *launched(1, 5, 6, 2),  # before any step
    *launched(2, 12, 20, 30),
    *launched(2, 12, 51, 9),  # of the same graph
    *launched(3, 41, 60, 10),
    *launched(9, 35, 90, 1),  # between the two
    event("cuda_runtime", "cudaMemcpyAsync", 111, 1, correlation=4),
    event("gpu_memcpy", "Memcpy HtoD", 115, 2, correlation=4),
    *launched(5, 120, 121, 4),
    *launched(6, 145, 150, 5),
    *launched(7, 146, 190, 50, thread=2),  # a transfer's
    event("cuda_runtime", "cudaMemcpyAsync", 147, 1, correlation=8),
    event("gpu_memcpy", "Memcpy DtoH", 160, 9, correlation=8),  # the tokens
]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_kernels_belong_to_the_step_that_launched_them(tmp_path: Path, name: str) -> None:
    text = json.dumps({"traceEvents": TRACE}).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    steps = traced_steps(path)
    assert steps == [TracedStep(20, 70, 3), TracedStep(115, 155, 2)]
    assert gaps_us(steps) == [45]


def test_kernels_per_layer_are_those_of_decodes() -> None:
    steps = [TracedStep(0, 9, 900), TracedStep(10, 20, 40), TracedStep(25, 30, 42)]
    found = from_steps(NOT_MEASURED, steps, [False, True, True], layers=4)
    assert (found.kernels_per_step, found.kernels_per_layer) == (41, 10.25)
    assert (found.traced_gap_us_p50, found.traced_gap_us_p99) == (5, 5)
    assert from_steps(NOT_MEASURED, steps, [True], layers=4) == NOT_MEASURED
    assert from_steps(NOT_MEASURED, [], [], layers=4) == NOT_MEASURED
