"""Results of measurements, on one screen."""

from typing import TYPE_CHECKING, Any

from jackfield.server.table import table

if TYPE_CHECKING:
    from jackfield.core.bench.planning import Planning
    from jackfield.core.bench.throughput import Throughput
    from jackfield.server.load.result import LoadResult


def throughput_table(runs: "list[Throughput]") -> str:
    """What was measured, then one line per run."""
    first = runs[0]
    where = first.where
    kinds = [(kind, ", ".join(names)) for kind, names in where["stack"].items() if names]
    header = ("RUN", "OUT TOK/S", "TOTAL TOK/S", "SECONDS", "CACHED", "STEPS", "PLAN US P50", "P99",
              "STEP MS P50", "P99", "ROOFLINE")  # fmt: skip
    rows = [
        (str(run.run), f"{run.output_tokens_per_second:,.0f}",
         f"{run.total_tokens_per_second:,.0f}", f"{run.seconds:.2f}",
         f"{run.cached_prompt_tokens / run.prompt_tokens:.0%}", str(run.steps),
         f"{run.planning_us_p50:.0f}", f"{run.planning_us_p99:.0f}", f"{run.step_ms_p50:.2f}",
         f"{run.step_ms_p99:.2f}", f"{run.roofline_share:.0%}")
        for run in runs
    ]  # fmt: skip
    return "\n".join(
        [
            f"workload    {first.workload}: {first.requests} requests, {first.prompt_tokens:,} "
            f"tokens in, {first.output_tokens:,} out, temperature {first.temperature:g}",
            f"device      {where['device']}, {where['threads']} threads, {where['dtype']}, "
            f"{first.bandwidth / 1e9:,.1f} GB/s, {first.flops / 1e12:,.3f} TFLOP/s",
            f"stack       {'; '.join(' '.join(kind) for kind in kinds)}",
            f"source      {_source(where)}",
            f"roofline    {first.roofline_seconds:.2f} s",
            "",
            table(header, rows),
        ]
    )


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


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
