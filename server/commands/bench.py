"""`jackfield bench`: how fast it is here, or how fast a server is."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from jackfield.core.api import ConfigError
from jackfield.core.inspection import load_config
from jackfield.server.bench_report import load_table, plan_lines, throughput_table
from jackfield.server.commands.bench_cache import cache_command
from jackfield.server.commands.engine_options import EngineArguments, engine_group
from jackfield.server.commands.options import JsonOption
from jackfield.server.option_groups import Group, grouped

if TYPE_CHECKING:
    from jackfield.core.bench.throughput import Throughput
    from jackfield.core.bench.workloads import Workload
    from jackfield.server.load.result import LoadResult

SHORT_CONTEXT = 4096
group = typer.Typer(help="Measure throughput, a server, planning or the cache.")
ShapeOption = Annotated[
    str | None,
    typer.Option("--shape", metavar="NAME", help="Random weights of this shape, as qwen3-tiny."),
]
WorkloadOption = Annotated[
    str,
    typer.Option(
        "--workload", metavar="NAME",
        help="cpu16, one, mixed, chat20, shared, long, crowd or tokens.",
    ),
]  # fmt: skip
RepeatOption = Annotated[int, typer.Option("--repeat", min=1, help="How many runs.")]
GreedyOption = Annotated[bool, typer.Option("--greedy", help="Temperature 0 instead of 0.6.")]
LENGTHS = Group(
    {
        "requests": Annotated[int | None, typer.Option(help='Of the workload "tokens": how many.')],
        "input_tokens": Annotated[int | None, typer.Option(help="Tokens of each of its prompts.")],
        "output_tokens": Annotated[int | None, typer.Option(help="Tokens of each answer.")],
    },
    lambda given: {name: value for name, value in given.items() if value is not None},
)


UrlOption = Annotated[str, typer.Option(metavar="URL", help="Of the server, without /v1.")]
ModelNameOption = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="What the server calls its model.")
]
StreamsOption = Annotated[
    int | None, typer.Option(min=1, help="Requests at once; default: what the workload says.")
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


class Subject(NamedTuple):
    """What is measured: a named shape, or the model that the flags name."""

    shape: str | None
    keywords: dict[str, Any]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.add_typer(group, name="bench")
    group.command("cache")(grouped(engine=engine_group())(cache_command))


@group.command("throughput")
@grouped(lengths=LENGTHS, engine=engine_group())
def throughput_command(
    engine: EngineArguments,
    lengths: dict[str, int],
    workload: WorkloadOption = "cpu16",
    shape: ShapeOption = None,
    repeat: RepeatOption = 2,
    greedy: GreedyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a fixed workload and count tokens per second.

    The share of the roofline compares with the time that reading memory and multiplying would
    take at the speeds measured at the start, if nothing else took any; above 100% the device was
    busy with something else while it was measured. With --json, each run is one line.
    """
    if shape is not None and "model" in engine.flags:
        raise ConfigError("--shape and --model are both given; leave one of them out")
    made = _workload(workload, lengths)
    runs = _throughput(Subject(shape, engine.keywords), made, repeat, greedy, as_json)
    if not as_json:
        typer.echo(throughput_table(runs))


def _workload(name: str, lengths: dict[str, int], largest: int | None = None) -> "Workload":
    from jackfield.core.bench.workloads import LARGEST_ID, Fixed, make_workload

    if lengths and name != "tokens":
        flag = next(iter(lengths)).replace("_", "-")
        raise ConfigError(f"--{flag} is for --workload tokens; {name} has lengths of its own")
    return make_workload(name, fixed=Fixed(**lengths), largest=largest or LARGEST_ID)


def _throughput(
    subject: Subject, workload: "Workload", repeat: int, greedy: bool, as_json: bool
) -> "list[Throughput]":
    from jackfield import LLM
    from jackfield.core.bench.throughput import run_throughput

    runs = []
    with TemporaryDirectory() as folder, LLM(**_arguments(subject, workload, folder)) as llm:
        print("\n".join(llm.assembly.summary.lines()), file=sys.stderr)
        for run in run_throughput(llm, workload, repeat=repeat, greedy=greedy):
            runs.append(run)
            if as_json:
                typer.echo(json.dumps(run.as_dict() | _named(subject)))
    return runs


def _named(subject: Subject) -> dict[str, Any]:
    """A shape lies in a temporary folder, whose name tells nobody anything."""
    random = {"random_weights": subject.shape is not None}
    return random if subject.shape is None else {"model": subject.shape, **random}


def _arguments(subject: Subject, workload: "Workload", folder: str) -> dict[str, Any]:
    if subject.shape is None:
        return subject.keywords
    from jackfield.core.bench.shapes import write_shape

    random_model = {
        "model": write_shape(subject.shape, Path(folder)),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "max_model_len": max(SHORT_CONTEXT, workload.longest),
    }
    return {**random_model, **subject.keywords}


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
    made = _workload(workload, lengths, largest_id)
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
