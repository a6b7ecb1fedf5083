"""`jackfield serve`: OpenAI's API over HTTP."""

import errno
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jackfield.core.api import ConfigError, RequestContext
from jackfield.server.commands.engine_options import MODEL_HELP, EngineArguments, engine_group
from jackfield.server.option_groups import grouped

if TYPE_CHECKING:
    import socket

    from jackfield.server.http.backend import Backend

ModelArgument = Annotated[str | None, typer.Argument(metavar="[MODEL]", help=MODEL_HELP)]
HostOption = Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free one.")]
KeyOption = Annotated[
    list[str] | None,
    typer.Option("--api-key", metavar="KEY", help="Asked of every client. May be repeated."),
]
KeyFileOption = Annotated[
    Path | None,
    typer.Option("--api-key-file", metavar="FILE", help="A file with such keys, one a line."),
]
NameOption = Annotated[
    list[str] | None,
    typer.Option(
        "--served-model-name", metavar="NAME",
        help="What clients call the model. May be repeated; answers show the first.",
    ),
]  # fmt: skip
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Refuse fields that are not known.")
]
DrainOption = Annotated[
    float,
    typer.Option("--drain-timeout", min=0, metavar="SECONDS", help="For open answers at the end."),
]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("serve")(serve_command)


@grouped(engine=engine_group())
def serve_command(
    engine: EngineArguments,
    served: ModelArgument = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    api_key: KeyOption = None,
    api_key_file: KeyFileOption = None,
    served_model_name: NameOption = None,
    strict: StrictOption = False,
    drain_timeout: DrainOption = 30.0,
) -> None:
    """Answer clients of OpenAI's API over HTTP.

    The first SIGTERM or Ctrl-C stops listening and lets open answers end; a second one cuts them
    off. The exit code is 0, or 1 if answers were cut off, or 6 if the engine died.
    """
    arguments = _engine_arguments(engine, served)
    keys = _keys(api_key or [], api_key_file)
    bound = _bind(host, port)
    with bound:
        code = _serve(arguments, bound, keys, served_model_name or [], strict, drain_timeout)
    if code:
        raise typer.Exit(code)


def _engine_arguments(engine: EngineArguments, model: str | None) -> dict[str, Any]:
    if model is None:
        return engine.keywords
    if "model" in engine.flags:
        raise ConfigError("the model is given twice, by itself and with --model; keep one")
    return {**engine.keywords, "model": model}


def _keys(given: list[str], file: Path | None) -> list[str]:
    if file is not None:
        try:
            given = [*given, *file.read_text().split()]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--api-key-file {file} cannot be read: {error}") from error
        if not given:
            raise ConfigError(f"--api-key-file {file} holds no key; nobody could be let in")
    if not all(given):
        raise ConfigError("--api-key is empty; give a key, or leave it out to let everybody in")
    return given


def _bind(host: str, port: int) -> "socket.socket":
    from jackfield.server.http.server import bind

    try:
        return bind(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} of {host} is in use; stop what listens there, or choose another one "
                f"with --port"
            ) from error
        raise ConfigError(f"cannot listen on {host} port {port}: {error}") from error


def _serve(
    arguments: dict[str, Any],
    bound: "socket.socket",
    keys: list[str],
    names: list[str],
    strict: bool,
    drain_timeout: float,
) -> int:
    # Imported late: --help and a wrong flag need not wait for it.
    from jackfield.server.http.app import create_app
    from jackfield.server.http.server import HttpServer, address
    from jackfield.server.http.settings import HttpSettings

    settings = HttpSettings(
        api_keys={key: RequestContext() for key in keys}, model_names=tuple(names), strict=strict
    )
    server = HttpServer(create_app(_backend(arguments), settings), drain_timeout=drain_timeout)
    print(f"listening   {address(bound)}/v1", file=sys.stderr, flush=True)
    server.run(sockets=[bound])
    return server.exit_code


def _backend(arguments: dict[str, Any]) -> "Backend":
    """The engine, in a process of its own; what was started is told on stderr."""
    from jackfield.core.remote_llm import RemoteLLM

    llm = RemoteLLM(**arguments)
    print("\n".join(llm.summary.lines()), file=sys.stderr, flush=True)
    return llm
