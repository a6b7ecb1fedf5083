"""What decisions are made for, as codes; docs/explain.md says what to do about each."""

from enum import StrEnum

from jackfield.core.engine.planner import Planner
from jackfield.core.engine.request import Request


class Code(StrEnum):
    """The core's own codes. A verdict of a plugin carries the code that the plugin gave it."""

    # arrive
    ARRIVED = "arrived"
    # admit
    ORDER = "order"
    VALVE = "valve"
    FALLBACK = "fallback"
    PLAN = "plan"
    # wait
    NO_SEAT = "no_seat"
    NO_BLOCKS = "no_blocks"
    BLOCKS_RESERVED = "blocks_reserved"
    STEP_FULL = "step_full"
    STEP_LIMITED = "step_limited"
    ADMISSIONS_LIMITED = "admissions_limited"
    MEMORY_SHORT = "memory_short"
    OTHERS_LOAD = "others_load"
    NOT_CHOSEN = "not_chosen"
    HELD_BACK = "held_back"
    BEHIND = "behind"
    NEXT = "next"
    # park and wake
    AWAITS_PROMPT = "awaits_prompt"
    AWAITS_STEP = "awaits_step"
    AWAITS_PREFIX = "awaits_prefix"
    AWAITS_LOAD = "awaits_load"
    PROMPT_READY = "prompt_ready"
    STEP_COLLECTED = "step_collected"
    PREFIX_READY = "prefix_ready"
    LOADED = "loaded"
    TIME_CAME = "time_came"
    # preempt; memory_short and plan too
    DISPLACED = "displaced"
    # finish
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    # fail
    REJECTED = "rejected"
    DEFERRED_TOO_LONG = "deferred_too_long"
    STEP_FAILED = "step_failed"
    ANSWER_FAILED = "answer_failed"
    BINDING_FAILED = "binding_failed"
    ENGINE_STOPPED = "engine_stopped"
    # fault
    SWITCHED_OFF = "switched_off"
    OUT_OF_MEMORY = "out_of_memory"


ADMITTED = {
    Code.ORDER: "it was first in the order",
    Code.VALVE: "it waited longest, and the starvation valve was open",
    Code.FALLBACK: "it waited longest, and the policies had left the step empty",
    Code.PLAN: "the plan hook chose it",
}
"""Sentences for who gets a seat."""
WAITS = {
    Code.STEP_FULL: "the step is full: others take all of its tokens",
    Code.STEP_LIMITED: "the step is full: policies have made it smaller",
    Code.ADMISSIONS_LIMITED: "admissions of the step are limited",
    Code.MEMORY_SHORT: "memory is short: who runs takes every block",
    Code.OTHERS_LOAD: "others load blocks from a tier: as many as may be loaded, or its own",
    Code.NOT_CHOSEN: "the plan hook did not choose it",
    Code.HELD_BACK: "all who wait are held back",
}


def why_waits(code: Code, request: Request, planner: Planner) -> str:
    """What the first of the queue lacks, in a sentence."""
    if code is Code.NO_SEAT:
        return f"no free seat: all {planner.limits.max_seqs} are taken"
    if code in (Code.NO_BLOCKS, Code.BLOCKS_RESERVED):
        kept = ", which a policy keeps in reserve" if code is Code.BLOCKS_RESERVED else ""
        needed, free = planner.admission_blocks(request), planner.pool.num_free
        return f"no free blocks: it takes {needed}, {free} are free{kept}"
    return WAITS[code]
