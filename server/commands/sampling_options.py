"""How an answer is sampled, as flags that `generate` and `chat` share."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from jackfield.core.api import SamplingParams
from jackfield.server.option_groups import Group

Given = dict[str, Any]
"""Fields of `SamplingParams` that were given, and their values."""

DEFAULTS: Given = {"temperature": 0.0, "max_tokens": 512}
OPTIONS: dict[str, Any] = {
    "max_tokens": Annotated[
        int | None,
        typer.Option(help="Most new tokens. Left out: 512, or as many as the context holds."),
    ],
    "temperature": Annotated[
        float | None, typer.Option(help="0 always takes the most likely token.")
    ],
    "top_p": Annotated[
        float | None, typer.Option(help="Sample from the likeliest tokens of this total share.")
    ],
    "top_k": Annotated[int | None, typer.Option(help="Sample from this many likeliest tokens.")],
    "min_p": Annotated[
        float | None, typer.Option(help="Least share, relative to the likeliest token.")
    ],
    "repetition_penalty": Annotated[
        float | None, typer.Option(help="Above 1, tokens that were there are less likely.")
    ],
    "seed": Annotated[int | None, typer.Option(help="With it, the same answer comes again.")],
    "stop": Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="End the answer before this text. May be repeated."),
    ],
}


def _read(given: Given) -> Given:
    """Checked at once, so that a wrong value is told before a model is loaded."""
    fields = {name: value for name, value in given.items() if value not in (None, [])}
    SamplingParams(**fields)
    return fields


SAMPLING = Group(OPTIONS, _read)


def sampling_params(given: Given, recommended: Mapping[str, Any]) -> SamplingParams:
    """What was given, over what the model recommends, over greedy answers of 512 tokens."""
    return SamplingParams(**{**DEFAULTS, **recommended, **given})
