"""How much fits."""

from typing import NamedTuple

from jackfield.core.api.sizes import format_bytes
from jackfield.core.doctor.finding import Finding, note, ok, problem
from jackfield.core.doctor.stack import Served

SUBJECT = "memory"


class Room(NamedTuple):
    """bytes: that may be used in all. origin: why so many, as the end of a sentence."""

    bytes: int
    origin: str


def check_memory(served: Served, weights: int, room: Room) -> list[Finding]:
    """Weights, keys and values, and what context they leave room for."""
    found = [
        ok(SUBJECT, f"Weights take {format_bytes(weights)}."),
        ok(
            SUBJECT,
            f"Keys and values of a token take {served.bytes_per_token:,} bytes in "
            f"{served.encoding}, a full context of {served.limits.max_model_len:,} tokens "
            f"{format_bytes(served.bytes_per_token * served.limits.max_model_len)}.",
        ),
    ]  # fmt: skip
    left = room.bytes - weights - served.scratch
    tokens = max(left, 0) // served.block_bytes * served.block_size
    return [*found, _fit(served, weights, room, tokens)]


def _fit(served: Served, weights: int, room: Room, tokens: int) -> Finding:
    context = served.limits.max_model_len
    given = f"{format_bytes(room.bytes)} ({room.origin})"
    if weights > room.bytes:
        return problem(
            SUBJECT,
            f"Weights of {format_bytes(weights)} do not fit into {given}; take a quantized "
            f"checkpoint, a smaller model, or a device with more memory.",
        )
    if not tokens:
        return problem(
            SUBJECT,
            f"Beside weights and {format_bytes(served.scratch)} for a step, nothing of {given} is "
            f"left for keys and values; lower engine.max_num_batched_tokens or "
            f"engine.max_num_seqs, or take a device with more memory.",
        )
    if tokens < context:
        return note(
            SUBJECT,
            f"{given} leaves room for {tokens:,} tokens, less than the context of {context:,}, "
            f"which is lowered to that; set model.max_model_len to say how much is enough, or "
            f"cache.stack with 'fp8' to halve keys and values.",
        )
    seats = served.limits.max_seqs
    full = min(tokens // context, seats)
    return ok(
        SUBJECT,
        f"{given} leaves room for {tokens:,} tokens: {full:,} sequences of full context, or "
        f"{seats:,} of {min(tokens // seats, context):,} tokens.",
    )
