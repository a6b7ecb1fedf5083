"""How long a caller waits: for the first token, and from each token to the next."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from jackfield.core.bench.roofline import Machine
from jackfield.core.bench.step_figures import StepCounter, quantile
from jackfield.core.bench.streams import Stream, play
from jackfield.core.bench.throughput import machine_of
from jackfield.core.bench.workload_run import Subject, WorkloadRun, repetitions
from jackfield.core.bench.workloads import Workload
from jackfield.core.llm import LLM


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(WorkloadRun):
    """One run. streams: requests at once; the next ones are sent when all of them have ended.

    first_token_ms: from when the wave is sent, so what waits for a seat is in it. token_ms: from
    each token of an answer to the next; 0 where two came together, None if no answer has two.
    """

    streams: int
    first_token_ms_p50: float
    first_token_ms_p99: float
    token_ms_p50: float | None
    token_ms_p99: float | None


def run_latency(
    llm: LLM,
    *workloads: Workload,
    repeat: int = 1,
    greedy: bool = False,
    machine: Machine | None = None,
) -> Iterator[Latency]:
    """As `run_throughput`, wave after wave, with the moment of each token."""
    machine = machine or machine_of(llm)
    subjects = Subject.each(llm, workloads, machine, greedy=greedy)
    for figures in repetitions(subjects, _run, repeat):
        yield Latency(**figures)


def _run(subject: Subject, run: int) -> dict[str, Any]:
    counter = StepCounter(subject.llm.assembly.engine.metrics)
    streams: list[Stream] = []
    waves = []
    for prompts, params in subject.waves():
        started = perf_counter()
        streams += play(subject.llm, prompts, params)
        waves.append(perf_counter() - started)
    workload = subject.workload
    return {
        **subject.figures(run, counter, waves),
        "streams": min(workload.concurrency or len(workload.prompts), len(workload.prompts)),
        **_times(streams),
    }


def _times(streams: Sequence[Stream]) -> dict[str, float | None]:
    firsts = [stream.first for stream in streams]
    gaps = [gap for stream in streams for gap in stream.gaps]
    kinds = {"first_token_ms": firsts, "token_ms": gaps}
    return {
        f"{name}_p{percent}": round(1e3 * quantile(values, percent / 100), 3) if values else None
        for name, values in kinds.items()
        for percent in (50, 99)
    }
