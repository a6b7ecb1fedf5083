"""`jackfield config`: what is configured, and by whom."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from jackfield.core.inspection import (
    HIDDEN,
    Resolved,
    config_schema,
    discover_all,
    effective,
    select_all,
)
from jackfield.server.commands.options import ConfigOption, JsonOption, SetOption, resolve
from jackfield.server.toml_text import toml_tables

group = typer.Typer(help="Show the effective configuration, or its schema.")
OriginOption = Annotated[bool, typer.Option("--origin", help="Say where each value came from.")]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.add_typer(group, name="config")


@group.command("show")
def show_command(
    config: ConfigOption = None,
    settings: SetOption = None,
    origin: OriginOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the effective configuration, the sections of the selected plugins included, as TOML."""
    values, origins = _values(resolve(config, settings))
    shown = origins if origin else {}
    if as_json:
        document = {"config": _nested(values), **({"origins": shown} if origin else {})}
        typer.echo(json.dumps(document))
    else:
        typer.echo(toml_tables(_nested(values), shown))


def _values(resolved: Resolved) -> tuple[dict[str, Any], dict[str, str]]:
    """Value and origin of every dotted key; plugins' keys come after those of their section."""
    selected = select_all(resolved.config, discover_all(), resolved.origins)
    of_plugins, plugin_origins = effective(selected, resolved.origins)
    dump = resolved.config.model_dump(mode="json")
    values = {
        f"{section}.{key}": dump[section][key]
        for section in dump
        for key in type(getattr(resolved.config, section)).model_fields
    }
    origins = {**resolved.origins, **plugin_origins}
    values.update(of_plugins)
    if values["parallel.token"]:
        values["parallel.token"] = HIDDEN
    return values, {key: str(origins[key]) for key in values}


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    for name, value in values.items():
        *path, key = name.split(".", 2)
        place = tables
        for part in path:
            place = place.setdefault(part, {})
        place[key] = value
    return tables


@group.command("schema")
def schema_command(
    config: ConfigOption = None, settings: SetOption = None, as_json: JsonOption = False
) -> None:
    """Write the JSON Schema of the configuration, the selected plugins' sections included."""
    resolved = resolve(config, settings)
    schema = config_schema(select_all(resolved.config, discover_all(), resolved.origins))
    typer.echo(json.dumps(schema, indent=None if as_json else 2))
