"""A recorded trace as steps: which kernels belong to which, and when they ran."""

import gzip
import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence, Set
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

KERNEL = "kernel"
DEVICE_WORK = frozenset({KERNEL, "gpu_memcpy", "gpu_memset"})
LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
TO_HOST = "DtoH"
PHASES = frozenset({"forward", "sample"})
Event = Mapping[str, Any]


class TracedStep(NamedTuple):
    """One step on the device, in microseconds. kernels: how many ran."""

    begin: float
    end: float
    kernels: int


class _Phase(NamedTuple):
    """A part of a step that launches work, on the host's clock."""

    begin: float
    end: float
    step: int
    thread: Any


def traced_steps(path: Path) -> list[TracedStep]:
    """Those of a trace that `StepTrace` wrote, in order; none if it knows no device.

    Work belongs to the step whose `forward` or `sample` launched it, in the same thread. Copies
    to the host do not count: the next step need not wait for them. A step whose work is not there
    is left out.
    """
    events = _read(path)
    phases = _phases(events)
    launched = _launched(events, {phase.thread for phase in phases})
    begins = [phase.begin for phase in phases]
    found: dict[int, list[Event]] = {}
    for event in events:
        moment = launched.get(event.get("args", {}).get("correlation"))
        if moment is None or not _is_work(event):
            continue
        phase = phases[bisect_right(begins, moment) - 1]
        if phase.begin <= moment <= phase.end:
            found.setdefault(phase.step, []).append(event)
    return [_step(found[step]) for step in sorted(found)]


def gaps_us(steps: Sequence[TracedStep]) -> list[float]:
    """From the end of each step to the begin of the next."""
    return [max(later.begin - one.end, 0.0) for one, later in pairwise(steps)]


def _read(path: Path) -> list[Event]:
    packed = path.read_bytes()
    text = gzip.decompress(packed) if path.suffix == ".gz" else packed
    events: list[Event] = json.loads(text)["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


def _is_work(event: Event) -> bool:
    return event.get("cat") in DEVICE_WORK and TO_HOST not in event["name"]


def _phases(events: Sequence[Event]) -> list[_Phase]:
    found = sorted(
        (event["ts"], event["ts"] + event["dur"], event["name"], event.get("tid"))
        for event in events
        if event.get("cat") == "user_annotation" and event["name"] in PHASES
    )
    steps = accumulate(name == "forward" for _, _, name, _ in found)
    return [
        _Phase(begin, end, step, thread)
        for (begin, end, _, thread), step in zip(found, steps, strict=True)
    ]


def _launched(events: Sequence[Event], threads: Set[Any]) -> dict[int, float]:
    """When the host launched what has this correlation."""
    return {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") in LAUNCHES
        and event.get("tid") in threads
        and "correlation" in event.get("args", {})
    }


def _step(work: Sequence[Event]) -> TracedStep:
    return TracedStep(
        min(event["ts"] for event in work),
        max(event["ts"] + event["dur"] for event in work),
        sum(event["cat"] == KERNEL for event in work),
    )
