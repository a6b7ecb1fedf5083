"""Retention: what is kept of a request that lets its blocks go."""

from enum import StrEnum
from typing import NamedTuple

from jackfield.core.api.request import RequestView


class ReleaseCause(StrEnum):
    """Why blocks are let go."""

    FINISHED = "finished"
    PREEMPTED = "preempted"
    ABORTED = "aborted"


class Released(NamedTuple):
    """A request that lets its blocks go. num_blocks: full ones, which could be found again."""

    request: RequestView
    num_blocks: int
    cause: ReleaseCause


class Keep(NamedTuple):
    """What should become of the blocks. ttl in seconds; None = no opinion.

    Fold: `pin` of anybody beats `drop` of anybody; the largest priority; the longest ttl.
    """

    pin: bool = False
    drop: bool = False
    priority: int = 0
    ttl: float | None = None
