"""Whether the files hold the tensors that the model takes, each of the right shape."""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import torch

from jackfield.core.api import OPERATIONS, Operations, Shard, Weights
from jackfield.core.checkpoint.safetensors_header import StoredTensor
from jackfield.core.doctor.finding import Finding, note, ok, problem
from jackfield.core.doctor.header_weights import HeaderWeights, Unlike

SUBJECT = "tensors"
NUMBER = re.compile(r"\d+")
SHOWN = 4


class NoOperation:
    """Packs weights that are not there, for a model that is never called."""

    notes = ()

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: None

    def pack(self, weights: Any, *arguments: Any) -> "NoOperation":
        """Takes them all, also where they come one after the other."""
        if isinstance(weights, Iterator):
            deque(weights, maxlen=0)
        return self

    def __call__(self, *arguments: Any, **named: Any) -> None:
        raise AssertionError("a model without weights is not called")


def build(model_class: Any, config: Mapping[str, Any], weights: Weights, owners: Iterable[str]
          ) -> Finding | None:  # fmt: skip
    """Have the model take its weights. owners: operations that somebody serves. Tells why it
    cannot be built, if so."""
    served: dict[str, Any] = {name: NoOperation() for name in OPERATIONS if name in owners}
    try:
        with torch.inference_mode():
            model_class(config, Operations(**served), Shard(), weights)
    except Exception as error:  # a model plugin may do with tensors what needs their values
        text = " ".join(str(error).split()) or type(error).__name__
        return note(SUBJECT, f"They could not all be checked without being read: {text}")
    return None


def check_tensors(weights: HeaderWeights) -> list[Finding]:
    """What is missing, has another shape, or has no place."""
    found = [*_unlike(weights), *_surplus(weights)]
    if found:
        return found
    files = {stored.file for stored in weights.stored.values()}
    return [ok(SUBJECT, f"All {len(weights.stored):,} in {len(files)} files have their place.")]


def _unlike(weights: HeaderWeights) -> list[Finding]:
    groups: dict[tuple[str, str | None, str], list[Unlike]] = defaultdict(list)
    for each in weights.unlike:
        groups[NUMBER.sub("*", each.name), each.stored, each.wanted].append(each)
    unused = weights.surplus()
    told = [_one(members, weights.stored, unused) for members in groups.values()]
    return _shortened(told, "further kinds of tensors that do not fit")


def _one(
    members: Sequence[Unlike], stored: Mapping[str, StoredTensor], unused: Sequence[str]
) -> Finding:
    first, alike = members[0], _alike(len(members))
    if first.stored is None:
        close = get_close_matches(first.name, unused or stored, n=1)
        hint = f"; the nearest name is {close[0]!r}" if close else ""
        return problem(
            SUBJECT,
            f"The files lack {first.name!r} of shape {first.wanted}{alike}{hint}; fetch the model "
            f"again, or correct config.json.",
        )
    where = stored[first.name].file.name if first.name in stored else "config.json"
    return problem(
        SUBJECT,
        f"{where}, tensor {first.name!r} is {first.stored}{alike}, but config.json makes it "
        f"{first.wanted}; take the config.json that belongs to these weights.",
    )


def _surplus(weights: HeaderWeights) -> list[Finding]:
    groups: dict[str, list[str]] = defaultdict(list)
    for name in weights.surplus():
        groups[NUMBER.sub("*", name)].append(name)
    told = [
        problem(
            SUBJECT,
            f"{weights.stored[names[0]].file.name}, tensor {names[0]!r} of shape "
            f"{list(weights.stored[names[0]].shape)}{_alike(len(names))} has no place in the "
            f"model; take the config.json that belongs to these weights.",
        )
        for names in groups.values()
    ]
    return _shortened(told, "further kinds of tensors without a place")


def _shortened(told: list[Finding], rest: str) -> list[Finding]:
    if len(told) <= SHOWN:
        return told
    return [*told[:SHOWN], problem(SUBJECT, f"There are {len(told) - SHOWN} {rest}.")]


def _alike(count: int) -> str:
    return "" if count == 1 else f" (and {count - 1} more by layer)"
