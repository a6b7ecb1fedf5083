"""What a GPU's own timeline tells of a workload, measured apart from the runs that count."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from jackfield.core.bench.gaps import GapFigures, GapRecorder, cuda_mark
from jackfield.core.bench.step_figures import quantile
from jackfield.core.bench.streams import play
from jackfield.core.bench.timeline import TracedStep, gaps_us, traced_steps
from jackfield.core.bench.trace import TraceWindow, Wave, trace_steps
from jackfield.core.llm import LLM

DECODES = TraceWindow(steps=40, decodes=True)


class DeviceFigures(NamedTuple):
    """Times in microseconds per step; None = not measured, as on a CPU.

    host_gap: that the device stood still between two steps, told by events in a repetition of its
    own; `most` counts in the host's time until its first launch, where that can have mattered.
    traced_gap: the same from the timeline of some steps of decodes, which recording slows down.
    kernels_per_step, kernels_per_layer: of those steps, all kernels divided by the model's layers.
    """

    host_gap_us_p50: float | None = None
    host_gap_us_p99: float | None = None
    host_gap_most_us_p50: float | None = None
    host_gap_most_us_p99: float | None = None
    traced_gap_us_p50: float | None = None
    traced_gap_us_p99: float | None = None
    kernels_per_step: int | None = None
    kernels_per_layer: float | None = None


NOT_MEASURED = DeviceFigures()


def measure_device(llm: LLM, waves: Sequence[Wave]) -> DeviceFigures:
    """Run the workload once more with events, and as far as its first decodes with a profiler."""
    found = _from_gaps(_gaps(llm, waves))
    trace = trace_steps(llm, waves[:1], DECODES)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        steps = traced_steps(path) if trace.export(path) else []
    return from_steps(found, steps, trace.decodes, llm.assembly.spec.num_layers)


def _gaps(llm: LLM, waves: Sequence[Wave]) -> GapFigures | None:
    llm.reset_prefix_cache()
    recorder = GapRecorder(cuda_mark)
    with recorder.installed(llm.assembly.loaded.executor):
        for prompts, params in waves:
            recorder.restart()
            play(llm, prompts, params)
    torch.cuda.synchronize()
    gaps = recorder.gaps()
    return GapFigures.of(gaps) if gaps else None


def _from_gaps(gaps: GapFigures | None) -> DeviceFigures:
    return NOT_MEASURED if gaps is None else DeviceFigures(*gaps[1:])


def from_steps(
    found: DeviceFigures, steps: Sequence[TracedStep], decodes: Sequence[bool], layers: int
) -> DeviceFigures:
    """With what the trace tells. decodes: of each step, whether it computed no prompt."""
    if len(steps) != len(decodes) or not any(decodes):
        return found
    gaps = gaps_us(steps)
    pure = zip(steps, decodes, strict=True)
    kernels = round(median(step.kernels for step, is_decode in pure if is_decode))
    return found._replace(
        traced_gap_us_p50=round(quantile(gaps, 0.5), 1) if gaps else None,
        traced_gap_us_p99=round(quantile(gaps, 0.99), 1) if gaps else None,
        kernels_per_step=kernels,
        kernels_per_layer=round(kernels / layers, 2),
    )
