"""The command line. A command's module is imported only when the command is called."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

import typer

from jackfield import __version__
from jackfield.server.failure import report


class Command(NamedTuple):
    """A command: its module in `jackfield.server.commands` has a `register(app)`."""

    name: str
    summary: str


COMMANDS = (
    Command("serve", "Answer clients of OpenAI's API over HTTP."),
    Command("generate", "Answer one prompt."),
    Command("chat", "Talk with a model, which remembers the conversation."),
    Command("bench", "Measure throughput, a server, planning or the cache."),
    Command("eval", "Compare the answers of two configurations."),
    Command("doctor", "Tell what is wrong with a model, and what of it fits."),
    Command("explain", "Tell why requests of a running server wait, or took their time."),
    Command("plugins", "List the installed plugins, or check them."),
    Command("config", "Show the effective configuration, or its schema."),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit code. Errors are one line, never a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        command = typer.main.get_command(application(given))
        code = command.main(given, prog_name="jackfield", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        return report(error, as_json="--json" in given)
    return code if isinstance(code, int) else 0


def application(arguments: Sequence[str]) -> typer.Typer:
    """The app for these arguments: the named command whole, of the others name and summary."""
    app = typer.Typer(
        add_completion=False, rich_markup_mode=None, context_settings={"max_content_width": 100}
    )
    app.callback()(_root)
    named = next((word for word in arguments if not word.startswith("-")), "")
    for command in COMMANDS:
        if command.name == named:
            import_module(f"jackfield.server.commands.{named}").register(app)
        else:
            app.command(command.name, help=command.summary)(_elsewhere)
    return app


def _root(
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", is_eager=True,
        callback=lambda wanted: _show_version(wanted),
    ),
) -> None:
    """Jackfield: an LLM inference engine made of plugins."""  # fmt: skip


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"jackfield {__version__}")
        raise typer.Exit


def _elsewhere() -> None:
    raise AssertionError("a command that is called is always registered whole")
