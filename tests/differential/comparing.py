"""Where two answers to the same request differ."""

import math
from typing import Any, NamedTuple

from asking import Answer
from cases import Case
from reading import facts, keys

TOLERANCE = 1e-3
SCORES = ("logprobs", "prompt_logprobs")


class Difference(NamedTuple):
    """kind: what differs; where: the part of it, if it is a part."""

    kind: str
    where: str
    ours: Any
    peer: Any


def compare(case: Case, ours: Answer, peer: Answer) -> list[Difference]:
    """All differences; of errors only the class of the status, and the status beside it."""
    if ours["status"] != peer["status"]:
        same = ours["status"] // 100 == peer["status"] // 100
        kind = "status in its class" if same else "status"
        return [Difference(kind, "", _said(ours), _said(peer))]
    if ours["status"] >= 400:
        return []
    found = _facts(ours, peer) if case["group"] != "route" else _body(ours, peer)
    missing = sorted(keys(peer) - keys(ours))
    return found + ([Difference("keys we lack", "", [], missing)] if missing else [])


def _said(answer: Answer) -> Any:
    body = answer.get("body")
    text = body if answer["status"] >= 400 or answer["status"] == 0 else "(an answer)"
    return [answer["status"], text]


def _facts(ours: Answer, peer: Answer) -> list[Difference]:
    left, right = facts(ours), facts(peer)
    found = []
    for kind in sorted(left.keys() | right.keys()):
        one, other = left.get(kind), right.get(kind)
        where = first_difference(one, other, kind)
        if where is not None:
            found.append(Difference(kind, where, one, other))
    return found


def _body(ours: Answer, peer: Answer) -> list[Difference]:
    """Only what both have, and are no names or times."""
    left, right = ours["body"], peer["body"]
    both = [name for name in right if name in left and name not in ("data", "version")]
    return [
        Difference("body", name, left[name], right[name])
        for name in both
        if left[name] != right[name]
    ]


def first_difference(one: Any, other: Any, path: str) -> str | None:
    """The path of the first place at which two values differ; None if they are alike."""
    if isinstance(one, float) or isinstance(other, float):
        return None if _close(one, other) else path
    if isinstance(one, dict) and isinstance(other, dict):
        return _in_maps(one, other, path)
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return f"{path} (length {len(one)} against {len(other)})"
        for place, (left, right) in enumerate(zip(one, other, strict=True)):
            where = first_difference(left, right, f"{path}[{place}]")
            if where is not None:
                return where
        return None
    return None if one == other else path


def _in_maps(one: dict[Any, Any], other: dict[Any, Any], path: str) -> str | None:
    for name in other:
        if name not in one and other[name] is None:
            continue
        where = first_difference(one.get(name), other[name], f"{path}.{name}")
        if where is not None:
            return where
    surplus = [name for name in one if name not in other and one[name] is not None]
    return f"{path}.{surplus[0]}" if surplus else None


def _close(one: Any, other: Any) -> bool:
    if not isinstance(one, int | float) or not isinstance(other, int | float):
        return False
    return one == other or math.isclose(one, other, rel_tol=0, abs_tol=TOLERANCE)
