"""`jackfield doctor`: a model, looked at before it is loaded."""

import json
from typing import Annotated

import typer

from jackfield.core.api import ConfigError
from jackfield.core.api.sizes import parse_bytes
from jackfield.server.commands.options import (
    ConfigOption,
    JsonOption,
    SetOption,
    read_settings,
    resolve,
)

SICK = 1
"""The exit code if there is a problem."""
ModelArgument = Annotated[
    str | None,
    typer.Argument(metavar="MODEL", help="A folder, a *.gguf, or a hub id; the configured one."),
]
MemoryOption = Annotated[
    str | None,
    typer.Option("--memory", metavar="SIZE", help="Of the device it is meant for, as 80GiB."),
]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("doctor")(doctor_command)


def doctor_command(
    model: ModelArgument = None,
    memory: MemoryOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what is wrong with a model, and what of it fits; its weights are not loaded.

    Reads its JSON files and the headers of its weights, and holds them against what the model
    would take with the configured stack. The exit code is 1 if there is a problem.
    """
    bytes_ = None if memory is None else _size(memory)
    name = {} if model is None else {"model.name": model}
    resolved = resolve(config, None, read_settings(settings or []) | name)
    # Imported late: it brings torch, which --help and a wrong flag need not wait for.
    from jackfield.core.checkpoint.progress import RichProgress
    from jackfield.core.doctor.examine import examine
    from jackfield.server.doctor_report import doctor_lines

    report = examine(resolved, bytes_, RichProgress())
    typer.echo(json.dumps(report.as_dict()) if as_json else doctor_lines(report))
    if report.has_problem:
        raise typer.Exit(SICK)


def _size(text: str) -> int:
    try:
        found: int = parse_bytes(text)
    except ValueError as error:
        raise ConfigError(f"--memory is {text!r}: it {error}") from error
    return found
