"""`jackfield eval`: what a configuration does to the answers."""

import json
from pathlib import Path
from typing import Annotated

import typer

from jackfield.core.api import ConfigError
from jackfield.server.commands.options import JsonOption, SetOption, resolve

group = typer.Typer(help="Compare the answers of two configurations.")
ConfigsOption = Annotated[
    list[Path] | None,
    typer.Option("--config", metavar="FILE", help="A configuration, in TOML; twice: A, then B."),
]
TextOption = Annotated[
    Path | None, typer.Option("--text", metavar="FILE", help="Instead of the built-in text.")
]
TokensOption = Annotated[
    int | None, typer.Option("--tokens", min=2, help="Of the text; default: all that fit.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.add_typer(group, name="eval")


@group.callback()
def _group() -> None:
    """Compare the answers of two configurations."""


@group.command("kv")
def kv_command(
    configs: ConfigsOption = None,
    text: TextOption = None,
    tokens: TokensOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what the KV cache of configuration B costs in accuracy against that of A.

    Both have to be the same model. Each reads the text through its paged cache, 64 tokens at a
    time, and goes on greedily for 64 tokens. --set holds for both.
    """
    files = configs or []
    if len(files) != 2:
        raise ConfigError(
            f"--config is given {len(files)} times; give it twice, first A and then B"
        )
    content = None if text is None else _read(text)
    a, b = (resolve(file, settings) for file in files)
    # Imported late: it brings torch, which --help and a wrong flag need not wait for.
    from jackfield.core.checkpoint.progress import RichProgress
    from jackfield.core.evaluation.kv import Text, compare_kv
    from jackfield.server.eval_report import kv_lines

    result = compare_kv(a, b, Text(content, tokens), RichProgress())
    names = (str(files[0]), str(files[1]))
    if as_json:
        typer.echo(json.dumps({"config_a": names[0], "config_b": names[1], **result.as_dict()}))
    else:
        typer.echo(kv_lines(result, names))


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--text {file} cannot be read: {error}") from error
