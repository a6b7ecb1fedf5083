"""A request's life in stages, from the decisions about it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jackfield.core.engine.decisions import Decision
    from jackfield.core.engine.listing import RequestRow

STAGES = {
    "arrive": "waiting",
    "wake": "waiting",
    "wait": "waiting",
    "preempt": "waiting",
    "park": "parked",
    "admit": "running",
    "finish": "finished",
    "fail": "failed",
    "reject": "rejected",
}
"""Action -> the state that it begins."""
ENDS = ("finished", "failed", "rejected")


def summary_of(
    decisions: "Sequence[Decision]", rows: "Sequence[RequestRow]"
) -> dict[str, Any]:
    """Per answer: its state, what it did for how long, and why. rows: of those that are not over.

    Of an id that was used again, the last time counts. Times are seconds; `start` counts from the
    first decision that is still known.
    """
    live = {row.answer: row for row in rows}
    known: dict[int, list[Decision]] = {}
    for decision in decisions:
        own = known.setdefault(decision.answer, [])
        if decision.action == "arrive":
            own.clear()
        own.append(decision)
    return {
        "answers": [_answer(answer, own, live.get(answer)) for answer, own in sorted(known.items())]
    }


def _answer(
    answer: int, decisions: "Sequence[Decision]", row: "RequestRow | None"
) -> dict[str, Any]:
    timeline = _timeline(decisions, row)
    spent = {"waiting": 0.0, "parked": 0.0, "running": 0.0}
    for stage in timeline:
        if stage["state"] in spent:
            spent[stage["state"]] += stage["seconds"] or 0.0
    state = timeline[-1]["state"] if timeline else "unknown"
    now = None if row is None or state in ENDS else row._asdict()
    return {"answer": answer, "state": state, "seconds": spent, "now": now, "timeline": timeline}


def _timeline(
    decisions: "Sequence[Decision]", row: "RequestRow | None"
) -> list[dict[str, Any]]:
    """seconds: None for the last stage, unless it goes on and `row` tells how long it has."""
    found: list[dict[str, Any]] = []
    first = decisions[0].time
    for decision in decisions:
        state = STAGES.get(decision.action)
        if state is None or (found and found[-1]["state"] in ENDS):
            continue
        start = decision.time - first
        if found:
            found[-1]["seconds"] = start - found[-1]["start"]
        found.append(
            {
                "state": state, "start": start, "seconds": None, "action": str(decision.action),
                "code": decision.code, "reason": decision.reason, "plugin": decision.plugin,
            }
        )  # fmt: skip
    if found and row is not None and found[-1]["state"] == row.state:
        found[-1]["seconds"] = max(row.since - found[-1]["start"] + _began(found), 0.0)
    return found


def _began(timeline: Sequence[dict[str, Any]]) -> float:
    """When the state of the last stage began; a wait for another reason is the same state."""
    began: float = timeline[-1]["start"]
    for stage in reversed(timeline):
        if stage["state"] != timeline[-1]["state"]:
            break
        began = stage["start"]
        if stage["action"] != "wait":
            break
    return began
