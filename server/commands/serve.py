"""`jackfield serve`: OpenAI's API over HTTP."""

import errno
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jackfield.core.api import ConfigError
from jackfield.core.inspection import OPERATOR_KEYS, Resolved, build_identifiers, load_config
from jackfield.server.commands.engine_options import MODEL_HELP, EngineArguments, engine_group
from jackfield.server.option_groups import Group, grouped

if TYPE_CHECKING:
    import socket

    from jackfield.server.http.backend import Backend
    from jackfield.server.http.settings import HttpSettings

KEYS = "keys"
ModelArgument = Annotated[str | None, typer.Argument(metavar="[MODEL]", help=MODEL_HELP)]
OPTIONS: dict[str, Any] = {
    "host": Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")
    ],
    "port": Annotated[
        int | None, typer.Option("--port", metavar="PORT", help="0 takes any free one.")
    ],
    "api_key": Annotated[
        list[str] | None,
        typer.Option(
            "--api-key", metavar="KEY",
            help="A key that clients may use, with all rights. May be repeated. Who lists the "
            "processes of this machine sees it; prefer a file, or JACKFIELD_API_KEY.",
        ),
    ],
    "api_key_file": Annotated[
        Path | None,
        typer.Option("--api-key-file", metavar="FILE", help="A file with such keys, one a line."),
    ],
    "served_model_name": Annotated[
        list[str] | None,
        typer.Option(
            "--served-model-name", metavar="NAME",
            help="What clients call the model. May be repeated; answers show the first.",
        ),
    ],
    "strict": Annotated[
        bool | None, typer.Option("--strict/--no-strict", help="Refuse fields that are not known.")
    ],
    "drain_timeout": Annotated[
        float | None,
        typer.Option("--drain-timeout", metavar="SECONDS", help="For open answers at the end."),
    ],
}  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("serve")(serve_command)


def _server_flags(given: dict[str, Any]) -> dict[str, Any]:
    """What the flags of the server mean, by dotted key."""
    keys = _keys(given.pop("api_key") or [], given.pop("api_key_file"))
    flags = {f"server.{name}": value for name, value in given.items() if value not in (None, [])}
    return {**flags, ".".join(OPERATOR_KEYS): keys} if keys else flags


@grouped(engine=engine_group(), server=Group(OPTIONS, _server_flags))
def serve_command(
    engine: EngineArguments, server: dict[str, Any], served: ModelArgument = None
) -> None:
    """Answer clients of OpenAI's API over HTTP.

    The first SIGTERM or Ctrl-C stops listening and lets open answers end; a second one cuts them
    off. The exit code is 0, or 1 if answers were cut off, or 6 if the engine died. With a
    --node-rank above 0 nothing listens here: the ranks of this node serve the first one.
    """
    resolved = _resolve(engine, server, served)
    if resolved.config.parallel.node_rank:
        raise typer.Exit(_follow(resolved))
    settings = _settings(resolved)
    bound = _bind(resolved.config.server.host, resolved.config.server.port)
    with bound:
        code = _serve(resolved, bound, settings)
    if code:
        raise typer.Exit(code)


def _resolve(engine: EngineArguments, server: dict[str, Any], model: str | None) -> Resolved:
    if model is not None and "model" in engine.flags:
        raise ConfigError("the model is given twice, by itself and with --model; keep one")
    for name in server.keys() & engine.flags.keys():
        raise ConfigError(f"a flag of the server and --set {name} are both given; keep one")
    resolved = load_config(engine.config, os.environ, {"model": model, **engine.flags, **server})
    stack = resolved.config.server.identify
    names = [entry.rpartition(":")[2] for entry in stack]
    if ".".join(OPERATOR_KEYS) in server and KEYS not in names:
        raise ConfigError(
            f"--api-key needs the plugin {KEYS!r} in server.identify, which is {stack!r}; add it, "
            f"or leave the key out"
        )
    return resolved


def _keys(given: list[str], file: Path | None) -> list[str]:
    if file is not None:
        try:
            given = [*given, *file.read_text().split()]
        except OSError as error:
            raise ConfigError(f"--api-key-file {file} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError:
            raise ConfigError(f"--api-key-file {file} is no text; write keys into it") from None
        if not given:
            raise ConfigError(f"--api-key-file {file} holds no key; nobody could be let in")
    if not all(given):
        raise ConfigError("--api-key is empty; give a key, or leave it out to let everybody in")
    return given


def _settings(resolved: Resolved) -> "HttpSettings":
    """What is checked here is refused before an engine is started."""
    identifiers = build_identifiers(resolved)
    from jackfield.server.http.settings import HttpSettings

    server = resolved.config.server
    return HttpSettings(
        identify=identifiers.plugins,
        needs_key=not identifiers.let_everybody_in,
        model_names=tuple(server.served_model_name),
        strict=server.strict,
        max_body=server.max_body,
        max_answers=server.max_answers,
        metrics_compat=resolved.config.metrics.compat,
        service_tiers=dict(server.service_tiers.items()),
    )


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
        reason = error.strerror or error
        raise ConfigError(f"cannot listen on {host} port {port}: {reason}") from error


def _serve(resolved: Resolved, bound: "socket.socket", settings: "HttpSettings") -> int:
    # Imported late: --help and a wrong flag need not wait for it.
    from jackfield.server.http.app import create_app
    from jackfield.server.http.server import HttpServer, address

    def started() -> None:
        _spare_collector()
        print(f"listening   {address(bound)}/v1", file=sys.stderr, flush=True)

    app = create_app(_backend(resolved), settings)
    print(f"callers     {_callers(resolved, settings)}", file=sys.stderr)
    drain_timeout = resolved.config.server.drain_timeout
    server = HttpServer(app, drain_timeout=drain_timeout, on_start=started)
    server.run(sockets=[bound])
    return server.exit_code


def _callers(resolved: Resolved, settings: "HttpSettings") -> str:
    if not settings.needs_key:
        return "everybody, no key is asked for"
    return f"asked by {', '.join(resolved.config.server.identify)}"


def _backend(resolved: Resolved) -> "Backend":
    """The engine, in a process of its own; what was started is told on stderr."""
    from jackfield.core.remote_llm import RemoteLLM

    llm = RemoteLLM(config=resolved)
    print("\n".join(llm.summary.lines()), file=sys.stderr, flush=True)
    return llm


def _follow(resolved: Resolved) -> int:
    """The ranks of a node that is not the first, which alone serves."""
    from jackfield.core.checkpoint.progress import RichProgress
    from jackfield.core.process.rank_node import run_node

    parallel = resolved.config.parallel
    where = f"{parallel.master_address}:{parallel.master_port}"
    print(f"node {parallel.node_rank} of {parallel.nodes} follows {where}", file=sys.stderr)
    return run_node(resolved, RichProgress())


def _spare_collector() -> None:
    """What is there now stays: a collection that looked at it all would hold up every stream."""
    gc.collect()
    gc.freeze()
