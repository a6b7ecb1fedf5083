"""Tokens per second of a workload, and where the time went."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch

from jackfield.core.api import EngineStoppedError, SamplingParams
from jackfield.core.assemble import Assembly
from jackfield.core.bench.machine import measure_machine
from jackfield.core.bench.provenance import provenance
from jackfield.core.bench.roofline import ModelCost, ideal_seconds
from jackfield.core.bench.workloads import Workload
from jackfield.core.engine.metrics import Metrics
from jackfield.core.llm import LLM

TEMPERATURE = 0.6
WARM_UP = 2
SHORT = slice(0, WARM_UP)


class Reference(NamedTuple):
    """The roofline of one workload on one machine. bandwidth in bytes/s, flops in operations/s."""

    seconds: float
    bandwidth: float
    flops: float


@dataclass(frozen=True, slots=True)
class Throughput:
    """One run. Planning times in microseconds, step times in milliseconds.

    roofline_share: the roofline's seconds of the seconds it took. wave_ms: mean time of a wave,
    for workloads that have waves. cached_prompt_tokens: that were there already. where: model,
    device, stack, revision, versions.
    """

    workload: str
    run: int
    requests: int
    prompt_tokens: int
    cached_prompt_tokens: int
    output_tokens: int
    seconds: float
    output_tokens_per_second: float
    total_tokens_per_second: float
    wave_ms: float | None
    steps: int
    preemptions: int
    planning_us_p50: float
    planning_us_p99: float
    step_ms_p50: float
    step_ms_p99: float
    roofline_share: float
    roofline_seconds: float
    bandwidth: float
    flops: float
    temperature: float
    where: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """For JSON, flat but for the stack and the versions."""
        found = asdict(self)
        where: dict[str, Any] = found.pop("where")
        return where | found


def run_throughput(
    llm: LLM, workload: Workload, *, repeat: int = 1, greedy: bool = False
) -> Iterator[Throughput]:
    """Measure the machine, warm up with two prompts, then yield one result per run.

    Raises `RequestError` for a workload that the model's context or pool cannot hold.
    """
    temperature = 0.0 if greedy else TEMPERATURE
    params = [
        SamplingParams(temperature=temperature, ignore_eos=True, max_tokens=n, detokenize=False)
        for n in workload.lengths
    ]
    where, reference = provenance(llm.assembly), _reference(llm.assembly, workload)
    llm.generate(workload.prompts[SHORT], params[SHORT], use_tqdm=False)
    for run in range(repeat):
        llm.reset_prefix_cache()
        yield _run(llm, workload, params, run, reference, where)


def _reference(assembly: Assembly, workload: Workload) -> Reference:
    summary = assembly.summary
    dtype = getattr(torch, summary.dtype)
    config = json.loads((Path(summary.model) / "config.json").read_text())
    cost = ModelCost.of(
        assembly.spec,
        tied=bool(config.get("tie_word_embeddings", False)),
        itemsize=dtype.itemsize,
        kv_bytes=summary.kv_bytes / summary.kv_tokens / assembly.spec.num_layers,
    )
    machine = measure_machine(torch.device(summary.device), dtype)
    return Reference(ideal_seconds(workload, cost, machine), *machine)


def _run(
    llm: LLM,
    workload: Workload,
    params: list[SamplingParams],
    run: int,
    reference: Reference,
    where: dict[str, Any],
) -> Throughput:
    metrics = llm.assembly.engine.metrics
    steps, preemptions = metrics.steps, metrics.preemptions
    cached = metrics.cached_prompt_tokens
    metrics.planning.clear()
    metrics.step_times.clear()
    waves = [_wave(llm, workload, params, wave) for wave in workload.waves()]
    seconds, outputs = sum(waves), workload.num_output_tokens
    return Throughput(
        workload=workload.name,
        run=run,
        requests=len(workload.prompts),
        prompt_tokens=workload.num_prompt_tokens,
        cached_prompt_tokens=metrics.cached_prompt_tokens - cached,
        output_tokens=outputs,
        seconds=round(seconds, 4),
        output_tokens_per_second=round(outputs / seconds, 2),
        total_tokens_per_second=round((outputs + workload.num_prompt_tokens) / seconds, 2),
        wave_ms=round(1e3 * seconds / len(waves), 2) if workload.concurrency else None,
        steps=metrics.steps - steps,
        preemptions=metrics.preemptions - preemptions,
        roofline_share=round(reference.seconds / seconds, 4),
        roofline_seconds=round(reference.seconds, 4),
        bandwidth=round(reference.bandwidth),
        flops=round(reference.flops),
        temperature=params[0].temperature,
        where=where,
        **_quantiles(metrics),
    )


def _wave(llm: LLM, workload: Workload, params: list[SamplingParams], wave: slice) -> float:
    started = perf_counter()
    answers = llm.generate(workload.prompts[wave], params[wave], use_tqdm=False)
    seconds = perf_counter() - started
    for answer, wanted in zip(answers, workload.lengths[wave], strict=True):
        output = answer.outputs[0]
        if len(output.token_ids) != wanted:
            reason = output.error or f"it ended after {len(output.token_ids)} of {wanted} tokens"
            raise EngineStoppedError(f"a request of the workload failed: {reason}")
    return seconds


def _quantiles(metrics: Metrics) -> dict[str, float]:
    return {
        "planning_us_p50": round(metrics.planning.quantile(0.5) * 1e6, 1),
        "planning_us_p99": round(metrics.planning.quantile(0.99) * 1e6, 1),
        "step_ms_p50": round(metrics.step_times.quantile(0.5) * 1e3, 3),
        "step_ms_p99": round(metrics.step_times.quantile(0.99) * 1e3, 3),
    }
