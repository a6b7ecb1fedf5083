"""Where the time of a whole answer went, in the header `Server-Timing`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jackfield.core.front.outputs import RequestOutput

PHASES = (
    ("queue", "queued_time"),
    ("prefill", "prefill_time"),
    ("decode", "decode_time"),
    ("total", "total_time"),
)
"""Name in the header, field of `RequestMetrics`."""


def server_timing(outputs: "Sequence[RequestOutput]") -> dict[str, str]:
    """In milliseconds, by the engine's clock; of several prompts, of the one that took longest."""
    known = [output.metrics for output in outputs if output.metrics is not None]
    if not known:
        return {}
    longest = max(known, key=lambda one: one.total_time or 0.0)
    phases = [(name, getattr(longest, field)) for name, field in PHASES]
    shown = [f"{name};dur={1000 * spent:.3f}" for name, spent in phases if spent is not None]
    return {"server-timing": ", ".join(shown)} if shown else {}
