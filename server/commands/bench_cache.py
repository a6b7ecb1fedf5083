"""`jackfield bench cache`: what sharing and tiers save, and what they cost."""

import json
import os
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from jackfield.core.api import ConfigError
from jackfield.core.api.errors import nearest
from jackfield.core.inspection import Resolved, load_config
from jackfield.server.cache_report import lookup_lines, shared_lines, swap_lines
from jackfield.server.commands.engine_options import EngineArguments
from jackfield.server.commands.options import JsonOption

PARTS = ("shared", "swap", "lookup")
OnlyOption = Annotated[
    str | None, typer.Option("--only", metavar="NAME,NAME", help=f"Of {', '.join(PARTS)}.")
]
RequestsOption = Annotated[int, typer.Option(help="shared: how many.")]
SharedOption = Annotated[int, typer.Option(help="shared: first tokens that all have in common.")]
OwnOption = Annotated[int, typer.Option(help="shared: tokens of its own that each has.")]
ConversationsOption = Annotated[int, typer.Option(help="swap: conversations at once.")]
TurnsOption = Annotated[int, typer.Option(help="swap: turns of each.")]
RoundsOption = Annotated[int, typer.Option(help="swap: how often, each with new conversations.")]


def cache_command(
    engine: EngineArguments,
    only: OnlyOption = None,
    requests: RequestsOption = 64,
    shared_tokens: SharedOption = 1024,
    own_tokens: OwnOption = 16,
    conversations: ConversationsOption = 16,
    turns: TurnsOption = 3,
    rounds: RoundsOption = 3,
    as_json: JsonOption = False,
) -> None:
    """Compare cache stacks: with and without shared prefixes, with and without a tier below.

    `shared` sends prompts with a common beginning. `swap` plays conversations that need twice the
    pool. `lookup` finds a prompt of 32,768 tokens in a cache of 100,000 blocks, without a model.
    Two engines are loaded at a time and measured in turn, with pools of the size that the
    measurement needs. With --json, each measurement is one line.
    """
    from jackfield.core.bench.cache_lookup import LookupWork, measure_lookup
    from jackfield.core.bench.cache_shared import SharedWork, measure_shared
    from jackfield.core.bench.cache_swap import SwapWork, measure_swap
    from jackfield.core.checkpoint.progress import RichProgress

    def configure(more: Mapping[str, Any]) -> Resolved:
        return _configured(engine, more)

    progress = RichProgress()
    shared = SharedWork(requests, shared_tokens, own_tokens)
    swap = SwapWork(conversations, turns, rounds=rounds)
    for place, part in enumerate(_parts(only)):
        result: Any
        if part == "shared":
            result = measure_shared(configure, shared, progress)
            lines = shared_lines(result)
        elif part == "swap":
            result = measure_swap(configure, swap, progress)
            lines = swap_lines(result)
        else:
            result = measure_lookup(configure, LookupWork(), progress)
            lines = lookup_lines(result)
        text = "\n" * (place > 0) + lines
        typer.echo(json.dumps({"measurement": part} | result.as_dict()) if as_json else text)


def _parts(only: str | None) -> tuple[str, ...]:
    if only is None:
        return PARTS
    names = only.split(",")
    for name in names:
        if name not in PARTS:
            raise ConfigError(f"unknown measurement {name!r}. {nearest(name, PARTS)}")
    return tuple(name for name in PARTS if name in names)


def _configured(engine: EngineArguments, more: Mapping[str, Any]) -> Resolved:
    """What the flags say and the measurement needs. Raises `ConfigError`."""
    for key in more.keys() & engine.flags.keys():
        raise ConfigError(f"{key} is what this measurement sets itself; leave it out")
    return load_config(engine.config, os.environ, {**engine.flags, **more})
