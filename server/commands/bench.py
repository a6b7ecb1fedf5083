"""`jackfield bench`: how fast it is here, or how fast a server is."""

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from jackfield.core.api import ConfigError
from jackfield.core.inspection import load_config
from jackfield.server.bench_report import load_table, plan_lines
from jackfield.server.commands.bench_cache import cache_command
from jackfield.server.commands.bench_kernels import kernels_command
from jackfield.server.commands.bench_workload import (
    LENGTHS,
    PROFILE,
    StreamsOption,
    latency_command,
    make_workloads,
    throughput_command,
)
from jackfield.server.commands.engine_options import EngineArguments, engine_group
from jackfield.server.commands.options import JsonOption
from jackfield.server.option_groups import grouped

if TYPE_CHECKING:
    from jackfield.core.bench.workloads import Workload
    from jackfield.server.load.result import LoadResult

group = typer.Typer(help="Measure throughput, latency, a server, kernels, planning or the cache.")
WorkloadOption = Annotated[
    str,
    typer.Option(
        "--workload", metavar="NAME",
        help="cpu16, one, mixed, chat20, shared, long, crowd or tokens.",
    ),
]  # fmt: skip
RepeatOption = Annotated[int, typer.Option("--repeat", min=1, help="How many runs.")]
UrlOption = Annotated[str, typer.Option(metavar="URL", help="Of the server, without /v1.")]
ModelNameOption = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="What the server calls its model.")
]
LargestOption = Annotated[
    int | None, typer.Option(min=1, help="Largest token id in prompts, for small vocabularies.")
]
StackOption = Annotated[
    str | None, typer.Option("--stack", metavar="NAME,NAME", help="From the root to the leaf.")
]
AdvisorsOption = Annotated[
    str | None, typer.Option("--advisors", metavar="NAME,NAME", help="Who limits the steps.")
]
WatchOption = Annotated[
    bool, typer.Option("--watch-health", help="Ask for /health meanwhile and time the answers.")
]
KEY_VARIABLE = "JACKFIELD_API_KEY"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.add_typer(group, name="bench")
    workloads = grouped(lengths=LENGTHS, profile=PROFILE, engine=engine_group())
    group.command("throughput")(workloads(throughput_command))
    group.command("latency")(workloads(latency_command))
    group.command("kernels")(grouped(engine=engine_group())(kernels_command))
    group.command("cache")(grouped(engine=engine_group())(cache_command))


@group.command("serve")
@grouped(lengths=LENGTHS)
def serve_command(
    lengths: dict[str, int],
    url: UrlOption = "http://127.0.0.1:8000",
    model: ModelNameOption = None,
    workload: WorkloadOption = "cpu16",
    streams: StreamsOption = None,
    repeat: RepeatOption = 2,
    largest_id: LargestOption = None,
    watch_health: WatchOption = False,
    as_json: JsonOption = False,
) -> None:
    """Send a fixed workload to a server of OpenAI's API and time its streams.

    The prompts are token ids, the same that `bench throughput` uses. A request that fails, is cut
    off or has another number of tokens than it should is counted as failed; then the exit code is
    1. A key is taken from the variable JACKFIELD_API_KEY. With --json, each run is one line.
    """
    [made] = make_workloads([workload], lengths, largest_id)
    runs = []
    for result in _load(url, made, model, streams, repeat, watch_health):
        runs.append(result)
        if as_json:
            typer.echo(json.dumps(result.as_dict()))
    if not as_json:
        typer.echo(load_table(runs))
    if any(run.failed for run in runs):
        raise typer.Exit(1)


def _load(
    url: str, workload: "Workload", model: str | None, streams: int | None, repeat: int, watch: bool
) -> "Iterator[LoadResult]":
    import uvloop

    from jackfield.server.load.connection import Target
    from jackfield.server.load.load import Load, run_load
    from jackfield.server.load.result import LoadResult

    key = os.environ.get(KEY_VARIABLE)
    target = Target.of(url, {"authorization": f"Bearer {key}"} if key else {})
    count = min(streams or workload.concurrency or len(workload.prompts), len(workload.prompts))
    load = Load(target, workload, model, count, watch)
    for _ in range(repeat):
        yield LoadResult.of(load, uvloop.run(run_load(load)))


@group.command("planning")
@grouped(engine=engine_group())
def planning_command(
    engine: EngineArguments,
    stack: StackOption = None,
    advisors: AdvisorsOption = None,
    running: Annotated[int, typer.Option(help="Requests that run all the time.")] = 256,
    waiting: Annotated[int, typer.Option(help="Requests that wait all the time.")] = 10_000,
    steps: Annotated[int, typer.Option(help="Steps that are measured.")] = 300,
    as_json: JsonOption = False,
) -> None:
    """Time the planning of steps with a scheduler stack, without a model.

    The crowd has 64 tenants and three priorities. Without --stack and --advisors it is planned by
    what the configuration says.
    """
    named = {"scheduler.stack": stack, "scheduler.advisors": advisors}
    given = {key: text.split(",") for key, text in named.items() if text is not None}
    for key in given.keys() & engine.flags.keys():
        raise ConfigError(f"{key} is given twice, by itself and with --set; keep one")
    resolved = load_config(engine.config, os.environ, {**engine.flags, **given})
    from jackfield.core.bench.planning import Crowd, measure_planning

    result = measure_planning(resolved, Crowd(running, waiting, steps))
    typer.echo(json.dumps(result.as_dict()) if as_json else plan_lines(result))
