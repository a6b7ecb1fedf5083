"""Tokens per second of a workload, and where the time went."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from jackfield.core.api import EngineStoppedError, SamplingParams
from jackfield.core.bench.machine import measure_machine
from jackfield.core.bench.provenance import device_of
from jackfield.core.bench.roofline import Machine
from jackfield.core.bench.step_figures import StepCounter
from jackfield.core.bench.workload_run import Subject, WorkloadRun, repetitions
from jackfield.core.bench.workloads import Workload
from jackfield.core.llm import LLM


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput(WorkloadRun):
    """One run of a workload that is sent as fast as it goes."""


def run_throughput(
    llm: LLM,
    *workloads: Workload,
    repeat: int = 1,
    greedy: bool = False,
    machine: Machine | None = None,
) -> Iterator[Throughput]:
    """Measure the machine if that was not done, and each workload; gives a result per run.

    On a GPU the results come after the last run of all workloads. Raises `RequestError` for a
    workload that the model's context or pool cannot hold.
    """
    machine = machine or machine_of(llm)
    subjects = Subject.each(llm, workloads, machine, greedy=greedy)
    for figures in repetitions(subjects, _run, repeat):
        yield Throughput(**figures)


def machine_of(llm: LLM) -> Machine:
    """The speeds of the device that the model, or its first rank, is on, measured now."""
    dtype: torch.dtype = getattr(torch, llm.assembly.summary.dtype)
    return measure_machine(device_of(llm.assembly), dtype)


def _run(subject: Subject, run: int) -> dict[str, Any]:
    counter = StepCounter(subject.llm.assembly.engine.metrics)
    waves = [_wave(subject.llm, prompts, params) for prompts, params in subject.waves()]
    return subject.figures(run, counter, waves)


def _wave(llm: LLM, prompts: Sequence[list[int]], params: Sequence[SamplingParams]) -> float:
    started = perf_counter()
    answers = llm.generate(prompts, params, use_tqdm=False)
    seconds = perf_counter() - started
    for answer, wanted in zip(answers, params, strict=True):
        output, length = answer.outputs[0], wanted.max_tokens
        if len(output.token_ids) != length:
            reason = output.error or f"it ended after {len(output.token_ids)} of {length} tokens"
            raise EngineStoppedError(f"a request of the workload failed: {reason}")
    return seconds
