"""`jackfield plugins`: what is installed, and whether it works."""

import json

import typer

from jackfield.core.api import JackfieldError, PluginError
from jackfield.core.inspection import (
    CheckRow,
    PluginRow,
    Resolved,
    check_plugins,
    discover_all,
    list_plugins,
    select,
)
from jackfield.server.commands.options import ConfigOption, JsonOption, SetOption, resolve
from jackfield.server.table import table

group = typer.Typer(help="List the installed plugins, or check them.")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.add_typer(group, name="plugins")


@group.command("list")
def list_command(
    config: ConfigOption = None, settings: SetOption = None, as_json: JsonOption = False
) -> None:
    """List every installed plugin and whether the configuration selects it; import none."""
    rows = list_plugins(resolve(config, settings).config, discover_all())
    if as_json:
        typer.echo(json.dumps({"plugins": [row._asdict() for row in rows]}))
    else:
        typer.echo(_listed(rows))


def _listed(rows: list[PluginRow]) -> str:
    header = ("KIND", "NAME", "DISTRIBUTION", "VERSION", "API", "ACTIVE", "REASON")
    cells = [
        (row.kind, row.name, row.distribution, row.version, f"v{row.api}",
         "yes" if row.active else "no", row.reason)
        for row in rows
    ]  # fmt: skip
    return table(header, cells)


@group.command("check")
def check_command(
    config: ConfigOption = None, settings: SetOption = None, as_json: JsonOption = False
) -> None:
    """Import and check every installed plugin, and the stack that the configuration selects."""
    problem = _selection_problem(resolve(config, settings))
    rows = check_plugins(discover_all())
    if as_json:
        plugins = [row._asdict() for row in rows]
        typer.echo(json.dumps({"plugins": plugins, "selection": problem or "ok"}))
    else:
        typer.echo(_checked(rows))
        typer.echo(f"\nselection: {problem or 'ok'}")
    if problem or not all(row.ok for row in rows):
        raise typer.Exit(PluginError.exit_code)


def _selection_problem(resolved: Resolved) -> str | None:
    try:
        select(resolved.config, discover_all(), resolved.origins)
    except JackfieldError as error:
        return str(error)
    return None


def _checked(rows: list[CheckRow]) -> str:
    header = ("KIND", "NAME", "DISTRIBUTION", "VERSION", "OK", "PROVIDES OR PROBLEM")
    cells = [
        (row.kind, row.name, row.distribution, row.version, "yes" if row.ok else "no",
         row.message or ", ".join(row.provides))
        for row in rows
    ]  # fmt: skip
    return table(header, cells)
