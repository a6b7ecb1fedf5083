"""The configuration as flags: a file, every alias, and any other key."""

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from jackfield.core.api import ConfigError
from jackfield.core.inspection import AliasKind, alias_kinds
from jackfield.server.commands.options import ConfigOption, SetOption, read_settings
from jackfield.server.option_groups import Group

MODEL_HELP = "A folder or a hub id; the default model when left out."


class EngineArguments(NamedTuple):
    """What `LLM` and `AsyncLLM` take: a file, and aliases and dotted keys with their values."""

    config: Path | None
    flags: dict[str, Any]

    @property
    def keywords(self) -> dict[str, Any]:
        """As keyword arguments of the constructors."""
        return {"config": self.config, **self.flags}


def engine_group(*, without: tuple[str, ...] = ()) -> Group:
    """All aliases as flags, `--config` and `--set`. without: aliases left out."""
    aliases = {
        name: _option(name, kind) for name, kind in alias_kinds().items() if name not in without
    }
    return Group({**aliases, "config": ConfigOption, "settings": SetOption}, _read)


def _option(name: str, kind: AliasKind) -> Any:
    flag = f"--{name.replace('_', '-')}"
    if kind.type is bool:
        flag += f"/--no-{name.replace('_', '-')}"
    option = typer.Option(
        flag,
        metavar="|".join(kind.choices) or None,
        help=MODEL_HELP if name == "model" else kind.meaning,
        hidden=kind.fixed,
        show_default=False,
    )
    return Annotated[kind.type | None, option]


def _read(given: dict[str, Any]) -> EngineArguments:
    config, settings = given.pop("config"), read_settings(given.pop("settings") or [])
    flags = {name: value for name, value in given.items() if value is not None}
    for name in flags.keys() & settings.keys():
        raise ConfigError(f"--{name.replace('_', '-')} and --set {name} are both given; keep one")
    return EngineArguments(config, {**flags, **settings})
