"""`jackfield explain`: what a running server's requests do, and why."""

import json
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer

from jackfield.core.api import ConfigError
from jackfield.server.commands.options import JsonOption
from jackfield.server.table import table

URL = "http://127.0.0.1:8000"
ENDS_SHOWN = 12
"""Stages at the beginning and at the end of a long life, so that it fits a screen."""
IdArgument = Annotated[
    str | None, typer.Argument(metavar="[ID]", help="Of an answer. Without it: who is there now.")
]
UrlOption = Annotated[str, typer.Option("--url", metavar="URL", help="Where the server listens.")]
StateOption = Annotated[
    str | None,
    typer.Option("--state", metavar="STATE", help="Only running, waiting or parked requests."),
]
LimitOption = Annotated[
    int, typer.Option("--limit", metavar="COUNT", min=1, max=1000, help="Requests to list.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("explain")(explain_command)


def explain_command(
    request_id: IdArgument = None,
    url: UrlOption = URL,
    state: StateOption = None,
    limit: LimitOption = 20,
    as_json: JsonOption = False,
) -> None:
    """Tell why a request of a running server waits, or where its time went.

    The key is that of the variable JACKFIELD_API_KEY. An operator sees all requests, others those
    of their tenant.
    """
    # Imported late: --help need not wait for it.
    from jackfield.server.asking import ask

    if request_id is None:
        filters = {"limit": limit} | ({"state": state} if state is not None else {})
        found = ask(url, f"/debug/requests?{urlencode(filters)}")
        text = _listed(found)
    elif state is not None:
        raise ConfigError("--state is for the list; leave it out, or leave the id out")
    else:
        found = ask(url, f"/debug/requests/{quote(request_id, safe='')}")
        text = _explained(found)
    typer.echo(json.dumps(found) if as_json else text)


def _listed(page: dict[str, Any]) -> str:
    counts = ", ".join(f"{count} {state}" for state, count in page["counts"].items())
    lines = [f"{counts}; free: {page['free_seats']} seats, {page['free_blocks']} blocks"]
    header = (
        "ID", "TENANT", "STATE", "FOR", "PLACE", "PROMPT", "COMPUTED", "ANSWER", "CODE", "PLUGIN",
        "WHY",
    )  # fmt: skip
    rows = [
        (
            _name(row), row["tenant"], row["state"], _seconds(row["since"]),
            _or_dash(row["position"]), str(row["prompt_tokens"]), str(row["computed_tokens"]),
            f"{row['output_tokens']}/{row['max_tokens']}", row["code"], row["plugin"],
            row["reason"],
        )
        for row in page["requests"]
    ]  # fmt: skip
    if rows:
        lines.append(table(header, rows))
    left = sum(page["counts"].values()) - len(rows)
    if left > 0:
        lines.append(f"and {left} more that --limit or --state leave out")
    return "\n".join(lines)


def _name(row: dict[str, Any]) -> str:
    return f"{row['id']}#{row['answer']}" if row["answer"] else str(row["id"])


def _explained(found: dict[str, Any]) -> str:
    answers = found["summary"]["answers"]
    return "\n\n".join(_life(found["id"], answer, len(answers) > 1) for answer in answers)


def _life(name: str, answer: dict[str, Any], several: bool) -> str:
    spent = ", ".join(
        f"{_seconds(seconds)} {state}" for state, seconds in answer["seconds"].items() if seconds
    )
    shown = f"{name}, answer {answer['answer']}" if several else name
    lines = [f"{shown}: {answer['state']}" + (f" after {spent}" if spent else "")]
    header = ("AT", "FOR", "STATE", "CODE", "PLUGIN", "WHY")
    rows = [
        (
            _seconds(stage["start"]),
            "-" if stage["seconds"] is None else _seconds(stage["seconds"]),
            stage["state"], stage["code"], stage["plugin"], stage["reason"],
        )
        for stage in answer["timeline"]
    ]  # fmt: skip
    lines.append(table(header, _shortened(rows)))
    if answer["now"] is not None:
        lines.append(f"now: {_now(answer['now'])}")
    return "\n".join(lines)


def _shortened(rows: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
    """One screen: of a long life the beginning and the end."""
    if len(rows) <= 2 * ENDS_SHOWN + 1:
        return rows
    left_out = f"{len(rows) - 2 * ENDS_SHOWN} more; --json shows them"
    return [*rows[:ENDS_SHOWN], ("...", "", "", "", "", left_out), *rows[-ENDS_SHOWN:]]


def _now(row: dict[str, Any]) -> str:
    parts = [f"{row['state']} for {_seconds(row['since'])} ({row['code']}): {row['reason']}"]
    if row["position"] is not None:
        parts.append(f"place {row['position']} in the queue")
    if row["until"] is not None:
        parts.append(f"until {_seconds(max(row['until'], 0.0))} from now")
    computed, prompt, output = row["computed_tokens"], row["prompt_tokens"], row["output_tokens"]
    parts.append(f"{computed} positions computed, of a prompt of {prompt} and {output} tokens more")
    return "; ".join(parts)


def _seconds(value: float) -> str:
    if value < 1:
        return f"{1000 * value:.1f}ms"
    return f"{value:.1f}s" if value >= 10 else f"{value:.2f}s"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
