"""Latency, repetitions of several workloads, and traces of steps."""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from jackfield import LLM
from jackfield.core.api import EngineStoppedError
from jackfield.core.bench.device_figures import NOT_MEASURED, DeviceFigures, measure_device
from jackfield.core.bench.latency import Latency, run_latency
from jackfield.core.bench.roofline import Machine
from jackfield.core.bench.step_figures import histogram, quantile
from jackfield.core.bench.streams import play, request_params
from jackfield.core.bench.throughput import run_throughput
from jackfield.core.bench.timeline import traced_steps
from jackfield.core.bench.trace import TraceWindow, record, trace_steps
from jackfield.core.bench.workloads import Fixed, Workload, make_workload
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.testing.tiny_model import VOCAB, write_tiny_model
from jackfield.server.bench_report import throughput_table
from jackfield.server.cli import main

MACHINE = Machine(1e9, 1e10)
PHASES = {"step", "plan", "commit", "forward", "sample", "collect"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    small: dict[str, Any] = {"kernel.stack": ["torch"], "engine.threads": 1}
    with LLM(folder, progress=SilentProgress(), num_gpu_blocks_override=64, **small) as made:
        yield made


def small(requests: int = 6, inputs: int = 10, outputs: int = 5) -> Workload:
    return make_workload("tokens", largest=VOCAB - 1, fixed=Fixed(requests, inputs, outputs))


def waves(workload: Workload) -> list[Any]:
    params = request_params(workload, greedy=True)
    return [(workload.prompts[wave], params[wave]) for wave in workload.waves()]


def test_each_token_is_timed(llm: LLM) -> None:
    workload = small()
    streams = play(llm, workload.prompts, request_params(workload, greedy=True))
    assert [len(stream.gaps) for stream in streams] == [4] * 6
    assert all(stream.first > 0 and min(stream.gaps) >= 0 for stream in streams)


def test_waves_wait_for_each_other(llm: LLM) -> None:
    runs = list(
        run_latency(llm, small()._replace(concurrency=2), repeat=2, greedy=True, machine=MACHINE)
    )
    assert [run.run for run in runs] == [0, 1]
    for run in runs:
        assert (run.streams, run.steps, run.output_tokens) == (2, 3 * 5, 30)
        assert run.wave_ms == pytest.approx(1e3 * run.seconds / 3, rel=0.01, abs=0.1)
        assert run.token_ms_p50 is not None and run.token_ms_p99 is not None
        assert 0 < run.token_ms_p50 <= run.token_ms_p99
        assert 0 < run.first_token_ms_p50 <= run.first_token_ms_p99 < run.wave_ms * 3
        assert json.loads(json.dumps(run.as_dict()))["streams"] == 2


def test_what_a_device_tells_is_measured_after_all_runs(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, whose timeline is replaced here."""
    seen: list[int] = []

    def measure(_: LLM, waves: Any) -> DeviceFigures:
        seen.append(llm.assembly.engine.metrics.steps)
        return NOT_MEASURED._replace(kernels_per_step=len(waves))

    monkeypatch.setattr("jackfield.core.bench.workload_run.Subject.on_cpu", False)
    monkeypatch.setattr("jackfield.core.bench.workload_run.measure_device", measure)
    two = (small()._replace(concurrency=2), small(2))
    runs = list(run_throughput(llm, *two, repeat=2, machine=MACHINE))
    assert [run.on_device.kernels_per_step for run in runs] == [3, 3, 1, 1]
    assert len(seen) == 2 and seen[0] == seen[1]


class HostMark:
    """An event of a device that does everything at once."""

    def __init__(self) -> None:
        self.moment = perf_counter()

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: Any) -> float:
        return 1e3 * float(end_event.moment - self.moment)


def test_gaps_between_the_steps_of_a_workload(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jackfield.core.bench.device_figures.cuda_mark", HostMark)
    monkeypatch.setattr("torch.cuda.synchronize", lambda *_: None)
    found = measure_device(llm, waves(small()._replace(concurrency=2)))
    assert found.host_gap_us_p50 is not None and found.host_gap_most_us_p50 is not None
    assert 0 < found.host_gap_us_p50 < found.host_gap_most_us_p50
    assert found.kernels_per_step is None  # no kernels of a GPU in the trace
    assert not llm.assembly.engine.has_work


def test_one_token_has_no_next(llm: LLM) -> None:
    [run] = run_latency(llm, small(outputs=1), machine=MACHINE)
    assert run.token_ms_p50 is None
    assert throughput_table([run]).count(" -") >= 2


def test_a_run_that_is_stopped_leaves_nothing_behind(llm: LLM) -> None:
    workload, asked = small(outputs=50), iter([False, False, True, True, True])
    streams = play(
        llm, workload.prompts, request_params(workload, greedy=True), lambda: next(asked)
    )
    assert all(len(stream.gaps) < 5 for stream in streams)
    assert not llm.assembly.engine.has_work
    llm.assembly.engine.check()


def test_a_stream_that_is_cut_short_is_no_result(llm: LLM) -> None:
    with pytest.raises(EngineStoppedError, match="it ended after 6 of 50 tokens"):
        list(run_latency(llm, small(2, 250, 50), machine=MACHINE))


def test_values_are_counted_by_size() -> None:
    assert histogram([1.0, 1.2, 1.4142, 1.5, 8.0]) == [(1.0, 1), (1.414, 2), (2.0, 1), (8.0, 1)]
    assert histogram([]) == []
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile(range(100), 0.99) == 99


def test_a_histogram_fits_on_a_screen(llm: LLM) -> None:
    [run] = run_latency(llm, small(), machine=MACHINE)
    figures = {name: getattr(run, name) for name in Latency.__dataclass_fields__}
    counts = [(float(bound), bound) for bound in range(1, 22)]
    text = throughput_table([Latency(**{**figures, "step_ms_histogram": counts})])
    assert "tokens: 231 steps" in text
    bars = [line for line in text.splitlines() if "up to" in line]
    assert [line.split()[2] for line in bars] == [
        "4.00",
        "8.00",
        "12.00",
        "16.00",
        "20.00",
        "21.00",
    ]
    assert bars[4].endswith("#" * 40 + " 32.0%") and bars[5].endswith(" 9.1%")


def annotations(path: Path) -> Counter[str]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    events = json.loads(text)["traceEvents"]
    return Counter(event["name"] for event in events if event.get("cat") == "user_annotation")


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_names_the_phases_of_each_step(llm: LLM, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert record(llm, small(), TraceWindow(1, steps=3), path, greedy=True) == 3
    found = annotations(path)
    assert set(found) >= PHASES
    assert found["forward"] == found["sample"] == 3
    assert traced_steps(path) == []
    assert not {"forward", "sample", "collect"} & set(vars(llm.assembly.loaded.executor))
    assert "step" not in vars(llm.assembly.engine)


def test_a_window_ends_after_its_seconds(llm: LLM) -> None:
    trace = trace_steps(llm, waves(small()), TraceWindow(steps=50, seconds=0.0))
    assert trace.done and len(trace.decodes) == 1


def test_a_window_may_begin_with_decodes(llm: LLM, tmp_path: Path) -> None:
    trace = trace_steps(llm, waves(small()), TraceWindow(decodes=True, steps=2))
    assert trace.decodes == [True, True]
    assert trace.export(tmp_path / "a.json")
    late = trace_steps(llm, waves(small()), TraceWindow(first=99))
    assert late.decodes == [] and not late.export(tmp_path / "b.json")


@pytest.mark.usefixtures("quick")
def test_several_workloads_on_one_screen(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    flags = (
        "--model", str(folder), "--num-gpu-blocks-override=64", "--set=engine.threads=1",
        '--set=kernel.stack=["torch"]', "--skip-tokenizer-init",
    )  # fmt: skip
    two = ("--workload", "far,near", "--workload=far", "--repeat=1")
    trace = f"--profile={tmp_path / 'trace.json.gz'}"
    assert main(["bench", "latency", *flags, *two, "--streams=1", trace]) == 0
    out = capsys.readouterr().out
    assert "near: 2 requests, 12 tokens in, 8 out" in out
    assert "far: 3 requests, 9 tokens in, 6 out" in out and "far: 6 steps" in out
    assert "FIRST MS P50" in out and "TOKEN MS P50" in out and "####" in out
    assert {path.name for path in tmp_path.iterdir()} == {
        "trace.near.json.gz", "trace.far.json.gz",
    }  # fmt: skip
    assert annotations(tmp_path / "trace.near.json.gz")["forward"] == 8


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small workloads more, and a machine that need not be measured."""
    from jackfield.core.bench import workloads

    near = small(2, 6, 4)._replace(name="near")
    far = small(3, 3, 2)._replace(name="far")
    monkeypatch.setattr("jackfield.core.bench.throughput.measure_machine", lambda *_: MACHINE)
    monkeypatch.setattr(
        workloads, "NAMED", {**workloads.NAMED, "near": lambda _: near, "far": lambda _: far}
    )


def test_mistakes_of_profiles(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for flags, message in (
        (["--profile-from=3"], "--profile-from says where --profile begins"),
        ([f"--profile={tmp_path}/no/trace.json"], "--profile: there is no folder"),
        (["--workload=cpu16,mix"], "unknown workload 'mix'"),
    ):
        assert main(["bench", "throughput", *flags]) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]


def test_what_a_device_tells_is_shown(llm: LLM) -> None:
    [run] = run_latency(llm, small(), machine=MACHINE)
    assert run.on_device == NOT_MEASURED
    assert "host gap" not in throughput_table([run])
    figures = {name: getattr(run, name) for name in Latency.__dataclass_fields__}
    told = DeviceFigures(1.25, 40.0, 2.0, 77.0, 3.5, 99.0, 340, 12.14)
    text = throughput_table([Latency(**{**figures, "on_device": told})])
    assert "1.2 us p50, 40.0 p99; at most 2.0 and 77.0" in text
    assert "3.5 us p50, 99.0 p99" in text
    assert "340 per step of decodes, 12.1 per layer" in text
