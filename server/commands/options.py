"""Options that several commands share, and the configuration that they mean."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from jackfield.core.api import ConfigError
from jackfield.core.inspection import Resolved, load_config, read_text

ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The configuration, in TOML.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a value, as engine.max_num_seqs=8."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON.")]


def resolve(
    file: Path | None, settings: list[str] | None, flags: dict[str, Any] | None = None
) -> Resolved:
    """The configuration that file, environment, settings and flags mean together."""
    return load_config(file, os.environ, {**(flags or {}), **read_settings(settings or [])})


def read_settings(texts: list[str]) -> dict[str, Any]:
    """The values of `--set`, by key. Raises `ConfigError`."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set {text!r} should be KEY=VALUE")
        if name in found:
            raise ConfigError(f"--set {name} is given twice; leave one of them out")
        found[name] = read_text(tuple(name.split(".")), value)
    return found
