"""`jackfield plugins`: what is installed, and whether it works."""

import json
from typing import TYPE_CHECKING, Any

import typer

from jackfield.core.api import JackfieldError, PluginError
from jackfield.core.inspection import (
    CheckRow,
    PluginRow,
    Resolved,
    build_identifiers,
    check_plugins,
    discover_all,
    list_plugins,
    select_all,
)
from jackfield.server.commands.options import ConfigOption, JsonOption, SetOption, resolve
from jackfield.server.table import table

if TYPE_CHECKING:
    from jackfield.core.kernel_report import KernelReport

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
    resolved = resolve(config, settings)
    problem = _selection_problem(resolved)
    rows = check_plugins(discover_all())
    kernels, problem = (None, problem) if problem else _kernels(resolved)
    if as_json:
        plugins = [row._asdict() for row in rows]
        found = None if kernels is None else _as_dict(kernels)
        typer.echo(json.dumps({"plugins": plugins, "selection": problem or "ok", "kernels": found}))
    else:
        typer.echo(_checked(rows))
        typer.echo(f"\nselection: {problem or 'ok'}")
        if kernels is not None:
            typer.echo(_bound(kernels))
    if problem or not all(row.ok for row in rows):
        raise typer.Exit(PluginError.exit_code)


def _selection_problem(resolved: Resolved) -> str | None:
    try:
        select_all(resolved.config, discover_all(), resolved.origins)
        build_identifiers(resolved)
    except JackfieldError as error:
        return str(error)
    return None


def _kernels(resolved: Resolved) -> "tuple[KernelReport | None, str | None]":
    """Who serves what, or why somebody cannot. Imported here: the report needs torch."""
    from jackfield.core.kernel_report import kernel_report

    try:
        return kernel_report(resolved), None
    except JackfieldError as error:
        return None, str(error)


def _as_dict(report: "KernelReport") -> dict[str, Any]:
    return {**report._asdict(), "rows": [row._asdict() for row in report.rows]}


def _bound(report: "KernelReport") -> str:
    header = ("OPERATION", "SERVED BY", "PASSED OVER")
    cells = [(row.operation, row.owner, ". ".join(row.passed)) for row in report.rows]
    return f"\non {report.device}, in {report.dtype}:\n{table(header, cells)}"


def _checked(rows: list[CheckRow]) -> str:
    header = ("KIND", "NAME", "DISTRIBUTION", "VERSION", "OK", "PROVIDES OR PROBLEM")
    cells = [
        (row.kind, row.name, row.distribution, row.version, "yes" if row.ok else "no",
         row.message or ", ".join(row.provides))
        for row in rows
    ]  # fmt: skip
    return table(header, cells)
