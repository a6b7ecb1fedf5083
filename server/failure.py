"""Errors as a command line shows them: one line, or one JSON object, and an exit code."""

import json
import sys
from typing import Any, NamedTuple

import typer

INTERRUPTED = 130
USAGE = 2


class Failure(NamedTuple):
    """What to tell: the class of the error, its message, and the exit code."""

    type: str
    message: str
    exit_code: int


def report(error: BaseException, as_json: bool) -> int:
    """Tell the user and return the exit code. An error that is a defect is raised again."""
    failure = _describe(error)
    if failure is None:
        raise error
    if as_json:
        typer.echo(json.dumps({"error": failure._asdict()}))
    else:
        print(f"error: {failure.message}", file=sys.stderr)
    return failure.exit_code


def _describe(error: BaseException) -> Failure | None:
    if isinstance(error, typer.Abort | KeyboardInterrupt):
        return Failure("Interrupted", "interrupted", INTERRUPTED)
    if hasattr(error, "format_message"):
        return Failure("UsageError", _usage(error), USAGE)
    # Imported late: `--help` and a mistyped command need not pay for it.
    from jackfield.core.api.errors import JackfieldError

    if isinstance(error, JackfieldError):
        return Failure(type(error).__name__, _one_line(str(error)), error.exit_code)
    return None


def _usage(error: Any) -> str:
    """The message, and where to read on. `typer` has had more than one class for these errors."""
    context = getattr(error, "ctx", None)
    way_out = f" See '{context.command_path} --help'." if context is not None else ""
    return _one_line(error.format_message()) + way_out


def _one_line(text: str) -> str:
    return " ".join(text.split())
