"""`jackfield bench throughput` and `latency`: workloads on a model in this process."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from jackfield.core.api import ConfigError
from jackfield.server.commands.engine_options import EngineArguments
from jackfield.server.commands.options import JsonOption
from jackfield.server.option_groups import Group

if TYPE_CHECKING:
    from jackfield import LLM
    from jackfield.core.bench.workload_run import WorkloadRun
    from jackfield.core.bench.workloads import Workload

SHORT_CONTEXT = 4096
THROUGHPUT, LATENCY = "throughput", "latency"
ShapeOption = Annotated[
    str | None,
    typer.Option("--shape", metavar="NAME", help="Random weights of this shape, as qwen3-tiny."),
]
WorkloadsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--workload", metavar="NAME,NAME",
        help="cpu16, one, mixed, chat20, shared, long, crowd or tokens. May be repeated.",
    ),
]  # fmt: skip
RepeatOption = Annotated[int, typer.Option("--repeat", min=1, help="How many runs of each.")]
GreedyOption = Annotated[bool, typer.Option("--greedy", help="Temperature 0 instead of 0.6.")]
LENGTHS = Group(
    {
        "requests": Annotated[int | None, typer.Option(help='Of the workload "tokens": how many.')],
        "input_tokens": Annotated[int | None, typer.Option(help="Tokens of each of its prompts.")],
        "output_tokens": Annotated[int | None, typer.Option(help="Tokens of each answer.")],
    },
    lambda given: {name: value for name, value in given.items() if value is not None},
)
StreamsOption = Annotated[
    int | None, typer.Option(min=1, help="Requests at once; default: what the workload says.")
]


class ProfileRequest(NamedTuple):
    """Where steps are recorded to, and from which one on. file: None = not at all."""

    file: Path | None
    first: int

    def path(self, workload: str, several: bool) -> Path:
        """With the workload's name before the ending if there are several."""
        assert self.file is not None
        stem, dot, ending = self.file.name.partition(".")
        return self.file.with_name(f"{stem}.{workload}{dot}{ending}") if several else self.file


def _read_profile(given: dict[str, Any]) -> ProfileRequest:
    file, first = given["profile"], given["profile_from"]
    if file is None and first is not None:
        raise ConfigError("--profile-from says where --profile begins; give that, too")
    if file is not None and not file.absolute().parent.is_dir():
        raise ConfigError(f"--profile: there is no folder {file.absolute().parent}")
    return ProfileRequest(file, first or 0)


PROFILE = Group(
    {
        "profile": Annotated[
            Path | None,
            typer.Option(
                metavar="FILE",
                help="Record 50 steps, or 5 s, of a further run for Perfetto; .gz packs.",
            ),
        ],
        "profile_from": Annotated[
            int | None, typer.Option(min=0, help="The first step that is recorded; default 0.")
        ],
    },
    _read_profile,
)


class Subject(NamedTuple):
    """What is measured: a named shape, or the model that the flags name."""

    shape: str | None
    keywords: dict[str, Any]

    @classmethod
    def of(cls, shape: str | None, engine: EngineArguments) -> "Subject":
        """Raises `ConfigError` if both are given."""
        if shape is not None and "model" in engine.flags:
            raise ConfigError("--shape and --model are both given; leave one of them out")
        return cls(shape, engine.keywords)

    def named(self) -> dict[str, Any]:
        """A shape lies in a temporary folder, whose name tells nobody anything."""
        random = {"random_weights": self.shape is not None}
        return random if self.shape is None else {"model": self.shape, **random}

    def arguments(self, workloads: "Sequence[Workload]", folder: str) -> dict[str, Any]:
        """Of `LLM`. folder: where a shape is written to."""
        if self.shape is None:
            return self.keywords
        from jackfield.core.bench.shapes import write_shape

        random_model = {
            "model": write_shape(self.shape, Path(folder)),
            "load_format": "dummy",
            "skip_tokenizer_init": True,
            "max_model_len": max(SHORT_CONTEXT, *(one.longest for one in workloads)),
        }
        return {**random_model, **self.keywords}


class Plan(NamedTuple):
    """What is measured, and how often."""

    kind: str
    workloads: "list[Workload]"
    repeat: int
    greedy: bool
    profile: ProfileRequest


def throughput_command(
    engine: EngineArguments,
    lengths: dict[str, int],
    profile: ProfileRequest,
    workload: WorkloadsOption = None,
    shape: ShapeOption = None,
    repeat: RepeatOption = 2,
    greedy: GreedyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run fixed workloads and count tokens per second.

    The share of the roofline compares with the time that reading memory and multiplying would
    take at the speeds measured at the start, if nothing else took any; above 100% the device was
    busy with something else while it was measured. On a GPU each workload runs once more with
    events around its steps, and its first decodes once more in a profiler, to tell how long the
    GPU stands still between steps and how many kernels a layer takes. With --json, each run is
    one line.
    """
    subject, made = Subject.of(shape, engine), make_workloads(workload, lengths)
    _measure(subject, Plan(THROUGHPUT, made, repeat, greedy, profile), as_json)


def latency_command(
    engine: EngineArguments,
    lengths: dict[str, int],
    profile: ProfileRequest,
    workload: WorkloadsOption = None,
    streams: StreamsOption = None,
    shape: ShapeOption = None,
    repeat: RepeatOption = 2,
    greedy: GreedyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Send workloads in waves and time each token: how long callers wait.

    A wave is as many requests as the workload has at once, or as --streams says; the next one is
    sent when all have ended. Everything else is as with `bench throughput`.
    """
    subject, made = Subject.of(shape, engine), make_workloads(workload or ["one"], lengths)
    if streams is not None:
        made = [one._replace(concurrency=streams) for one in made]
    _measure(subject, Plan(LATENCY, made, repeat, greedy, profile), as_json)


def make_workloads(
    names: Sequence[str] | None, lengths: dict[str, int], largest: int | None = None
) -> "list[Workload]":
    """Those that are named, separated by commas or one by one. Raises `ConfigError`."""
    from jackfield.core.bench.workloads import LARGEST_ID, Fixed, make_workload

    listed = list(dict.fromkeys(name for text in names or ["cpu16"] for name in text.split(",")))
    if lengths and "tokens" not in listed:
        flag = next(iter(lengths)).replace("_", "-")
        others = "have" if len(listed) > 1 else "has"
        raise ConfigError(
            f"--{flag} is for --workload tokens; {', '.join(listed)} {others} lengths of its own"
        )
    fixed = Fixed(**lengths)
    return [make_workload(one, fixed=fixed, largest=largest or LARGEST_ID) for one in listed]


def _measure(subject: Subject, plan: Plan, as_json: bool) -> None:
    from jackfield.server.bench_report import throughput_table

    runs = []
    for run in _runs(subject, plan):
        runs.append(run)
        if as_json:
            typer.echo(json.dumps(run.as_dict() | subject.named()))
    if not as_json:
        typer.echo(throughput_table(runs))


def _runs(subject: Subject, plan: Plan) -> "Iterator[WorkloadRun]":
    from jackfield import LLM
    from jackfield.core.bench.latency import run_latency
    from jackfield.core.bench.throughput import run_throughput

    run_workloads: Any = {THROUGHPUT: run_throughput, LATENCY: run_latency}[plan.kind]
    with (
        TemporaryDirectory() as folder,
        LLM(**subject.arguments(plan.workloads, folder)) as llm,
    ):
        print("\n".join(llm.assembly.summary.lines()), file=sys.stderr)
        yield from run_workloads(llm, *plan.workloads, repeat=plan.repeat, greedy=plan.greedy)
        for workload in plan.workloads if plan.profile.file is not None else ():
            path = plan.profile.path(workload.name, len(plan.workloads) > 1)
            _record(llm, workload, plan, path)


def _record(llm: "LLM", workload: "Workload", plan: Plan, path: Path) -> None:
    from jackfield.core.bench.trace import TraceWindow, record

    steps = record(llm, workload, TraceWindow(plan.profile.first), path, greedy=plan.greedy)
    if not steps:
        raise ConfigError(
            f"--profile-from is {plan.profile.first}, but {workload.name} has fewer steps"
        )
    print(f"{steps} steps of {workload.name} are in {path}", file=sys.stderr)
