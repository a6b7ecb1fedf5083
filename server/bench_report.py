"""Results of measurements, on one screen."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jackfield.server.table import table

if TYPE_CHECKING:
    from jackfield.core.bench.device_figures import DeviceFigures
    from jackfield.core.bench.expert_loads import ExpertLoad
    from jackfield.core.bench.kernels.case import OperationTime
    from jackfield.core.bench.kernels.measure import KernelTimes
    from jackfield.core.bench.planning import Planning
    from jackfield.core.bench.workload_run import WorkloadRun
    from jackfield.server.load.result import LoadResult

BAR, BARS = 40, 10
LAYERS = 8
"""With experts, that are shown."""


def throughput_table(runs: "Sequence[WorkloadRun]") -> str:
    """Of throughput or latency: what ran on what, one line per run, the steps of each workload."""
    first = runs[0]
    where = first.where
    kinds = [(kind, ", ".join(names)) for kind, names in where["stack"].items() if names]
    names = list(dict.fromkeys(run.workload for run in runs))
    groups = [[run for run in runs if run.workload == name] for name in names]
    return "\n".join(
        [
            *(_workload(group[0]) for group in groups),
            f"device      {_devices(where)}, {where['threads']} threads, {where['dtype']}, "
            f"{first.bandwidth / 1e9:,.1f} GB/s, {first.flops / 1e12:,.3f} TFLOP/s",
            f"stack       {'; '.join(' '.join(kind) for kind in kinds)}",
            f"source      {_source(where)}",
            "",
            _run_table(runs),
            *(line for group in groups for line in _steps(group)),
        ]
    )


def _devices(where: dict[str, Any]) -> str:
    """Ranks have a GPU each, or share a CPU; speeds beside it are those that one of them sees."""
    ranks = where["ranks"]
    return f"{where['device']}" if ranks == 1 else f"{ranks} ranks on {where['device']}"


def _workload(run: "WorkloadRun") -> str:
    return (
        f"workload    {run.workload}: {run.requests} requests, {run.prompt_tokens:,} "
        f"tokens in, {run.output_tokens:,} out, temperature {run.temperature:g}, "
        f"roofline {run.roofline_seconds:.2f} s"
    )


def _run_table(runs: "Sequence[WorkloadRun]") -> str:
    latency = "first_token_ms_p50" in runs[0].as_dict()
    header = ("WORKLOAD", "RUN", "OUT TOK/S", "TOTAL TOK/S", "SECONDS", "WAVE MS", "ROOFLINE",
              "CACHED", "STEPS", "PLAN US P50", "STEP MS P50", "P99")  # fmt: skip
    more = ("FIRST MS P50", "P99", "TOKEN MS P50", "P99") if latency else ()
    return table((*header, *more), [_run_row(run, latency) for run in runs])


def _run_row(run: "WorkloadRun", latency: bool) -> list[str]:
    cells = [
        run.workload, str(run.run), f"{run.output_tokens_per_second:,.0f}",
        f"{run.total_tokens_per_second:,.0f}", f"{run.seconds:.2f}", _or_dash(run.wave_ms),
        f"{run.roofline_share:.0%}", f"{run.cached_prompt_tokens / run.prompt_tokens:.0%}",
        str(run.steps), f"{run.planning_us_p50:.0f}", f"{run.step_ms_p50:.2f}",
        f"{run.step_ms_p99:.2f}",
    ]  # fmt: skip
    if latency:
        figures = run.as_dict()
        cells += [
            _or_dash(figures[f"{what}_ms_{share}"], ".2f")
            for what in ("first_token", "token")
            for share in ("p50", "p99")
        ]
    return cells


def _steps(group: "Sequence[WorkloadRun]") -> list[str]:
    """How long the steps of all runs of a workload took, and what the device tells of them."""
    counts: Counter[float] = Counter()
    for run in group:
        counts.update(dict(run.step_ms_histogram))
    rows = _coarse(sorted(counts.items()))
    most, total = max(count for _, count in rows), counts.total()
    bars = [
        f"  up to {bound:>9,.2f} ms {'#' * -(-BAR * count // most):<{BAR}} {count / total:.1%}"
        for bound, count in rows
    ]
    return [
        "", f"{group[0].workload}: {total:,} steps", *bars, *_on_device(group[0].on_device),
        *_experts(group[-1].experts),
    ]  # fmt: skip


def _experts(loads: "Sequence[ExpertLoad]") -> list[str]:
    """How evenly the tokens of the last run went to them: the layers that are least even."""
    uneven = sorted(loads, key=lambda load: -load.busiest)[:LAYERS]
    if not uneven:
        return []
    rows = [
        [str(load.layer), str(load.experts), f"{load.tokens:,}", f"{load.busiest:.2f}",
         f"{load.least:.2f}", str(load.idle)]
        for load in uneven
    ]  # fmt: skip
    header = ("LAYER", "EXPERTS", "TOKENS", "BUSIEST", "LEAST", "IDLE")
    title = f"experts: the {len(uneven)} of {len(loads)} layers that are least even; 1 = even"
    return ["", title, table(header, rows)]


def _coarse(rows: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Neighbours together until there are few."""
    while len(rows) > BARS:
        pairs = [rows[place : place + 2] for place in range(0, len(rows), 2)]
        rows = [(pair[-1][0], sum(count for _, count in pair)) for pair in pairs]
    return rows


def _on_device(figures: "DeviceFigures") -> list[str]:
    lines = []
    if figures.host_gap_us_p50 is not None:
        lines.append(
            f"  host gap      {figures.host_gap_us_p50:,.1f} us p50, "
            f"{figures.host_gap_us_p99:,.1f} p99; at most {figures.host_gap_most_us_p50:,.1f} and "
            f"{figures.host_gap_most_us_p99:,.1f} (a run of its own, with events)"
        )
    if figures.traced_gap_us_p50 is not None:
        lines.append(
            f"  in a profiler {figures.traced_gap_us_p50:,.1f} us p50, "
            f"{figures.traced_gap_us_p99:,.1f} p99 (steps of decodes, slowed down by it)"
        )
    if figures.host_gap_us_p50 is not None and figures.kernels_per_step is None:
        lines.append("  kernels       the profiler saw none")
    if figures.kernels_per_step is not None:
        lines.append(
            f"  kernels       {figures.kernels_per_step} per step of decodes, "
            f"{figures.kernels_per_layer:.1f} per layer"
        )
    return lines


def kernel_lines(result: "KernelTimes") -> str:
    """The ceilings, then one line per operation and size."""
    where, ceilings = result.where, result.ceilings
    header = ("OPERATION", "SIZE", "BY", "US", "TB/S", "TFLOP/S", "SHARE", "OF", "")
    return "\n".join(
        [
            f"shape       {result.shape}{_part(where)}, {where['dtype']}",
            f"device      {where['device']}, {where['threads']} threads",
            f"ceilings    {ceilings.read / 1e9:,.1f} GB/s read, {ceilings.copy / 1e9:,.1f} GB/s "
            f"copied, {ceilings.flops / 1e12:,.3f} TFLOP/s",
            f"source      {_source(where)}",
            *(f"notice      nobody serves {name}" for name in result.unserved),
            "",
            table(header, [_operation_row(one) for one in result.operations]),
        ]
    )


def _part(where: dict[str, Any]) -> str:
    ranks = where["ranks"]
    return "" if ranks == 1 else f", the part of one of {ranks} ranks"


def _operation_row(one: "OperationTime") -> tuple[str, ...]:
    if one.us is None:
        return (one.operation, one.size, one.owner, *"-----", f"{one.problem}")
    assert one.bytes_per_second is not None and one.flops_per_second is not None
    notes = ["in cache"] * one.in_cache + ["in a graph"] * one.captured
    return (
        one.operation, one.size, one.owner, f"{one.us:,.1f}",
        f"{one.bytes_per_second / 1e12:.3g}",
        f"{one.flops_per_second / 1e12:.3g}" if one.flops else "-", f"{one.share:.0%}",
        f"{one.limit}", ", ".join(notes),
    )  # fmt: skip


def _source(where: dict[str, Any]) -> str:
    names = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    return f"{names}, revision {where['git_revision'] or 'unknown'}"


def plan_lines(result: "Planning") -> str:
    """Who was planned, and how long it took."""
    faults = [f"fault       {name}: {what}" for name, what in result.faults.items()]
    return "\n".join(
        [
            f"stack       {', '.join([*result.stack['scheduler'], *result.stack['advisors']])}",
            f"crowd       {result.running} running, {result.waiting:,} waiting, "
            f"{result.admissions} admissions in {result.steps} steps",
            f"planning    {result.planning_us_p50:.0f} us p50, {result.planning_us_p99:.0f} us p99",
            *faults,
        ]
    )


def load_table(runs: "list[LoadResult]") -> str:
    """What was sent, one line per run, and what failed."""
    first = runs[0]
    header = ("RUN", "OUT TOK/S", "SECONDS", "FIRST MS P50", "P99", "GAP MS P50", "P99",
              "ANSWER MS P50", "P99", "FAILED", "HEALTH MS P99", "CPU US/TOKEN")  # fmt: skip
    rows = [
        (str(place), f"{run.output_tokens_per_second:,.0f}", f"{run.seconds:.2f}",
         f"{run.first_token_ms_p50:.1f}", f"{run.first_token_ms_p99:.1f}",
         f"{run.gap_ms_p50:.2f}", f"{run.gap_ms_p99:.2f}", f"{run.answer_ms_p50:.0f}",
         f"{run.answer_ms_p99:.0f}", str(run.failed), _or_dash(run.health_ms_p99),
         _or_dash(run.cpu_us_per_token))
        for place, run in enumerate(runs)
    ]  # fmt: skip
    failures = [
        f"failed      {count} times: {problem}"
        for run in runs for problem, count in run.problems.items()
    ]  # fmt: skip
    return "\n".join(
        [
            f"workload    {first.workload}: {first.requests} requests, {first.streams} at once, "
            f"{first.prompt_tokens:,} tokens in, {first.output_tokens:,} out",
            *failures,
            "",
            table(header, rows),
        ]
    )


def _or_dash(value: float | None, form: str = ".1f") -> str:
    return "-" if value is None else format(value, form)
